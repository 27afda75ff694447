"""The drives a guest may have, as QEMU devices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.errors import MachineError
from harness.core.units import format_size

FEMU_BYTES_PER_RAW_PAGE = 80
"""FTL metadata per raw NAND page (measured 80.2 B on FEMU at 99ce4fb2b)."""


@dataclass(frozen=True)
class NvmeDrive:
    """Stock QEMU's ``-device nvme``: exact host accounting, no flash translation layer.

    The data lives in a sparse file that vanishes with the guest.
    """

    size_bytes: int
    logical_block: int = 512
    options: Mapping[str, str] = field(default_factory=dict)
    """Further properties of the device, such as ``{"mdts": "7"}``."""

    device = "nvme"

    def memory_parts(self) -> dict[str, int]:
        """Host memory by purpose: none, the file is sparse."""
        return {}

    def argv(self, index: int, backing: Path) -> list[str]:
        """QEMU options for drive number ``index``."""
        block = self.logical_block
        words = [
            f"nvme,id=drive{index},addr={_slot(index):#x},serial=harness{index},drive=back{index}",
            f"logical_block_size={block},physical_block_size={max(block, 4096)}",
            *(f"{key}={_comma(value)}" for key, value in self.options.items()),
        ]
        return [
            "-drive", f"file={_comma(str(backing))},if=none,id=back{index},format=raw,"
            "cache=unsafe,discard=unmap",
            "-device", ",".join(words),
        ]  # fmt: skip


@dataclass(frozen=True)
class FemuDrive:
    """FEMU's ``-device femu`` with a black-box SSD's properties (see ``femu_properties``)."""

    properties: Mapping[str, str | int]
    size_bytes: int
    backing_bytes: int
    """Bytes FEMU allocates for data: the namespace, or all raw NAND with ``op_pcent``."""
    raw_pages: int

    device = "femu"

    def memory_parts(self) -> dict[str, int]:
        """Host memory by purpose: the drive's data (locked) and its FTL."""
        return {
            "drive data": self.backing_bytes,
            "FTL metadata": self.raw_pages * FEMU_BYTES_PER_RAW_PAGE,
        }

    def argv(self, index: int, backing: Path) -> list[str]:
        """QEMU options for drive number ``index``; FEMU uses no backing file."""
        words = [f"femu,id=drive{index},addr={_slot(index):#x}"]
        words += [f"{key}={_comma(str(value))}" for key, value in self.properties.items()]
        return ["-device", ",".join(words)]


Drive = NvmeDrive | FemuDrive


def backing_file(folder: Path, index: int, drive: Drive) -> Path:
    """The sparse file behind a stock NVMe drive, made; MachineError if it could never fit."""
    path = folder / f"drive{index}.img"
    if isinstance(drive, NvmeDrive):
        room = os.statvfs(folder)
        if drive.size_bytes > room.f_bavail * room.f_frsize:
            raise MachineError(
                f"no room in {folder.parent} for a drive of {format_size(drive.size_bytes)}",
                fix="set TMPDIR to a folder with more space, or use a smaller drive",
            )
        with path.open("wb") as file:
            file.truncate(drive.size_bytes)
    return path


def pci_address(index: int) -> str:
    """Where the guest finds drive number ``index``."""
    return f"0000:00:{_slot(index):02x}.0"


def _slot(index: int) -> int:
    return 0x10 + index


def _comma(value: str) -> str:
    """QEMU's options end at a comma unless it is doubled."""
    return value.replace(",", ",,")
