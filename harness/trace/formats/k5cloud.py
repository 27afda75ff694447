"""K5cloud (Fujitsu, SNIA 26930): ``ID,Timestamp,Type,Offset,Length``; relative seconds, bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from harness.core.ops import Op
from harness.trace.formats import csvtext
from harness.trace.formats.base import Format, Reading, rows, whole_sectors
from harness.trace.formats.lines import parse_lines
from harness.trace.formats.streams import Head
from harness.trace.formats.volumes import volume_numbers

LAYOUT = "ID,Timestamp,Type,Offset,Length"
_COLUMNS = {
    "ID": csvtext.UINT,
    "Timestamp": csvtext.SECONDS,
    "Type": csvtext.TEXT,
    "Offset": csvtext.UINT,
    "Length": csvtext.UINT,
}
_OPS = {"R": Op.READ, "W": Op.WRITE}


def _detect(head: Head) -> bool:
    return head.mostly_match(r"\d+,\d+(\.\d+)?,[RW],\d+,\d+", header=LAYOUT)


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    def parse(block: bytes) -> pa.RecordBatch:
        batch = csvtext.parse_columns(block, _COLUMNS)
        volume, offset, length = csvtext.numbers(batch, "ID", "Offset", "Length")
        op = csvtext.decode(batch.column("Type"), _OPS, "Type")
        dev = volume_numbers(volume, "ID")
        ts_ns = csvtext.nanoseconds(batch.column("Timestamp"))
        lba, size = whole_sectors(reading, offset, length)
        return rows(ts_ns=ts_ns, op=op, lba=lba, bytes=size, dev=dev)

    header = LAYOUT.encode().lower()
    return parse_lines(reading, parse, LAYOUT, header=lambda line: line.lower() == header)


FORMAT = Format(
    name="k5cloud",
    title="K5cloud trace",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
)
