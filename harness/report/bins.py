"""A block trace binned in one pass and constant memory, whatever its length."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.core.ops import OP_LETTERS, SECTOR_BYTES, Op
from harness.core.progress import Progress, quiet
from harness.report.axis import GrowingAxis
from harness.report.depth import DepthAtIssue
from harness.trace.columns import latencies, op_codes
from harness.trace.parquet import Trace

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

OPS = len(OP_LETTERS)
TIME_BINS = 512
LBA_BINS = 256
LATENCY_BINS_PER_OCTAVE = 32
LATENCY_BINS = 48 * LATENCY_BINS_PER_OCTAVE
"""Latencies up to 2**48 ns (78 h) in bins 2.2 % wide."""

_FINE_SECTORS = 1 << 16
_BATCH_ROWS = 1 << 18
_COLUMNS = ("ts_ns", "op", "lba", "bytes", "latency_ns", "error")
_OPTIONAL = ("queue_depth", "object_class")
_MAPPED = (Op.READ, Op.WRITE)


def _by_op(*shape: int) -> Floats:
    return np.zeros((OPS, *shape))


@dataclass
class TraceBins:
    """Sums over a trace; first axis ``Op`` where there is one.

    ``time`` and ``lba`` are the axes in ns and bytes. ``bytes_map`` float64
    (2, LBA_BINS, TIME_BINS): bytes of reads and of writes by first sector and issue time.
    ``size_counts`` int64 (OPS, 65536): requests by size in sectors; larger ones in
    ``large_sizes`` by (op, bytes). ``latency_counts`` int64 (OPS, LATENCY_BINS).
    """

    requests: Ints = field(default_factory=lambda: np.zeros(OPS, np.int64))
    size_bytes: Floats = field(default_factory=_by_op)
    completions_missing: int = 0
    errors: int = 0
    last_ts_ns: int = 0
    time: GrowingAxis = field(default_factory=lambda: GrowingAxis(TIME_BINS, 1000))
    lba: GrowingAxis = field(default_factory=lambda: GrowingAxis(LBA_BINS, 65536))
    bytes_map: Floats = field(default_factory=lambda: np.zeros((2, LBA_BINS, TIME_BINS)))
    bytes_over_time: Floats = field(default_factory=lambda: _by_op(TIME_BINS))
    busy_ns: Floats = field(default_factory=lambda: np.zeros(TIME_BINS))
    size_counts: Ints = field(default_factory=lambda: np.zeros((OPS, _FINE_SECTORS), np.int64))
    large_sizes: dict[tuple[int, int], int] = field(default_factory=dict)
    latency_counts: Ints = field(default_factory=lambda: np.zeros((OPS, LATENCY_BINS), np.int64))
    depth: DepthAtIssue = field(default_factory=DepthAtIssue)
    classes: dict[str, tuple[int, float]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Requests of all operations."""
        return int(self.requests.sum())

    def sizes(self, op: Op) -> dict[int, int]:
        """Requests by exact size in bytes."""
        sectors = np.flatnonzero(self.size_counts[op])
        found = {int(s) * SECTOR_BYTES: int(self.size_counts[op, s]) for s in sectors}
        found.update({b: n for (code, b), n in self.large_sizes.items() if code == op})
        return found

    def mean_depth(self) -> Floats:
        """Mean requests in flight in each time bin (float64, TIME_BINS)."""
        return self.busy_ns / self.time.width

    def latency_ns(self, op: Op, quantiles: Floats) -> Floats:
        """Latency quantiles from the bins, right to 1.1 %; NaN where nothing completed."""
        counts = self.latency_counts[op]
        total = counts.sum()
        if total == 0:
            return np.full(len(quantiles), np.nan)
        ranks = np.minimum(np.ceil(quantiles * total), total)
        where = np.searchsorted(np.cumsum(counts), np.maximum(ranks, 1))
        return np.asarray(2 ** ((where + 0.5) / LATENCY_BINS_PER_OCTAVE))

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows that follow those already added."""
        ts = batch.column("ts_ns").to_numpy()
        if len(ts) == 0:
            return
        op = op_codes(batch.column("op")).astype(np.int64)
        size = batch.column("bytes").to_numpy().astype(np.int64)
        latency = latencies(batch.column("latency_ns"))
        self.requests += np.bincount(op, minlength=OPS)
        self.size_bytes += np.bincount(op, weights=size, minlength=OPS)
        self.completions_missing += int((latency < 0).sum())
        self.errors += int(np.count_nonzero(batch.column("error").to_numpy()))
        self.last_ts_ns = int(ts[-1])
        self._add_sizes(op, size)
        self._add_latencies(op, latency)
        self._add_places(ts, op, batch.column("lba").to_numpy(), size)
        self._add_busy(ts, latency)
        recorded = batch.column("queue_depth") if "queue_depth" in batch.schema.names else None
        self.depth.add(ts, latency, recorded)
        if "object_class" in batch.schema.names:
            self._add_classes(batch)

    def _add_sizes(self, op: Ints, size: Ints) -> None:
        sectors = size // SECTOR_BYTES
        fine = (sectors < _FINE_SECTORS) & (size % SECTOR_BYTES == 0)
        flat = np.bincount(op[fine] * _FINE_SECTORS + sectors[fine], minlength=OPS * _FINE_SECTORS)
        self.size_counts += flat.reshape(OPS, _FINE_SECTORS)
        for code, length in zip(op[~fine].tolist(), size[~fine].tolist(), strict=True):
            self.large_sizes[code, length] = self.large_sizes.get((code, length), 0) + 1

    def _add_latencies(self, op: Ints, latency: Ints) -> None:
        seen = latency >= 0
        octaves = np.log2(np.maximum(latency[seen], 1))
        bins = np.minimum((octaves * LATENCY_BINS_PER_OCTAVE).astype(np.int64), LATENCY_BINS - 1)
        flat = np.bincount(op[seen] * LATENCY_BINS + bins, minlength=OPS * LATENCY_BINS)
        self.latency_counts += flat.reshape(OPS, LATENCY_BINS)

    def _add_places(self, ts: Ints, op: Ints, lba: Any, size: Ints) -> None:
        place = lba.astype(np.int64) * SECTOR_BYTES
        mapped = np.isin(op, _MAPPED)
        self._grow_time(int(ts[-1]))
        if mapped.any():
            self.bytes_map = self.lba.grow(int(place[mapped].max()), self.bytes_map, axis=1)
        column = self.time.bins_of(ts)
        flat = np.bincount(op * TIME_BINS + column, weights=size, minlength=OPS * TIME_BINS)
        self.bytes_over_time += flat.reshape(OPS, TIME_BINS)
        row = self.lba.bins_of(place[mapped])
        cells = (op[mapped] * LBA_BINS + row) * TIME_BINS + column[mapped]
        flat = np.bincount(cells, weights=size[mapped], minlength=self.bytes_map.size)
        self.bytes_map += flat.reshape(self.bytes_map.shape)

    def _add_busy(self, ts: Ints, latency: Ints) -> None:
        """Time in flight by bin, exactly: what starts add in and after their bin, less ends."""
        seen = latency >= 0
        if not seen.any():
            return
        start, end = ts[seen], ts[seen] + latency[seen]
        self._grow_time(int(end.max()))
        self.busy_ns += self._remaining(start) - self._remaining(end)

    def _remaining(self, moments: Ints) -> Floats:
        width = self.time.width
        bins = self.time.bins_of(moments)
        counts = np.bincount(bins, minlength=TIME_BINS)
        within = np.bincount(bins, weights=(bins + 1) * width - moments, minlength=TIME_BINS)
        earlier = np.concatenate(([0], np.cumsum(counts)[:-1]))
        return np.asarray(within + earlier * float(width))

    def _grow_time(self, top_ns: int) -> None:
        factor = self.time.factor_for(top_ns)
        if factor > 1:
            self.bytes_map = self.time.fold(self.bytes_map, factor, axis=2)
            self.bytes_over_time = self.time.fold(self.bytes_over_time, factor, axis=1)
            self.busy_ns = self.time.fold(self.busy_ns, factor, axis=0)
            self.time.widen(factor)

    def _add_classes(self, batch: pa.RecordBatch) -> None:
        table = pa.table(
            {"name": batch.column("object_class").cast(pa.string()), "bytes": batch.column("bytes")}
        )
        sums = table.group_by("name").aggregate([("bytes", "count"), ("bytes", "sum")])
        for row in sums.to_pylist():
            name = row["name"] or "not attributed"
            count, total = self.classes.get(name, (0, 0.0))
            self.classes[name] = (count + row["bytes_count"], total + float(row["bytes_sum"] or 0))


def bin_trace(trace: Trace, progress: Progress = quiet) -> TraceBins:
    """One pass over ``trace``."""
    bins = TraceBins()
    columns = [*_COLUMNS, *(name for name in _OPTIONAL if name in trace.columns)]
    for batch in trace.batches(columns, batch_rows=_BATCH_ROWS):
        bins.add(batch)
        progress(bins.rows, trace.rows, "reading the trace")
    return bins
