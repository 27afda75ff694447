"""The CSV twin of CloudPhysics' vscsi traces: ``version,time,op,size,lbn``.

``op`` is the SCSI command in hexadecimal without a prefix, ``time`` is cut to whole seconds,
``size`` counts bytes and ``lbn`` 512-byte sectors.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from harness.trace.formats import csvtext
from harness.trace.formats.base import Format, Reading, rows
from harness.trace.formats.lines import parse_lines
from harness.trace.formats.streams import Head
from harness.trace.formats.vscsi import COMMANDS, operations

LAYOUT = "version,time,op,size,lbn"
_COLUMNS = {
    "version": csvtext.UINT,
    "time": csvtext.SECONDS,
    "op": csvtext.TEXT,
    "size": csvtext.UINT,
    "lbn": csvtext.UINT,
}
_CODES = {text: code for code in range(256) for text in (f"{code:x}", f"{code:02x}")}
_KNOWN = "|".join(f"{command:02x}" for command in COMMANDS)


def _detect(head: Head) -> bool:
    return head.mostly_match(rf"\d{{1,3}},\d+(\.\d+)?,0?({_KNOWN}),\d+,\d+", header=LAYOUT)


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    reading.note("times are whole seconds")

    def parse(block: bytes) -> pa.RecordBatch:
        batch = csvtext.parse_columns(block.lower(), _COLUMNS)
        size, lbn = csvtext.numbers(batch, "size", "lbn")
        op = operations(csvtext.decode(batch.column("op"), _CODES, "op"))
        return rows(ts_ns=csvtext.nanoseconds(batch.column("time")), op=op, lba=lbn, bytes=size)

    header = LAYOUT.encode()
    return parse_lines(reading, parse, LAYOUT, header=lambda line: line.lower() == header)


FORMAT = Format(
    name="cloudphysics",
    title="CloudPhysics vscsi as CSV",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
)
