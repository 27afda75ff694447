"""MQSim ASCII traces: ``arrival device start_sector sectors type``; ns, and 0 is a write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from harness.core.ops import SECTOR_BYTES, Op
from harness.trace.columns import op_codes
from harness.trace.formats import csvtext
from harness.trace.formats.base import BadLine, Format, Reading, Writing, rows
from harness.trace.formats.lines import parse_lines
from harness.trace.formats.streams import Head
from harness.trace.formats.volumes import volume_numbers

LAYOUT = "arrival device start_sector sectors type"
_COLUMNS = {"arrival": csvtext.INT} | dict.fromkeys(
    ("device", "start_sector", "sectors", "type"), csvtext.UINT
)


def _detect(head: Head) -> bool:
    return head.mostly_match(r"\d+\s+\d+\s+\d+\s+\d+\s+[01]")


def _parse(block: bytes) -> pa.RecordBatch:
    batch = csvtext.parse_columns(csvtext.single_spaces(block), _COLUMNS, separator=" ")
    ts_ns, device, start, sectors, kind = csvtext.numbers(batch, *_COLUMNS)
    if len(kind) and kind.max() > 1:
        raise BadLine("type is neither 0 (write) nor 1 (read)")
    return rows(
        ts_ns=ts_ns,
        op=np.where(kind == 0, np.uint8(Op.WRITE), np.uint8(Op.READ)),
        lba=start,
        bytes=sectors * np.uint64(SECTOR_BYTES),
        dev=volume_numbers(device, "device"),
    )


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    return parse_lines(reading, _parse, LAYOUT)


def _write(batches: Iterator[pa.RecordBatch], path: Path, writing: Writing) -> None:
    schema = pa.schema([(name, pa.uint64()) for name in _COLUMNS])
    with csvtext.CsvOut(path, schema, separator=" ", header=False) as out:
        for batch in batches:
            op = op_codes(batch.column("op"))
            keep = op <= Op.WRITE
            writing.drop(keep, "requests that are neither reads nor writes left out")
            sectors = batch.column("bytes").to_numpy()[keep] // np.uint64(SECTOR_BYTES)
            columns = [batch.column(name).to_numpy()[keep] for name in ("ts_ns", "dev", "lba")]
            out.write([*columns, sectors, op[keep] == Op.READ])


FORMAT = Format(
    name="mqsim",
    title="MQSim trace",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
    write=_write,
    extensions=(".trace",),
)
