"""One pass over a trace before anything is written: does it fit, and what is in it?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.core.ops import OP_LETTERS, PAGE_BYTES, SECTOR_BYTES, Op
from harness.core.units import format_size
from harness.trace.columns import latencies, op_codes
from harness.trace.parquet import Trace

ERASING = (Op.DISCARD, Op.WRITE_ZEROES)


@dataclass(frozen=True)
class Rows:
    """Rows of a trace as arrays: time in ns, ``Op`` codes, bytes, flags, latency (-1 unknown)."""

    ts_ns: NDArray[np.int64]
    op: NDArray[np.uint8]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    flags: NDArray[np.uint16]
    latency_ns: NDArray[np.int64]
    device: NDArray[np.uint32]
    stream: NDArray[np.int64]


@dataclass(frozen=True)
class Survey:
    """What a replay will ask for. Arrays are indexed by ``Op``; sizes in bytes.

    ``left_out`` rows are not replayed: other operations, empty requests and, if so wished,
    discards. ``unit_bytes`` is a page where every request is aligned to pages, else a sector.
    """

    rows: int
    requests: NDArray[np.int64]
    bytes: NDArray[np.int64]
    largest: NDArray[np.int64]
    left_out: int
    duration_ns: int
    end_bytes: int
    unit_bytes: int
    with_latency: int
    devices: int

    @property
    def replayed(self) -> int:
        """Requests to issue in one pass."""
        return int(self.requests.sum())

    def length_ns(self, passes: int) -> int:
        """From the beginning to the last request of so many passes."""
        return (passes - 1) * self.period_ns + self.duration_ns

    @property
    def period_ns(self) -> int:
        """Length of one pass when the trace is repeated: its duration and one mean gap."""
        return self.duration_ns + self.duration_ns // max(self.rows - 1, 1)


def is_replayed(rows: Rows, discard: bool) -> NDArray[np.bool_]:
    """Which rows a replay issues."""
    keep = (rows.op <= Op.WRITE_ZEROES) & ((rows.length > 0) | (rows.op == Op.FLUSH))
    if not discard:
        keep &= (rows.op != Op.DISCARD) & (rows.op != Op.WRITE_ZEROES)
    return keep


def read_rows(trace: Trace, stream: str | None = None) -> Iterator[Rows]:
    """The trace in batches; ``stream`` names the column that tells streams apart."""
    columns = ["ts_ns", "op", "lba", "bytes", "flags", "latency_ns", "dev"]
    for batch in trace.batches([*columns, stream] if stream else columns):
        yield Rows(
            ts_ns=batch.column("ts_ns").to_numpy(),
            op=op_codes(batch.column("op")),
            offset=_signed(batch.column("lba"), SECTOR_BYTES),
            length=_signed(batch.column("bytes"), 1),
            flags=batch.column("flags").to_numpy(),
            latency_ns=latencies(batch.column("latency_ns")),
            device=batch.column("dev").to_numpy(),
            stream=_stream(batch, stream),
        )


def survey(trace: Trace, size_bytes: int, logical_block: int, *, discard: bool = True) -> Survey:
    """Look through ``trace``, to be replayed on a device of ``size_bytes``.

    Raises
    ------
    UsageError
        The first request that is not aligned or lies beyond the device, or an empty trace.
    """
    requests, moved, largest = (np.zeros(len(OP_LETTERS), np.int64) for _ in range(3))
    rows, left_out, last_ts, end, with_latency = 0, 0, 0, 0, 0
    alignment = 0
    devices: set[int] = set()
    for batch in read_rows(trace):
        keep = is_replayed(batch, discard)
        sized = keep & (batch.op != Op.FLUSH)
        _refuse_misfits(trace, batch, sized, rows, size_bytes, logical_block)
        rows += len(batch.op)
        left_out += int(np.count_nonzero(~keep))
        for op in np.unique(batch.op[keep]):
            of_op = keep & (batch.op == op)
            requests[op] += np.count_nonzero(of_op)
            moved[op] += batch.length[of_op].sum()
            largest[op] = max(largest[op], batch.length[of_op].max())
        if sized.any():
            alignment |= int(np.bitwise_or.reduce(batch.offset[sized] | batch.length[sized]))
            end = max(end, int((batch.offset[sized] + batch.length[sized]).max()))
        devices.update(np.unique(batch.device).tolist())
        with_latency += int(np.count_nonzero(batch.latency_ns >= 0))
        last_ts = int(batch.ts_ns[-1]) if len(batch.ts_ns) else last_ts
    if not requests.any():
        raise UsageError(f"{trace.path} holds nothing to replay ({rows} rows)")
    return Survey(
        rows=rows,
        requests=requests,
        bytes=moved,
        largest=largest,
        left_out=left_out,
        duration_ns=last_ts,
        end_bytes=end,
        unit_bytes=SECTOR_BYTES if alignment % PAGE_BYTES else PAGE_BYTES,
        with_latency=with_latency,
        devices=len(devices),
    )


def _refuse_misfits(
    trace: Trace,
    rows: Rows,
    sized: NDArray[np.bool_],
    first_row: int,
    size_bytes: int,
    logical_block: int,
) -> None:
    unaligned = sized & (((rows.offset | rows.length) % logical_block) != 0)
    beyond = sized & (
        (rows.offset < 0) | (rows.offset > size_bytes - rows.length) | (rows.length < 0)
    )
    if not (unaligned | beyond).any():
        return
    row = int(np.flatnonzero(unaligned | beyond)[0])
    what = (
        f"{trace.path}: row {first_row + row} ({OP_LETTERS[rows.op[row]]}, "
        f"LBA {rows.offset[row] // SECTOR_BYTES}, {rows.length[row]} bytes)"
    )
    fix = f"fit it to the device: harness trace scale {trace.path} OUT.parquet --size {size_bytes}"
    if beyond[row]:
        raise UsageError(f"{what} lies beyond the device of {format_size(size_bytes)}", fix=fix)
    raise UsageError(
        f"{what} is not aligned to the logical block of {logical_block} bytes", fix=fix
    )


def _signed(column: pa.Array, factor: int) -> NDArray[np.int64]:
    """An unsigned column times ``factor``; what exceeds int64 becomes the largest int64."""
    values = column.to_numpy(zero_copy_only=False).astype(np.uint64)
    limit = np.uint64(np.iinfo(np.int64).max // factor)
    return np.asarray(np.minimum(values, limit).astype(np.int64) * factor, dtype=np.int64)


def _stream(batch: pa.RecordBatch, name: str | None) -> NDArray[np.int64]:
    """Stream keys, -1 where the column is null or there is none."""
    if name is None:
        return np.full(batch.num_rows, -1, np.int64)
    column = batch.column(name).cast(pa.int64()).fill_null(-1)
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)
