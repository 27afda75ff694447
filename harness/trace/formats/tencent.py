"""Tencent CBS (SNIA): ``Timestamp,Offset,Size,IOType,VolumeID``; seconds, sectors, 0 = read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from harness.core.ops import SECTOR_BYTES
from harness.trace.formats import csvtext
from harness.trace.formats.base import BadLine, Format, Reading, rows
from harness.trace.formats.lines import parse_lines
from harness.trace.formats.streams import Head
from harness.trace.formats.volumes import volume_numbers

LAYOUT = "Timestamp,Offset,Size,IOType,VolumeID"
_COLUMNS = {
    "Timestamp": csvtext.SECONDS,
    "Offset": csvtext.UINT,
    "Size": csvtext.UINT,
    "IOType": csvtext.UINT,
    "VolumeID": csvtext.UINT,
}


def _detect(head: Head) -> bool:
    return head.mostly_match(r"\d{9,11}(\.\d+)?,\d+,\d+,[01],\d+", header=LAYOUT)


def _parse(block: bytes) -> pa.RecordBatch:
    batch = csvtext.parse_columns(block, _COLUMNS)
    offset, size, kind, volume = csvtext.numbers(batch, "Offset", "Size", "IOType", "VolumeID")
    if len(kind) and kind.max() > 1:
        raise BadLine("IOType is neither 0 (read) nor 1 (write)")
    return rows(
        ts_ns=csvtext.nanoseconds(batch.column("Timestamp")),
        op=kind,
        lba=offset,
        bytes=size * np.uint64(SECTOR_BYTES),
        dev=volume_numbers(volume, "VolumeID"),
    )


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    reading.epoch_clock = True
    header = LAYOUT.encode().lower()
    return parse_lines(reading, _parse, LAYOUT, header=lambda line: line.lower() == header)


FORMAT = Format(
    name="tencent",
    title="Tencent CBS trace",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
)
