"""Whether KVM works here: not whether ``/dev/kvm`` opens, but whether a guest runs under it.

On nested or restricted hosts the device opens and a guest then hangs for ever, so a boot
sector of seven instructions is run under a time limit, and the answer is remembered until the
next boot of the host.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.core.files import write_json
from harness.device.guest.cache import cache_dir, locked

_PROBE_LIMIT_S = 10.0
_EXIT_VALUE = 0x21
# mov al, 0x21; out 0xf4, al; hlt; jmp back: isa-debug-exit ends QEMU with (0x21 << 1) | 1.
_BOOT_SECTOR = (
    bytes([0xB0, _EXIT_VALUE, 0xE6, 0xF4, 0xF4, 0xEB, 0xFD]).ljust(510, b"\0") + b"\x55\xaa"
)


@dataclass(frozen=True)
class Accelerator:
    """How a guest's processor is made: ``name`` is ``kvm`` or ``tcg``, ``why`` says how come."""

    name: str
    why: str

    @property
    def argv(self) -> list[str]:
        """QEMU options. Under TCG the default model lacks what current numpy is built for."""
        if self.name == "kvm":
            return ["-accel", "kvm", "-cpu", "host"]
        return ["-accel", "tcg,thread=multi", "-cpu", "max"]


def choose_accelerator(binary: str) -> Accelerator:
    """KVM where a guest really runs under it, TCG (emulation) elsewhere; remembered."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return Accelerator("tcg", "/dev/kvm cannot be opened: emulated, slower and not for timing")
    key = f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {binary}"
    with locked("kvm"):
        memory = cache_dir() / "kvm.json"
        try:
            known = json.loads(memory.read_text())
        except (OSError, ValueError):
            known = {}
        if known.get("key") != key:
            known = {"key": key, "works": probe_kvm(binary)}
            write_json(memory, known)
    if known["works"]:
        return Accelerator("kvm", "a probe guest ran under KVM")
    return Accelerator(
        "tcg", "/dev/kvm opens, but a guest hangs under it: emulated, slower and not for timing"
    )


def probe_kvm(binary: str, limit_s: float = _PROBE_LIMIT_S) -> bool:
    """Whether a boot sector runs to its end under KVM within ``limit_s``."""
    with tempfile.NamedTemporaryFile(suffix=".boot") as disk:
        disk.write(_BOOT_SECTOR)
        disk.flush()
        argv = [
            binary, "-accel", "kvm", "-cpu", "host", "-m", "32", "-nodefaults", "-display", "none",
            "-device", "isa-debug-exit,iobase=0xf4,iosize=1",
            "-drive", f"file={disk.name},format=raw,if=ide,readonly=on,media=disk",
        ]  # fmt: skip
        try:
            done = subprocess.run(
                argv, timeout=limit_s, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
        except (subprocess.TimeoutExpired, OSError):
            return False
    return done.returncode == (_EXIT_VALUE << 1 | 1)
