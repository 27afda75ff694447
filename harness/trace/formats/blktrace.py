"""blktrace binary files: ``DEV.blktrace.CPU``, all CPUs of a device merged by time.

Records of 48 bytes in the writer's byte order, told by the magic, each followed by ``pdu_len``
bytes. Notify records name the processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.core.errors import UsageError
from harness.core.ops import Op
from harness.trace.formats.base import COMPLETION, ISSUE, Format, Reading, rows
from harness.trace.formats.flags import without_carriers
from harness.trace.formats.streams import Head, byte_blocks
from harness.trace.jit import kernel
from harness.trace.merging import merge_streams
from harness.trace.schema import FLAG_FUA, FLAG_META, FLAG_PREFLUSH, FLAG_READAHEAD, FLAG_SYNC

LAYOUT = "48-byte blk_io_trace records, version 7"
_MAGIC = 0x65617400
_MAGIC_MASK = np.uint32(0xFFFFFF00)
_VERSION = 7
_HEADER = 48
_QUEUE, _ISSUED, _COMPLETED = 1, 7, 8
_CATEGORY = {"read": 0, "write": 1, "flush": 2, "notify": 10, "discard": 13}
_FLAG_BITS = {3: FLAG_SYNC, 11: FLAG_READAHEAD, 12: FLAG_META, 15: FLAG_FUA}
_NOTIFY_PROCESS = 0

_FIELDS = [
    ("magic", "u4"),
    ("sequence", "u4"),
    ("time", "u8"),
    ("sector", "u8"),
    ("bytes", "u4"),
    ("action", "u4"),
    ("pid", "u4"),
    ("device", "u4"),
    ("cpu", "u4"),
    ("error", "u2"),
    ("pdu_len", "u2"),
]


def _dtype(order: str) -> np.dtype[np.void]:
    return np.dtype([(name, order + kind) for name, kind in _FIELDS])


def _order(data: bytes) -> str | None:
    for order, name in (("<", "little"), (">", "big")):
        magic = int.from_bytes(data[:4], name)  # type: ignore[arg-type]
        if magic == _MAGIC | _VERSION:
            return order
    return None


def _detect(head: Head) -> bool:
    return _order(head.data) is not None


def cpu_files(path: Path) -> list[Path]:
    """All per-CPU files of the recording that ``path`` belongs to, by CPU."""
    match = re.fullmatch(r"(.+\.blktrace\.)\d+", path.name)
    if match is None:
        return [path]
    found = [entry for entry in path.parent.glob(f"{match[1]}*") if entry.name[len(match[1]) :]]
    numbered = [entry for entry in found if entry.name[len(match[1]) :].isdigit()]
    return sorted(numbered, key=lambda entry: int(entry.name[len(match[1]) :]))


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    files = [file for file in cpu_files(reading.path) if file.stat().st_size > 0]
    if len(files) > 1:
        reading.note(f"merged {len(files)} per-CPU files")
    actions: set[int] = set()
    for file in files:
        records, _ = next(_records(file, Reading(file)))
        actions |= set(np.unique(records["action"] & 0xFF).tolist())
    issue = _ISSUED if _ISSUED in actions else _QUEUE
    if issue == _QUEUE:
        reading.note("no D events: requests are as queued (Q), before merging")
    names: dict[int, str] = {}
    yield from merge_streams([_events(file, reading, issue, names) for file in files])


def _events(
    file: Path, reading: Reading, issue: int, names: dict[int, str]
) -> Iterator[pa.RecordBatch]:
    """Issue and completion events of one file; ``names`` (pid to process) grows on the way."""
    for records, processes in _records(file, reading):
        names.update(processes)
        kind = records["action"] & 0xFF
        category = records["action"] >> 16
        wanted = (kind == issue) | (kind == _COMPLETED)
        wanted &= category & (1 << _CATEGORY["notify"]) == 0
        chosen, kind, category = records[wanted], kind[wanted], category[wanted]
        op, flags = _decode(category, chosen["bytes"])
        error = -np.abs(chosen["error"].astype(np.uint16).view(np.int16).astype(np.int32))
        yield rows(
            ts_ns=chosen["time"].astype(np.int64),
            op=op,
            lba=chosen["sector"].astype(np.uint64),
            bytes=chosen["bytes"].astype(np.uint64),
            flags=flags,
            dev=chosen["device"].astype(np.uint32),
            pid=chosen["pid"].astype(np.int32),
            comm=_comm(chosen["pid"], names),
            error=np.where(kind == _COMPLETED, error, 0),
            event=np.where(kind == _COMPLETED, COMPLETION, ISSUE),
        )


def _decode(
    category: npt.NDArray[Any], size: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint16]]:
    bit = {name: category & (1 << position) != 0 for name, position in _CATEGORY.items()}
    op = np.full(len(category), Op.OTHER, np.uint8)
    op[bit["read"]] = Op.READ
    op[bit["write"]] = Op.WRITE
    op[bit["discard"]] = Op.DISCARD
    flags = np.where(bit["flush"], FLAG_PREFLUSH, 0).astype(np.uint16)
    for position, flag in _FLAG_BITS.items():
        flags |= np.where(category & (1 << position) != 0, flag, 0).astype(np.uint16)
    return without_carriers(op, flags, size), flags


def _comm(pids: npt.NDArray[Any], names: dict[int, str]) -> pa.DictionaryArray:
    distinct, index = np.unique(pids, return_inverse=True)
    texts = pa.array([names.get(int(pid)) for pid in distinct], pa.string())
    return texts.take(pa.array(index)).dictionary_encode()


def _records(file: Path, reading: Reading) -> Iterator[tuple[npt.NDArray[np.void], dict[int, str]]]:
    """The records of ``file`` in blocks, with the process names noted in each block."""
    rest, order, at_byte = b"", None, 0
    for block in byte_blocks(file, reading.progress):
        data = rest + block
        order = order or _order(data)
        if order is None:
            raise UsageError(f"{file} is not a blktrace file of version {_VERSION}")
        raw = np.frombuffer(data, np.uint8)
        starts = np.zeros(len(raw) // _HEADER, np.int64)
        count, end, bad = _walk(raw, order == ">", starts)
        if bad:
            raise UsageError(f"{file}: no record magic at byte {at_byte + end}: damaged file")
        starts = starts[:count]
        window = (
            np.lib.stride_tricks.sliding_window_view(raw, _HEADER)[starts] if count else raw[:0]
        )
        records = np.ascontiguousarray(window).reshape(-1).view(_dtype(order))
        yield records, _processes(data, records, starts, order)
        rest, at_byte = data[end:], at_byte + end
    if rest:
        raise UsageError(f"{file}: ends inside a record at byte {at_byte}: truncated")


def _processes(
    data: bytes, records: npt.NDArray[np.void], starts: npt.NDArray[np.int64], order: str
) -> dict[int, str]:
    notify = records["action"] >> 16 & (1 << _CATEGORY["notify"]) != 0
    notify &= records["action"] & 0xFFFF == _NOTIFY_PROCESS
    names = {}
    for row in np.flatnonzero(notify):
        begin = int(starts[row]) + _HEADER
        pdu = data[begin : begin + int(records["pdu_len"][row])]
        names[int(records["pid"][row])] = pdu.split(b"\0")[0].decode("utf-8", errors="replace")
    return names


@kernel
def _walk(raw: Any, swapped: bool, starts: Any) -> tuple[int, Any, bool]:
    """Fill ``starts`` with the whole records; returns (count, end of the last, bad magic)."""
    at, count = np.int64(0), 0
    while at + _HEADER <= len(raw):
        last = 3 if swapped else 0  # position of the version byte within the magic
        if raw[at + last] != _VERSION or raw[at + 3 - last] != 0x65:
            return count, at, True
        low, high = (raw[at + 47], raw[at + 46]) if swapped else (raw[at + 46], raw[at + 47])
        length = _HEADER + np.int64(low) + 256 * np.int64(high)
        if at + length > len(raw):
            break
        starts[count] = at
        count += 1
        at += length
    return count, at, False


FORMAT = Format(
    name="blktrace",
    title="blktrace binary",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
    events=True,
)
