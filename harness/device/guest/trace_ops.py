"""A block trace as the op list a guest is sent: in order, long requests split as commands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.core.errors import UsageError
from harness.core.ops import SECTOR_BYTES, Op
from harness.core.units import format_size
from harness.device.femu import MAX_COMMAND_BYTES
from harness.device.guest.ops import OP_LIST_DTYPE
from harness.trace.columns import op_codes
from harness.trace.parquet import Trace

_MOVING = (Op.READ, Op.WRITE)


@dataclass(frozen=True)
class TraceOps:
    """``ops`` (OP_LIST_DTYPE) of a trace, and what became of its requests."""

    ops: np.ndarray
    requests: int
    split_requests: int
    left_out: dict[str, int]
    """Requests by operation that no op list has: flushes and such."""


def trace_ops(trace: Trace, size_bytes: int, *, discard: bool = True) -> TraceOps:
    """The reads, writes and discards of ``trace`` for a drive of ``size_bytes``.

    Write-zeroes become writes: FEMU's flash is not told of them otherwise.

    Raises
    ------
    UsageError
        A request lies outside the drive, or is no whole number of sectors.
    """
    parts, row, split = [], 0, 0
    left_out: dict[str, int] = {}
    for batch in trace.batches(columns=["op", "lba", "bytes"]):
        codes = op_codes(batch.column("op"))
        offset = np.asarray(batch.column("lba"), np.uint64) * np.uint64(SECTOR_BYTES)
        length = np.asarray(batch.column("bytes"), np.uint64)
        codes = np.where(codes == Op.WRITE_ZEROES, np.uint8(Op.WRITE), codes)
        wanted = np.isin(codes, _MOVING) | ((codes == Op.DISCARD) & discard)
        wanted &= length > 0
        _refuse_outside(trace, row, offset, length, wanted, size_bytes)
        for code in np.unique(codes[~wanted]).tolist():
            name = Op(code).name.lower()
            left_out[name] = left_out.get(name, 0) + int((codes[~wanted] == code).sum())
        piece, more = _split(offset[wanted], length[wanted], codes[wanted])
        parts.append(piece)
        split += more
        row += len(codes)
    ops = np.concatenate(parts) if parts else np.empty(0, OP_LIST_DTYPE)
    return TraceOps(ops, row, split, left_out)


def _split(offset: np.ndarray, length: np.ndarray, op: np.ndarray) -> tuple[np.ndarray, int]:
    """One row a command; reads and writes longer than a command may be become several."""
    limit = np.uint64(MAX_COMMAND_BYTES)
    pieces = np.where(np.isin(op, _MOVING), -(-length.astype(np.int64) // MAX_COMMAND_BYTES), 1)
    rows = np.repeat(np.arange(len(op)), pieces)
    first = np.cumsum(pieces) - pieces
    number = (np.arange(len(rows)) - first[rows]).astype(np.uint64)
    ops = np.empty(len(rows), OP_LIST_DTYPE)
    ops["op"] = op[rows]
    ops["offset"] = offset[rows] + number * limit
    whole = length[rows] - number * limit
    ops["length"] = np.where(pieces[rows] > 1, np.minimum(whole, limit), whole)
    return ops, int((pieces > 1).sum())


def _refuse_outside(
    trace: Trace,
    row: int,
    offset: np.ndarray,
    length: np.ndarray,
    wanted: np.ndarray,
    size_bytes: int,
) -> None:
    odd = wanted & (length % np.uint64(SECTOR_BYTES) != 0)
    beyond = wanted & (offset + length > np.uint64(size_bytes))
    if odd.any():
        at = int(np.argmax(odd))
        raise UsageError(f"{trace.path}: row {row + at}: {length[at]} bytes are no whole sectors")
    if beyond.any():
        at = int(np.argmax(beyond))
        end = int(offset[at] + length[at])
        raise UsageError(
            f"{trace.path}: row {row + at} ends at byte {end} ({format_size(end)}), the drive has"
            f" {size_bytes} ({format_size(size_bytes)})",
            fix="take a larger --scale, or emit the store again for a drive of this size",
        )
