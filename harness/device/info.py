"""What the kernel says about a block device: identity, limits, queue settings, counters."""

from __future__ import annotations

import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import UsageError
from harness.core.ops import SECTOR_BYTES

_SYS = Path("/sys/class/block")


@dataclass(frozen=True)
class DeviceInfo:
    """Identity, size, limits and queue settings of a block device; None where it has none."""

    name: str
    path: str
    model: str | None
    serial: str | None
    wwid: str | None
    backing_path: str | None
    size_bytes: int
    logical_block: int
    physical_block: int
    max_sectors_kb: int
    max_segments: int
    max_segment_size: int
    nr_requests: int
    scheduler: str | None
    nomerges: int
    write_cache: str | None
    discard_max_bytes: int
    discard_granularity: int
    write_zeroes_max_bytes: int
    rotational: bool

    def as_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class BlockStat:
    """``/sys/block/*/stat``: requests, merges, sectors of 512 bytes and milliseconds."""

    read_ios: int
    read_merges: int
    read_sectors: int
    read_ticks_ms: int
    write_ios: int
    write_merges: int
    write_sectors: int
    write_ticks_ms: int
    in_flight: int
    io_ticks_ms: int
    time_in_queue_ms: int
    discard_ios: int = 0
    discard_merges: int = 0
    discard_sectors: int = 0
    discard_ticks_ms: int = 0
    flush_ios: int = 0
    flush_ticks_ms: int = 0

    def as_dict(self) -> dict[str, int]:
        """All counters, for JSON."""
        return asdict(self)

    def since(self, before: BlockStat) -> BlockStat:
        """This minus ``before``; ``in_flight`` stays what it is now."""
        old, new = before.as_dict(), self.as_dict()
        delta = {key: new[key] - old[key] for key in new}
        delta["in_flight"] = self.in_flight
        return BlockStat(**delta)


def block_name(path: str | Path) -> str:
    """Kernel name (``nvme0n1``) of the block device at ``path``, links resolved.

    Raises UsageError when the path is missing, a regular file, or anything but a block device.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise UsageError(f"no such device: {path} ({error.strerror})") from error
    if not stat.S_ISBLK(status.st_mode):
        kind = _kind(status.st_mode)
        raise UsageError(f"{path} is {kind}, not a block device", fix=_advice(kind))
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    link = Path("/sys/dev/block") / number
    if not link.exists():
        raise UsageError(f"no device behind {path}: the kernel knows no block device {number}")
    return link.resolve().name


def device_info(path: str | Path) -> DeviceInfo:
    """Facts about the block device at ``path``; those of the whole disk for a partition."""
    name = block_name(path)
    disk = parent_disk(name)
    disk_dir, queue = _SYS / disk, _SYS / disk / "queue"
    return DeviceInfo(
        name=name,
        path=str(path),
        model=_text(disk_dir / "device/model"),
        serial=_serial(disk_dir),
        wwid=_wwid(disk_dir),
        backing_path=_backing(disk_dir),
        size_bytes=_number(_SYS / name / "size") * SECTOR_BYTES,
        logical_block=_number(queue / "logical_block_size", 512),
        physical_block=_number(queue / "physical_block_size", 512),
        max_sectors_kb=_number(queue / "max_sectors_kb", 128),
        max_segments=_number(queue / "max_segments", 1),
        max_segment_size=_number(queue / "max_segment_size", 4096),
        nr_requests=_number(queue / "nr_requests", 128),
        scheduler=_chosen(_text(queue / "scheduler")),
        nomerges=_number(queue / "nomerges"),
        write_cache=_text(queue / "write_cache"),
        discard_max_bytes=_number(queue / "discard_max_bytes"),
        discard_granularity=_number(queue / "discard_granularity"),
        write_zeroes_max_bytes=_number(queue / "write_zeroes_max_bytes"),
        rotational=bool(_number(queue / "rotational")),
    )


def read_stat(name: str) -> BlockStat:
    """Counters of block device ``name`` since the machine started; UsageError if it is gone."""
    try:
        words = (_SYS / name / "stat").read_text().split()
    except OSError as error:
        raise UsageError(f"no counters for {name}: {error.strerror}") from error
    return BlockStat(*(int(word) for word in words[:17]))


def is_present(name: str) -> bool:
    """Whether the kernel still has a block device ``name`` with any size."""
    return _number(_SYS / name / "size") > 0


def parent_disk(name: str) -> str:
    """The whole disk that ``name`` is a partition of, or ``name`` itself."""
    if (_SYS / name / "partition").exists():
        return (_SYS / name).resolve().parent.name
    return name


def partitions(name: str) -> tuple[str, ...]:
    """Names of the partitions that the kernel sees on ``name``."""
    folder = (_SYS / name).resolve()
    return tuple(sorted(p.parent.name for p in folder.glob("*/partition")))


def _serial(disk_dir: Path) -> str | None:
    for place in ("device/serial", "serial"):
        serial = _text(disk_dir / place)
        if serial:
            return serial
    try:
        page = (disk_dir / "device/vpd_pg80").read_bytes()
    except OSError:
        return None
    return page[4:].decode("ascii", "replace").strip("\0 ") or None


def _wwid(disk_dir: Path) -> str | None:
    for place in ("wwid", "device/wwid", "dm/uuid", "md/uuid"):
        wwid = _text(disk_dir / place)
        if wwid:
            return wwid
    return None


def _backing(disk_dir: Path) -> str | None:
    path = _text(disk_dir / "loop/backing_file")
    return path.removesuffix(" (deleted)") if path else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def _number(path: Path, default: int = 0) -> int:
    text = _text(path)
    return int(text) if text is not None else default


def _chosen(schedulers: str | None) -> str | None:
    """``none [mq-deadline]`` -> ``mq-deadline``."""
    if schedulers is None:
        return None
    if "[" in schedulers:
        return schedulers.partition("[")[2].partition("]")[0]
    return schedulers


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "a regular file"
    if stat.S_ISDIR(mode):
        return "a directory"
    if stat.S_ISCHR(mode):
        return "a character device"
    return "something else"


def _advice(kind: str) -> str | None:
    if kind == "a regular file":
        return "put a loop device over it: losetup --find --show --direct-io=on FILE"
    if kind == "a character device":
        return "name the namespace's block device, such as /dev/nvme0n1"
    return None
