"""Op lists: ``offset,length,op`` in bytes, op in W R D SNAP; an order without a clock.

A SNAP row asks a flash model to record its counters, its offset being a tag. Traces cannot
hold it; ``read_oplist`` can.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from harness.trace.formats.streams import Head

LAYOUT = "offset,length,op"
_COLUMNS = {"offset": csvtext.UINT, "length": csvtext.UINT, "op": csvtext.TEXT}
_OPS = {"W": Op.WRITE, "R": Op.READ, "D": Op.DISCARD, "SNAP": Op.SNAP}
_TEXT = pa.array(["R", "W", "D"])

Extents = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.uint8]]


def read_oplist(path: str | Path, *, skip_bad: int = 0) -> Iterator[Extents]:
    """Batches (offset uint64 in bytes, length uint64 in bytes, op uint8 ``Op`` codes) in order.

    SNAP rows are kept (``Op.SNAP``, offset is the tag). UsageError for a malformed line.
    """
    return _extents(Reading(Path(path), skip_bad=skip_bad))


def _extents(reading: Reading) -> Iterator[Extents]:
    def parse(block: bytes) -> Extents:
        batch = csvtext.parse_columns(block, _COLUMNS)
        offset, length = csvtext.numbers(batch, "offset", "length")
        check_extents(offset // np.uint64(SECTOR_BYTES), length)
        op = csvtext.decode(batch.column("op"), _OPS, "op").astype(np.uint8)
        return offset, length, op

    header = LAYOUT.encode()
    return parse_lines(reading, parse, LAYOUT, header=lambda line: line.lower() == header)


def _detect(head: Head) -> bool:
    return head.mostly_match(r"\d+\s*,\s*\d+\s*,\s*(W|R|D|SNAP)", header=r"offset,length,op")


def _read(reading: Reading) -> Iterator[pa.RecordBatch]:
    done = 0
    for offset, length, op in _extents(reading):
        keep = op != Op.SNAP
        reading.counts["SNAP rows left out"] += int(np.count_nonzero(~keep))
        lba, size = whole_sectors(reading, offset[keep], length[keep])
        order: npt.NDArray[Any] = np.arange(done, done + len(lba), dtype=np.int64)
        done += len(lba)
        yield rows(ts_ns=order, op=op[keep], lba=lba, bytes=size)


def _write(batches: Iterator[pa.RecordBatch], path: Path, writing: Writing) -> None:
    schema = pa.schema([("offset", pa.uint64()), ("length", pa.uint64()), ("op", pa.string())])
    with csvtext.CsvOut(path, schema) as out:
        for batch in batches:
            op = op_codes(batch.column("op"))
            keep = op <= Op.DISCARD
            writing.drop(keep, "flushes, write-zeroes and other requests left out of the op list")
            offset = batch.column("lba").to_numpy()[keep] * np.uint64(SECTOR_BYTES)
            out.write([offset, batch.column("bytes").to_numpy()[keep], _TEXT.take(op[keep])])


FORMAT = Format(
    name="oplist",
    title="op list",
    layout=LAYOUT,
    detect=_detect,
    read=_read,
    write=_write,
    extensions=(".oplist", ".ops"),
    has_clock=False,
)
