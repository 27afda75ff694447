"""Small helpers that the trace tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.trace.columns import op_codes
from harness.trace.parquet import TraceWriter, open_trace
from harness.trace.schema import SCHEMA, TraceMeta
from harness.trace.source import Source


def table_of(source: Source) -> pa.Table:
    """All rows of a source."""
    return pa.Table.from_batches(list(source.batches()))


def rows_of(table: pa.Table) -> list[tuple[int, int, int, int, int | None, int]]:
    """(ts_ns, op, lba, bytes, latency_ns or None, dev) of every row."""
    columns = [table[name].to_pylist() for name in ("ts_ns", "lba", "bytes", "latency_ns", "dev")]
    ops = op_codes(table["op"]).tolist()
    return [
        (ts_ns, op, lba, size, latency_ns, dev)
        for op, ts_ns, lba, size, latency_ns, dev in zip(ops, *columns, strict=True)
    ]


def write_trace(path: Path, rows: list[tuple[Any, ...]], meta: TraceMeta | None = None) -> Path:
    """A trace file of (ts_ns, op, lba, bytes[, latency_ns or None[, dev]]) rows."""
    filled = [(*row, *(None, 0)[len(row) - 4 :]) for row in rows]
    columns = list(zip(*filled, strict=True)) if filled else [[]] * 6
    with TraceWriter(path, meta or TraceMeta(source="test"), durable=False) as writer:
        writer.write(
            {
                "ts_ns": np.array(columns[0], np.int64),
                "op": np.array(columns[1], np.uint8),
                "lba": np.array(columns[2], np.uint64),
                "bytes": np.array(columns[3], np.uint64),
                "latency_ns": np.array([-1 if v is None else v for v in columns[4]], np.int64),
                "dev": np.array(columns[5], np.uint32),
            }
        )
    return path


def read_rows(path: Path) -> list[tuple[int, int, int, int, int | None, int]]:
    """The rows of a trace file."""
    table = open_trace(path).table()
    assert table.schema.names[: len(SCHEMA)] == SCHEMA.names
    return rows_of(table)
