"""Which QEMU to run, and which devices it has; asked of the binary itself."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Set

from harness.core.errors import MachineError
from harness.core.settings import FEMU_VARIABLE, named_femu, settings_path

NO_FEMU = f"FEMU is not installed: {FEMU_VARIABLE} is not set"


def femu_binary() -> str | None:
    """FEMU as ``HARNESS_FEMU`` or the settings name it; None if neither does.

    Raises MachineError if that does not run or has no FEMU drive.
    """
    named = named_femu()
    if named is None:
        return None
    if "femu" not in devices_of(named.path):
        raise MachineError(
            f"{named.by} names {named.path}, which has no femu device",
            fix="point it to build-femu/qemu-system-x86_64 of a FEMU build",
        )
    return named.path


def find_qemu(devices: Set[str]) -> str:
    """A QEMU that has all of ``devices``: FEMU if a FEMU drive is asked for, else stock QEMU."""
    if "femu" in devices:
        found = femu_binary()
        if found is None:
            raise MachineError(
                NO_FEMU,
                fix="build FEMU (github.com/MoatLab/FEMU, 99ce4fb2b was checked) and name its"
                f" qemu-system-x86_64 by {FEMU_VARIABLE}, or by femu: in {settings_path()}",
            )
    else:
        found = shutil.which("qemu-system-x86_64")
        if found is None:
            raise MachineError(
                "guests need qemu-system-x86_64", fix="apt-get install qemu-system-x86"
            )
    missing = devices - devices_of(found)
    if missing:
        raise MachineError(f"{found} lacks the devices {', '.join(sorted(missing))}")
    return found


@functools.cache
def devices_of(binary: str) -> frozenset[str]:
    """Names in ``-device help`` of this QEMU; MachineError if it cannot be run."""
    return parse_devices(_ask(binary, "-device", "help"))


@functools.cache
def version_of(binary: str) -> str:
    """First line of ``--version``."""
    return _ask(binary, "--version").splitlines()[0]


@functools.cache
def properties_of(binary: str, device: str) -> frozenset[str]:
    """Property names of ``-device NAME,help``, to see which FEMU version this is."""
    return parse_properties(_ask(binary, "-device", f"{device},help"))


def parse_devices(text: str) -> frozenset[str]:
    """``name "nvme", bus PCI`` lines -> names."""
    return frozenset(re.findall(r'^name "([^"]+)"', text, re.MULTILINE))


def parse_properties(text: str) -> frozenset[str]:
    """``  devsz_mb=<uint32>`` lines -> names."""
    return frozenset(re.findall(r"^\s+([\w.-]+)=", text, re.MULTILINE))


def _ask(binary: str, *words: str) -> str:
    try:
        done = subprocess.run(
            [binary, *words], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"cannot run {binary}: {error}") from error
    if done.returncode != 0 or not done.stdout:
        raise MachineError(f"{binary} does not answer {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
