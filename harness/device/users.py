"""Who uses a block device: mounts, swap, stacked devices, and processes that have it open."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_SYS = Path("/sys/class/block")


def device_number(name: str) -> int:
    """``st_rdev`` of block device ``name``."""
    major, minor = (_SYS / name / "dev").read_text().strip().split(":")
    return os.makedev(int(major), int(minor))


def mounts(name: str) -> list[str]:
    """Mount points of ``name``, by number and by name (btrfs mounts have numbers of their own)."""
    number = device_number(name)
    wanted = f"{os.major(number)}:{os.minor(number)}"
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields, source = left.split(), right.split()[1:2]
        if fields[2] == wanted or (source and _is_device(source[0], number)):
            found.append(_unescape(fields[4]))
    return found


def swaps() -> frozenset[str]:
    """Kernel names of the block devices in use as swap space."""
    names = set()
    for line in Path("/proc/swaps").read_text().splitlines()[1:]:
        names.add(Path(os.path.realpath(_unescape(line.split()[0]))).name)
    return frozenset(names)


def holders(name: str) -> list[str]:
    """Names of the devices stacked on ``name`` (LVM, RAID, dm-crypt)."""
    try:
        return sorted(path.name for path in (_SYS / name / "holders").iterdir())
    except OSError:
        return []


def other_openers(name: str) -> list[str]:
    """``command (pid)`` of every other process that has ``name`` or its generic twin open.

    O_EXCL does not see a plain opener, so this looks at every descriptor of every process;
    only root sees them all.
    """
    wanted = {(stat.S_IFBLK, device_number(name))} | _character_twin(name)
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        if _has_open(process, wanted):
            found.append(f"{_command(process)} ({process.name})")
    return sorted(found)


def _has_open(process: Path, wanted: set[tuple[int, int]]) -> bool:
    try:
        descriptors = os.listdir(process / "fd")
    except OSError:
        return False
    for descriptor in descriptors:
        try:
            status = os.stat(process / "fd" / descriptor)
        except OSError:
            continue
        if (stat.S_IFMT(status.st_mode), status.st_rdev) in wanted:
            return True
    return False


def _character_twin(name: str) -> set[tuple[int, int]]:
    """The generic character device of an NVMe namespace (``ng0n1`` of ``nvme0n1``), if any."""
    if not name.startswith("nvme"):
        return set()
    try:
        text = Path(f"/sys/class/nvme-generic/ng{name[4:]}/dev").read_text()
    except OSError:
        return set()
    major, minor = text.strip().split(":")
    return {(stat.S_IFCHR, os.makedev(int(major), int(minor)))}


def _command(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "a process"


def _is_device(source: str, number: int) -> bool:
    if not source.startswith("/"):
        return False
    try:
        status = os.stat(_unescape(source))
    except OSError:
        return False
    return stat.S_ISBLK(status.st_mode) and status.st_rdev == number


def _unescape(path: str) -> str:
    """Undo the kernel's octal escapes (``\\040``) in mountinfo and swaps."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path
