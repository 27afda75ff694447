"""A modelled store's ops as a block trace: each call cut into the requests of a given device.

One call becomes requests of at most ``max_sectors_kb``; from buffers whose pages are scattered (an
io_uring engine's fixed buffers are, 4 KiB each) also of at most ``max_segments`` pages. Measured on
captures: 1,280 KiB from contiguous memory and 512 KiB from fixed buffers under limits of 1,280 KiB
and 128 segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.core.ops import PAGE_BYTES, SECTOR_BYTES, Op
from harness.core.progress import Progress, quiet
from harness.stores.base import Store
from harness.stores.ops import NO_SESSION, OpArray
from harness.stores.requests.form import RequestSource, take
from harness.trace.parquet import TraceWriter
from harness.trace.schema import DeviceMeta, TraceMeta

_OPTIONAL = ("object_class", "session", "turn", "layer", "key")
_STEP_NS = 1000
_MOST_IDLE = 1000
"""Requests without a write after which a store is taken to write nothing any more."""


@dataclass(frozen=True)
class DeviceLimits:
    """What the block layer cuts requests to."""

    max_sectors_kb: int = 1280
    max_segments: int = 128

    def request_bytes(self, *, scattered: bool) -> int:
        """The largest request; UsageError for limits below a page."""
        size = self.max_sectors_kb << 10
        if scattered:
            size = min(size, self.max_segments * PAGE_BYTES)
        size = size // PAGE_BYTES * PAGE_BYTES
        if size < PAGE_BYTES:
            raise UsageError("a device that takes less than a page a request is not understood")
        return size


def limits_of(device: DeviceMeta | None) -> DeviceLimits:
    """The limits of a traced device; a loop device's where they are not known."""
    usual = DeviceLimits()
    if device is None:
        return usual
    return DeviceLimits(
        device.max_sectors_kb or usual.max_sectors_kb, device.max_segments or usual.max_segments
    )


def split_calls(ops: OpArray, request_bytes: int) -> tuple[NDArray[np.int64], OpArray]:
    """(call of each request, requests) in order; requests are ops no longer than asked."""
    pieces = -(-ops["length"].astype(np.int64) // request_bytes)
    call = np.repeat(np.arange(len(ops)), pieces)
    number = np.arange(len(call)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    cut = ops[call].copy()
    skip = (number * request_bytes).astype(np.uint64)
    cut["offset"] += skip
    cut["length"] = np.minimum(cut["length"] - skip, np.uint64(request_bytes))
    return call, cut


def write_model_trace(
    store: Store,
    requests: RequestSource,
    out: Path,
    *,
    limits: DeviceLimits,
    limit: int | None = None,
    written_bytes: int | None = None,
    scattered: bool | None = None,
    progress: Progress = quiet,
) -> int:
    """Write what the store would do as a trace; the number of its rows.

    A request's calls begin at its own time, a microsecond apart; nothing has a latency. Ends after
    ``limit`` requests or so many bytes written; an endless trace of requests needs one of them.
    ``scattered``: whether the pages behind the buffers are; None for those of the store's engine.
    UsageError if neither can end it.
    """
    if limit is None and written_bytes is None and requests.endless:
        raise UsageError(f"{requests.name} never ends: say how many requests or bytes")
    size = limits.request_bytes(scattered=store.fixed_buffers if scattered is None else scattered)
    device = DeviceMeta(
        size_bytes=store.capacity_bytes,
        max_sectors_kb=limits.max_sectors_kb,
        max_segments=limits.max_segments,
    )
    meta = TraceMeta(
        source="model",
        device=device,
        command=f"{store.name} serving {requests.name}, seed {requests.seed}",
        notes=["modelled: times are those of the requests, there are no latencies"],
    )
    written = served = clock = idle = 0
    with TraceWriter(out, meta, _OPTIONAL, durable=False) as writer:
        for batch in take(requests.batches(), limit):
            for row in range(len(batch)):
                ops = store.serve_batch(batch.part(row, row + 1))
                begin = max(clock, int(batch.time_s[row] * 1e9))
                clock = _write(writer, ops, begin, size)
                wrote = int(ops["length"][ops["op"] == Op.WRITE].sum())
                written += wrote
                idle = 0 if wrote else idle + 1
                if written_bytes is not None and idle == _MOST_IDLE:
                    raise UsageError(
                        f"{store.name} has written nothing for {idle} requests, {written} of "
                        f"{written_bytes} bytes so far: is it full and evicts nothing?",
                        fix="end by --limit instead, or take a store that evicts",
                    )
                served += 1
                if written_bytes is not None and written >= written_bytes:
                    break
            progress(served, limit, "requests")
            if written_bytes is not None and written >= written_bytes:
                break
        _write(writer, store.close(), clock, size)
    return writer.rows


def _write(writer: TraceWriter, ops: OpArray, begin_ns: int, request_bytes: int) -> int:
    """Append calls from ``begin_ns`` on; the time after the last one."""
    if not len(ops):
        return begin_ns
    call, cut = split_calls(ops, request_bytes)
    none = cut["session"] == NO_SESSION
    columns: dict[str, Any] = {
        "ts_ns": begin_ns + call * _STEP_NS,
        "op": cut["op"].astype(np.int8),
        "lba": cut["offset"] // np.uint64(SECTOR_BYTES),
        "bytes": cut["length"],
        "object_class": cut["object_class"].astype(np.int8),
        "session": pa.array(cut["session"], mask=none),
        "turn": pa.array(cut["turn"], mask=none),
        "layer": cut["layer"],
        "key": cut["key"],
    }
    writer.write(_batch(columns))
    return begin_ns + len(ops) * _STEP_NS


def _batch(columns: dict[str, Any]) -> pa.RecordBatch:
    from harness.stores.ops import CLASS_NAMES
    from harness.trace.schema import OP_DICTIONARY, trace_schema

    rows = len(columns["ts_ns"])
    size = columns["bytes"]
    start = columns["lba"] * np.uint64(SECTOR_BYTES)
    pages = -(-(start + size).astype(np.int64) // PAGE_BYTES) - start.astype(np.int64) // PAGE_BYTES
    filled: dict[str, Any] = {
        **columns,
        "op": pa.DictionaryArray.from_arrays(pa.array(columns["op"]), OP_DICTIONARY),
        "pages": pages.astype(np.uint32),
        "latency_ns": pa.nulls(rows, pa.int64()),
        "flags": np.zeros(rows, np.uint16),
        "dev": np.zeros(rows, np.uint32),
        "pid": pa.nulls(rows, pa.int32()),
        "comm": pa.nulls(rows, pa.dictionary(pa.int32(), pa.string())),
        "error": np.zeros(rows, np.int32),
        "object_class": pa.DictionaryArray.from_arrays(
            pa.array(columns["object_class"]), pa.array(CLASS_NAMES)
        ),
    }
    schema = trace_schema(_OPTIONAL)
    arrays = [
        filled[field.name]
        if isinstance(filled[field.name], pa.Array)
        else pa.array(filled[field.name], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
