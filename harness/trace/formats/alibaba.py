"""Alibaba block traces: ``device_id,opcode,offset,length,timestamp``, bytes and microseconds."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from harness.core.ops import Op
from harness.trace.formats import csvtext
from harness.trace.formats.base import Format, Reading, rows, whole_sectors
from harness.trace.formats.lines import parse_lines
from harness.trace.formats.streams import Head
from harness.trace.formats.volumes import volume_numbers

LAYOUT = "device_id,opcode,offset,length,timestamp"
_COLUMNS = {
    "device_id": csvtext.UINT,
    "opcode": csvtext.TEXT,
    "offset": csvtext.UINT,
    "length": csvtext.UINT,
    "timestamp": csvtext.INT,
}
_OPS = {"R": Op.READ, "W": Op.WRITE}


def _detect(head: Head) -> bool:
    # The times count microseconds since 1970; their length tells them from a count of pages.
    return head.mostly_match(r"\d+,[RW],\d+,\d+,\d{15,17}", header=LAYOUT)


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    reading.epoch_clock = True

    def parse(block: bytes) -> pa.RecordBatch:
        batch = csvtext.parse_columns(block, _COLUMNS)
        volume, offset, length, time_us = csvtext.numbers(
            batch, "device_id", "offset", "length", "timestamp"
        )
        op = csvtext.decode(batch.column("opcode"), _OPS, "opcode")
        dev = volume_numbers(volume, "device_id")
        lba, size = whole_sectors(reading, offset, length)
        return rows(ts_ns=time_us * 1000, op=op, lba=lba, bytes=size, dev=dev)

    header = LAYOUT.encode()
    return parse_lines(reading, parse, LAYOUT, header=lambda line: line.lower() == header)


FORMAT = Format(
    name="alibaba",
    title="Alibaba block trace",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
)
