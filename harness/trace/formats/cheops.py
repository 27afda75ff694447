"""The bpftrace output of CHEOPS'25: ``nsecs, rwbs, bytes, sector, nr_sector`` at issue."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from harness.core.ops import SECTOR_BYTES
from harness.trace.formats import csvtext
from harness.trace.formats.base import BadLine, Format, Reading, rows
from harness.trace.formats.bpftrace import banner, is_header
from harness.trace.formats.flags import decode_rwbs
from harness.trace.formats.lines import parse_lines
from harness.trace.formats.streams import Head

LAYOUT = "nsecs, rwbs, bytes, sector, nr_sector"
_COLUMNS = {
    "nsecs": csvtext.INT,
    "rwbs": csvtext.TEXT,
    "bytes": csvtext.UINT,
    "sector": csvtext.UINT,
    "nr_sector": csvtext.UINT,
}
_LINE = re.compile(r"\d+\s*,\s*[A-Z]+\s*,\s*(\d+)\s*,\s*\d+\s*,\s*(\d+)")
_HEADER = banner(r"nsecs\s*,\s*rwbs\s*,\s*bytes\s*,\s*sector\s*,\s*nr_sector")


def _detect(head: Head) -> bool:
    return head.mostly(_is_line, header=_HEADER.pattern)


def _is_line(line: str) -> bool:
    match = _LINE.fullmatch(line)
    return match is not None and int(match[1]) == int(match[2]) * SECTOR_BYTES


def _parse(block: bytes) -> pa.RecordBatch:
    batch = csvtext.parse_columns(block, _COLUMNS)
    ts_ns, size, sector, count = csvtext.numbers(batch, "nsecs", "bytes", "sector", "nr_sector")
    if np.any(size != count * np.uint64(SECTOR_BYTES)):
        raise BadLine("bytes and nr_sector disagree")
    op, flags = decode_rwbs(batch.column("rwbs"), size)
    return rows(ts_ns=ts_ns, op=op, lba=sector, bytes=size, flags=flags)


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    return parse_lines(reading, _parse, LAYOUT, header=is_header(_HEADER))


FORMAT = Format(
    name="cheops",
    title="CHEOPS bpftrace CSV",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
)
