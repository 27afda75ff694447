"""fio I/O logs: version 2 and 3 are read, version 3 is written.

Version 3 lines are ``timestamp file action [offset length]`` with microseconds since the start.
Version 2 has no timestamp; its ``wait`` lines carry time. fio treats their offset as absolute
milliseconds since the start (its manual says relative microseconds), and so do we.

fio reads a first timestamp of 0 as "no previous time" and drops the first gap, so the first
written timestamp is 1000.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.core.ops import SECTOR_BYTES, Op
from harness.trace.columns import op_codes
from harness.trace.formats import csvtext
from harness.trace.formats.base import Format, Reading, Writing, check_extents, rows, whole_sectors
from harness.trace.formats.lines import parse_lines
from harness.trace.formats.streams import Head, read_head

FIRST_US = 1000
_MAX_LENGTH = np.uint64(1 << 31)
"""fio holds a length in 32 bits; longer requests (discards) are written in pieces."""

LAYOUT_2 = "<file> <read|write|sync|datasync|trim|wait> <offset> <length>"
LAYOUT_3 = "<timestamp_us> <file> <read|write|sync|datasync|trim> <offset> <length>"
_MAGIC = re.compile(r"fio version ([23]) iolog")
_WAIT = 100
_ACTIONS = {
    "read": Op.READ,
    "write": Op.WRITE,
    "sync": Op.FLUSH,
    "datasync": Op.FLUSH,
    "trim": Op.DISCARD,
    "wait": _WAIT,
}
_FILE_ACTIONS = (b" add\n", b" open\n", b" close\n", b" unlink\n")
_WRITTEN = pa.array(["read", "write", "trim", "sync"])
"""Indexed by ``Op``."""


def _detect(head: Head) -> bool:
    return bool(head.lines) and _is_magic(head.lines[0].encode())


def _is_magic(line: bytes) -> bool:
    return _MAGIC.fullmatch(line.decode("utf-8", errors="replace").strip()) is not None


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    first = read_head(reading.path).lines[0]
    timed = "version 2" not in first
    layout = LAYOUT_3 if timed else LAYOUT_2
    clock = _Waits()
    files = _Files(reading)
    for batch, act in parse_lines(reading, _parser(timed), layout, header=_is_magic):
        offset, length = csvtext.numbers(batch, "offset", "length")
        if timed:
            ts_ns = batch.column("timestamp").to_numpy() * 1000
        else:
            ts_ns = clock.times(act == _WAIT, offset)
        keep = act != _WAIT
        lba, size = whole_sectors(reading, offset[keep], length[keep])
        dev = files.devices(batch.column("file"))[keep]
        yield rows(ts_ns=ts_ns[keep], op=act[keep], lba=lba, bytes=size, dev=dev)


def _parser(timed: bool) -> Callable[[bytes], tuple[pa.RecordBatch, npt.NDArray[Any]]]:
    columns: dict[str, pa.DataType] = {"timestamp": csvtext.INT} if timed else {}
    columns |= {"file": csvtext.TEXT, "act": csvtext.TEXT}
    columns |= {"offset": csvtext.UINT, "length": csvtext.UINT}

    def parse(block: bytes) -> tuple[pa.RecordBatch, npt.NDArray[Any]]:
        block = csvtext.single_spaces(block)
        batch = csvtext.parse_columns(_without_file_actions(block), columns, separator=" ")
        offset, length = csvtext.numbers(batch, "offset", "length")
        check_extents(offset // np.uint64(SECTOR_BYTES), length)
        return batch, csvtext.decode(batch.column("act"), _ACTIONS, "action")

    return parse


def _without_file_actions(block: bytes) -> bytes:
    """``block`` with add, open, close and unlink lines blanked: they are no requests."""
    spans = []
    for action in _FILE_ACTIONS:
        at = block.find(action)
        while at >= 0:
            end = at + len(action) - 1
            spans.append((block.rfind(b"\n", 0, at) + 1, end))
            at = block.find(action, end)
    kept, done = [], 0
    for start, end in sorted(spans):
        kept.append(block[done:start])
        done = end
    return b"".join([*kept, block[done:]])


class _Waits:
    """The clock of a version 2 log: the latest ``wait``, in ms since the start."""

    def __init__(self) -> None:
        self._now_ns = 0

    def times(
        self, is_wait: npt.NDArray[np.bool_], offset: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.int64]:
        waits = np.where(is_wait, offset.astype(np.int64) * 1_000_000, 0)
        times = np.maximum(np.maximum.accumulate(waits), self._now_ns)
        if len(times):
            self._now_ns = int(times[-1])
        return times


class _Files:
    """File names of a log, numbered in order of appearance; the number is the device."""

    def __init__(self, reading: Reading) -> None:
        self._numbers: dict[str, int] = {}
        self._reading = reading

    def devices(self, column: pa.DictionaryArray) -> npt.NDArray[np.uint32]:
        names = column.dictionary.to_pylist()
        for name in names:
            self._numbers.setdefault(name, len(self._numbers))
        if len(self._numbers) > 1:
            listed = ", ".join(f"{number} {name}" for name, number in self._numbers.items())
            self._reading.notes[:] = [f"dev numbers the files of the log: {listed}"]
        numbers = np.array([self._numbers[name] for name in names], np.uint32)
        return numbers[column.indices.to_numpy()]


def _write(batches: Iterator[pa.RecordBatch], path: Path, writing: Writing) -> None:
    kinds = [pa.int64(), pa.string(), pa.string(), pa.uint64(), pa.uint64()]
    schema = pa.schema(list(zip(("time", "file", "act", "offset", "length"), kinds, strict=True)))
    devices: list[int] = []
    last_us = FIRST_US
    with csvtext.CsvOut(path, schema, separator=" ", header=False) as out:
        out.line("fio version 3 iolog")
        for batch in batches:
            time_us = batch.column("ts_ns").to_numpy() // 1000 + FIRST_US
            dev = batch.column("dev").to_numpy()
            for new in sorted(set(np.unique(dev).tolist()) - set(devices)):
                devices.append(new)
                for action in ("add", "open"):
                    out.line(f"{time_us[0]} {file_name(new)} {action}")
            out.write(_lines(batch, time_us, dev, writing))
            last_us = int(time_us[-1])
        for known in devices:
            out.line(f"{last_us} {file_name(known)} close")


def file_name(dev: int) -> str:
    """File name of a device in a written log; ``fio --replay_redirect`` names the real one."""
    return f"dev-{dev >> 20}-{dev & 0xFFFFF}"


def _lines(
    batch: pa.RecordBatch, time_us: npt.NDArray[np.int64], dev: Any, writing: Writing
) -> list[Any]:
    op = op_codes(batch.column("op"))
    keep = op <= Op.FLUSH
    writing.drop(keep, "write-zeroes and other requests left out of the fio log")
    length = np.where(op == Op.FLUSH, np.uint64(0), batch.column("bytes").to_numpy())[keep]
    offset = np.where(op == Op.FLUSH, np.uint64(0), batch.column("lba").to_numpy())[keep]
    pieces = np.maximum((length + _MAX_LENGTH - np.uint64(1)) // _MAX_LENGTH, np.uint64(1))
    row = np.repeat(np.arange(len(length)), pieces.astype(np.int64))
    nth = np.arange(len(row)) - np.searchsorted(row, row)
    skipped = nth.astype(np.uint64) * _MAX_LENGTH
    start = offset[row] * np.uint64(SECTOR_BYTES) + skipped
    names, index = np.unique(dev[keep][row], return_inverse=True)
    files = pa.array([file_name(int(name)) for name in names], pa.string()).take(pa.array(index))
    size = np.minimum(length[row] - skipped, _MAX_LENGTH)
    return [time_us[keep][row], files, _WRITTEN.take(pa.array(op[keep][row])), start, size]


FORMAT = Format(
    name="fio",
    title="fio iolog",
    layout=LAYOUT_3,
    detect=_detect,
    read=_read,
    write=_write,
    extensions=(".iolog",),
)
