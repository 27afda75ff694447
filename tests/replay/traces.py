"""Small traces for the tests of this part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from harness.core.ops import Op
from harness.trace.parquet import TraceWriter
from harness.trace.schema import NO_CLOCK_NOTE, TraceMeta

MIB = 1 << 20


def write_trace(
    path: Path,
    *,
    ts_ns: ArrayLike,
    op: ArrayLike,
    offset: ArrayLike,
    length: ArrayLike,
    clock: bool = True,
    clock_zero_ns: int | None = None,
    **columns: Any,
) -> Path:
    """A trace of the given requests (offsets and lengths in bytes)."""
    count = len(np.atleast_1d(ts_ns))
    notes = [] if clock else [NO_CLOCK_NOTE]
    meta = TraceMeta(source="test", notes=notes, clock_zero_ns=clock_zero_ns)
    optional = tuple(name for name in columns if name in ("session", "turn"))
    arrays = {
        "ts_ns": np.asarray(ts_ns, np.int64),
        "op": np.broadcast_to(np.asarray(op, np.uint8), count),
        "lba": (np.broadcast_to(np.asarray(offset, np.int64), count) // 512).astype(np.uint64),
        "bytes": np.broadcast_to(np.asarray(length, np.uint64), count),
        **columns,
    }
    with TraceWriter(path, meta, optional, durable=False) as writer:
        writer.write(arrays)
    return path


def mixed_trace(
    path: Path, count: int, *, seconds: float = 1.0, span: int = 64 * MIB, seed: int = 1
) -> Path:
    """Poisson arrivals over ``seconds``, 4-256 KiB, half reads and half writes."""
    random = np.random.default_rng(seed)
    gaps = random.exponential(seconds * 1e9 / count, count)
    length = random.choice([4096, 16384, 65536, 262144], count)
    return write_trace(
        path,
        ts_ns=np.cumsum(gaps) - gaps[0],
        op=random.integers(0, 2, count),
        offset=random.integers(0, (span - MIB) // 4096, count) * 4096,
        length=length,
        latency_ns=np.full(count, 100_000, np.int64),
    )


def write_then_read(path: Path, blocks: int, *, size: int = 65536, gap_ns: int = 100_000) -> Path:
    """Every block is written, and read again when the write was complete in the recording."""
    number = np.arange(2 * blocks)
    return write_trace(
        path,
        ts_ns=number * gap_ns,
        op=np.where(number % 2 == 0, Op.WRITE, Op.READ),
        offset=number // 2 * size,
        length=size,
        latency_ns=np.full(2 * blocks, gap_ns // 2, np.int64),
        pid=number.astype(np.int32),  # each request a stream of its own
    )


def letters(details: dict[str, Any], name: str) -> dict[str, int]:
    """One count of ``operations`` by letter."""
    return {letter: row[name] for letter, row in details["operations"].items()}
