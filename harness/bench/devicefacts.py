"""What a result says about the device it was measured on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from harness.core.errors import UsageError
from harness.device.info import DeviceInfo, device_info, parent_disk


def device_facts(info: DeviceInfo) -> dict[str, Any]:
    """All that the kernel says of the device, and its firmware."""
    return {**info.as_dict(), "firmware": _firmware(parent_disk(info.name))}


def beneath(directory: Path) -> DeviceInfo:
    """The block device that holds the file system of ``directory``; UsageError if none does."""
    number = os.stat(directory).st_dev
    link = Path("/sys/dev/block") / f"{os.major(number)}:{os.minor(number)}"
    if not link.exists():
        raise UsageError(
            f"{directory} lies on no block device (tmpfs, overlay or network)",
            fix="give a folder on a disk with --directory, or a device with --device",
        )
    return device_info(f"/dev/{link.resolve().name}")


def stand_in(name: str) -> str | None:
    """What stood in for a drive, if device ``name`` is none."""
    if name.startswith("loop"):
        return "a loop device over a file stood in for a drive: no flash, no drive's queue"
    if name.startswith(("ram", "zram", "nullb")):
        return f"{name} stood in for a drive: memory, not flash"
    return None


def _firmware(name: str) -> str | None:
    """Firmware revision of an NVMe or SCSI disk; None for what has none."""
    for place in ("firmware_rev", "rev"):
        file = Path("/sys/class/block") / name / "device" / place
        if file.is_file():
            return file.read_text().strip() or None
    return None
