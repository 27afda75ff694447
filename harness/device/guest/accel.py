"""Whether KVM works here: not whether ``/dev/kvm`` opens, but whether Linux runs under it.

On nested or restricted hosts the device opens, even a boot sector runs, and a Linux guest then
hangs for ever. So the guests' own kernel is started without a root file system, under a time
limit: it must come to the point where it misses that. The answer is remembered until the
host's next boot.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.core.files import write_json
from harness.device.guest.cache import cache_dir, locked

_PROBE_LIMIT_S = 20.0
_END_OF_BOOT = b"Unable to mount root fs"


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


def choose_accelerator(binary: str, kernel: Path) -> Accelerator:
    """KVM where a guest really runs under it, TCG (emulation) elsewhere; remembered."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return Accelerator("tcg", "/dev/kvm cannot be opened: emulated, slower, not for timing")
    key = f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {binary}"
    with locked("kvm"):
        memory = cache_dir() / "kvm.json"
        try:
            known = json.loads(memory.read_text())
        except (OSError, ValueError):
            known = {}
        if known.get("key") != key:
            known = {"key": key, "works": probe_kvm(binary, kernel)}
            write_json(memory, known)
    if known["works"]:
        return Accelerator("kvm", "a probe guest booted under KVM")
    return Accelerator(
        "tcg", "/dev/kvm opens, but Linux does not boot under it: emulated, slower, not for timing"
    )


def probe_kvm(binary: str, kernel: Path, limit_s: float = _PROBE_LIMIT_S) -> bool:
    """Whether ``kernel`` boots under KVM, as far as it can without a root, within ``limit_s``."""
    argv = [
        binary, "-accel", "kvm", "-cpu", "host", "-m", "256", "-nodefaults", "-display", "none",
        "-no-reboot", "-serial", "stdio", "-kernel", str(kernel),
        "-append", "console=ttyS0 panic=-1",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            argv, timeout=limit_s, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except (subprocess.TimeoutExpired, OSError):
        return False
    return _END_OF_BOOT in done.stdout
