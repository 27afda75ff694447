"""Issues and completions as this project's bpftrace script prints them.

``ts_ns,event,rwbs,sector,bytes``: monotonic ns, event I (issue) or C (completion), the kernel's
flag string, 512-byte sectors. Rows of different CPUs are not in time order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from harness.trace.formats import csvtext
from harness.trace.formats.base import COMPLETION, ISSUE, Format, Reading, rows
from harness.trace.formats.flags import decode_rwbs
from harness.trace.formats.lines import parse_lines
from harness.trace.formats.streams import Head

LAYOUT = "ts_ns,event,rwbs,sector,bytes"
_COLUMNS = {
    "ts_ns": csvtext.INT,
    "event": csvtext.TEXT,
    "rwbs": csvtext.TEXT,
    "sector": csvtext.UINT,
    "bytes": csvtext.UINT,
}
_EVENTS = {"I": ISSUE, "C": COMPLETION}


def banner(columns: str) -> re.Pattern[str]:
    """What bpftrace says when it begins, or the names of the columns if a script prints them."""
    return re.compile(rf"Attaching \d+ probes?\.*|{columns}", re.IGNORECASE)


def is_header(pattern: re.Pattern[str]) -> Callable[[bytes], bool]:
    """Whether a line is a ``banner``."""
    return lambda line: pattern.fullmatch(line.decode("utf-8", "replace").strip()) is not None


_HEADER = banner(LAYOUT)


def _detect(head: Head) -> bool:
    line = r"\d+\s*,\s*[IC]\s*,\s*[A-Z]+\s*,\s*\d+\s*,\s*\d+"
    return head.mostly_match(line, header=_HEADER.pattern)


def _parse(block: bytes) -> pa.RecordBatch:
    batch = csvtext.parse_columns(block, _COLUMNS)
    ts_ns, sector, size = csvtext.numbers(batch, "ts_ns", "sector", "bytes")
    op, flags = decode_rwbs(batch.column("rwbs"), size)
    return rows(
        ts_ns=ts_ns,
        op=op,
        lba=sector,
        bytes=size,
        flags=flags,
        event=csvtext.decode(batch.column("event"), _EVENTS, "event").astype(np.uint8),
    )


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    return parse_lines(reading, _parse, LAYOUT, header=is_header(_HEADER))


FORMAT = Format(
    name="bpftrace",
    title="bpftrace CSV of issues and completions",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
    events=True,
)
