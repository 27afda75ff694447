"""The five columns of the seed's logger: time since start, operation, LBA, size, pages.

Seconds are written with nine decimals. A timestamp without a decimal point is read as
nanoseconds; the LBA is in 512-byte sectors, the size in bytes, pages are 4 KiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from harness.core.ops import OP_LETTERS, PAGE_BYTES, Op
from harness.trace.formats import csvtext
from harness.trace.formats.base import BadLine, Format, Reading, Writing, rows
from harness.trace.formats.lines import parse_lines
from harness.trace.formats.streams import Head, read_head

LAYOUT = "timestamp,operation,LBA,size,pages"
_HEADER = r"timestamp\s*,\s*operation\s*,\s*lba\s*,\s*size\s*,\s*pages"
_LINE = re.compile(r"(\d+(?:\.\d+)?),([RWDFZN]),(\d+),(\d+),(\d+)", re.IGNORECASE)
_OPS = {letter: code for code, letter in enumerate(OP_LETTERS)} | {
    "READ": Op.READ,
    "WRITE": Op.WRITE,
    "DISCARD": Op.DISCARD,
    "r": Op.READ,
    "w": Op.WRITE,
}


def _is_header(line: str) -> bool:
    return re.fullmatch(_HEADER, line.strip(), re.IGNORECASE) is not None


def _detect(head: Head) -> bool:
    return head.mostly(_is_line, header=_HEADER)


def _is_line(line: str) -> bool:
    """Whether the last column can be the pages that the size touches (else: Alibaba's time)."""
    match = _LINE.fullmatch(line.replace(" ", ""))
    if match is None:
        return False
    size, pages = int(match[4]), int(match[5])
    return size // PAGE_BYTES <= pages <= size // PAGE_BYTES + 2


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    lines = read_head(reading.path).lines
    data = lines[1:] if _is_header(lines[0]) else lines
    decimals = bool(data) and "." in data[0].split(",")[0]
    reading.note("timestamps read as seconds" if decimals else "timestamps read as nanoseconds")
    columns = {
        "timestamp": csvtext.SECONDS if decimals else csvtext.INT,
        "operation": csvtext.TEXT,
        "LBA": csvtext.UINT,
        "size": csvtext.UINT,
        "pages": csvtext.UINT,
    }

    def parse(block: bytes) -> pa.RecordBatch:
        batch = csvtext.parse_columns(block, columns)
        time, lba, size, pages = (batch.column(i) for i in (0, 2, 3, 4))
        if len(pages) and np.max(pages.to_numpy()) >= 2**32:
            raise BadLine("column pages: more than 32 bits")
        return rows(
            ts_ns=csvtext.nanoseconds(time) if decimals else time.to_numpy(),
            op=csvtext.decode(batch.column("operation"), _OPS, "operation"),
            lba=lba.to_numpy(),
            bytes=size.to_numpy(),
            pages=pages.to_numpy().astype(np.uint32),
        )

    return parse_lines(reading, parse, LAYOUT, header=lambda line: _is_header(line.decode()))


def _write(batches: Iterator[pa.RecordBatch], path: Path, writing: Writing) -> None:
    kinds = [pa.string(), pa.string(), pa.uint64(), pa.uint64(), pa.uint32()]
    schema = pa.schema(list(zip(LAYOUT.split(","), kinds, strict=True)))
    with csvtext.CsvOut(path, schema) as out:
        for batch in batches:
            time = csvtext.seconds_text(batch.column("ts_ns").to_numpy())
            op = batch.column("op").cast(pa.string())
            out.write([time, op, *(batch.column(name) for name in ("lba", "bytes", "pages"))])


FORMAT = Format(
    name="csv",
    title="five-column CSV",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
    write=_write,
    extensions=(".csv",),
)
