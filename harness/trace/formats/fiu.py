"""FIU traces (SNIA 411): ``ts pid process lba size op major minor md5``; ns and sectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from harness.core.ops import SECTOR_BYTES, Op
from harness.trace.formats import csvtext
from harness.trace.formats.base import BadLine, Format, Reading, rows
from harness.trace.formats.lines import parse_lines
from harness.trace.formats.streams import Head

LAYOUT = "ts pid process lba size op major minor md5"
_COLUMNS = {
    "ts": csvtext.INT,
    "pid": pa.int32(),
    "process": csvtext.TEXT,
    "lba": csvtext.UINT,
    "size": csvtext.UINT,
    "op": csvtext.TEXT,
    "major": csvtext.UINT,
    "minor": csvtext.UINT,
    "md5": pa.string(),
}
_OPS = {"R": Op.READ, "W": Op.WRITE}
_MAX_MAJOR, _MAX_MINOR = 1 << 12, 1 << 20


def _detect(head: Head) -> bool:
    return head.mostly_match(r"\d+\s+\d+\s+\S+\s+\d+\s+\d+\s+[RW]\s+\d+\s+\d+\s+\S+")


def _parse(block: bytes) -> pa.RecordBatch:
    batch = csvtext.parse_columns(csvtext.single_spaces(block), _COLUMNS, separator=" ")
    names = ("ts", "pid", "lba", "size", "major", "minor")
    ts_ns, pid, lba, size, major, minor = csvtext.numbers(batch, *names)
    if np.any(major >= _MAX_MAJOR) or np.any(minor >= _MAX_MINOR):
        raise BadLine("major or minor number out of range")
    return rows(
        ts_ns=ts_ns,
        op=csvtext.decode(batch.column("op"), _OPS, "op"),
        lba=lba,
        bytes=size * np.uint64(SECTOR_BYTES),
        dev=(major << np.uint64(20) | minor).astype(np.uint32),
        pid=pid,
        comm=batch.column("process"),
    )


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    return parse_lines(reading, _parse, LAYOUT)


FORMAT = Format(
    name="fiu",
    title="FIU trace",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
)
