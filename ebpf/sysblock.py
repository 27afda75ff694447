"""What sysfs says of a block device: its number, its disk, its counters, how it takes requests."""

from __future__ import annotations

import functools
import os
import re
import stat
import time

SYS_BLOCK = "/sys/block"


class DeviceError(Exception):
    """No such block device, or one that cannot be traced."""


def read_line(path: str) -> str:
    """The stripped content of a small file, "" if it cannot be read."""
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def kernel_dev(text: str) -> int:
    """ "8:1" -> major << 20 | minor, the kernel's own packing."""
    major, minor = text.split(":")
    return int(major) << 20 | int(minor)


def resolve(path: str) -> dict:
    """Facts of the block device at ``path``.

    Keys: name and dev of the whole disk, first_sector and sectors of a partition (None for a
    whole disk), bio_based, hidden_paths (disks without a device node that carry an NVMe
    multipath head's requests), logical_block. DeviceError for anything else.
    """
    try:
        mode = os.stat(path)
    except OSError as error:
        raise DeviceError(f"{path}: {error.strerror}") from error
    if not stat.S_ISBLK(mode.st_mode):
        raise DeviceError(f"{path} is not a block device")
    node = os.path.realpath(f"/sys/dev/block/{os.major(mode.st_rdev)}:{os.minor(mode.st_rdev)}")
    first = sectors = None
    if os.path.exists(f"{node}/partition"):
        first, sectors = int(read_line(f"{node}/start")), int(read_line(f"{node}/size"))
        node = os.path.dirname(node)
    name = os.path.basename(node)
    if not os.path.exists(f"{node}/dev"):
        raise DeviceError(f"{path} has no disk in sysfs")
    hidden = _hidden_paths(name)
    return {
        "path": path,
        "name": name,
        "dev": kernel_dev(read_line(f"{node}/dev")),
        "first_sector": first,
        "sectors": sectors,
        "bio_based": not hidden and not os.path.isdir(f"{node}/mq"),
        "hidden_paths": hidden,
        "logical_block": int(read_line(f"{node}/queue/logical_block_size") or 512),
    }


def _hidden_paths(head: str) -> list[str]:
    """nvme0n1 -> its hidden paths nvme0c0n1, nvme0c1n1, ... where native multipath is in use."""
    match = re.fullmatch(r"nvme(\d+)n(\d+)", head)
    if match is None:
        return []
    pattern = re.compile(rf"nvme{match[1]}c\d+n{match[2]}")
    return sorted(name for name in os.listdir(SYS_BLOCK) if pattern.fullmatch(name))


def monotonic_ns() -> int:
    """The kernel's monotonic clock, as the probe reads it; a time namespace shows another one."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) - _namespace_offset_ns()


@functools.cache
def _namespace_offset_ns() -> int:
    """What this process's time namespace adds to the monotonic clock."""
    for line in read_line("/proc/self/timens_offsets").splitlines():
        name, seconds, ns = line.split()
        if name == "monotonic":
            return int(seconds) * 10**9 + int(ns)
    return 0


def snapshot(device: dict) -> dict:
    """``stat`` and ``inflight`` of a device of ``resolve``, bracketed by the monotonic clock.

    "before_ns" and "after_ns" enclose the moment of reading; "stat" is None once the device is
    gone. A multipath head's counters are those of its paths, summed.
    """
    names = device["hidden_paths"] or [device["name"]]
    before = monotonic_ns()
    stats = [_numbers(f"{SYS_BLOCK}/{name}/stat") for name in names]
    after = monotonic_ns()
    inflight = [_numbers(f"{SYS_BLOCK}/{name}/inflight") for name in names]
    return {
        "before_ns": before,
        "after_ns": after,
        "stat": [sum(column) for column in zip(*stats)] or None,  # noqa: B905 - empty when gone
        "inflight": [sum(column) for column in zip(*inflight)],  # noqa: B905
        "iostats": all(read_line(f"{SYS_BLOCK}/{name}/queue/iostats") != "0" for name in names),
    }


def _numbers(path: str) -> list[int]:
    return [int(field) for field in read_line(path).split()]


def facts(name: str) -> dict:
    """Model, limits and scheduler of a disk, for the trace's metadata; None where unknown."""
    queue = f"{SYS_BLOCK}/{name}/queue"
    scheduler = re.search(r"\[(.+?)\]", read_line(f"{queue}/scheduler"))

    def number(path: str) -> int | None:
        text = read_line(path)
        return int(text) if text.isdigit() else None

    return {
        "name": name,
        "model": read_line(f"{SYS_BLOCK}/{name}/device/model") or None,
        "serial": read_line(f"{SYS_BLOCK}/{name}/device/serial") or None,
        "size_bytes": 512 * (number(f"{SYS_BLOCK}/{name}/size") or 0),
        "logical_block": number(f"{queue}/logical_block_size"),
        "physical_block": number(f"{queue}/physical_block_size"),
        "max_sectors_kb": number(f"{queue}/max_sectors_kb"),
        "max_segments": number(f"{queue}/max_segments"),
        "scheduler": scheduler[1] if scheduler else None,
    }
