"""Statistics of a trace in one pass and bounded memory: what one looks at first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.core.errors import UsageError
from harness.core.ops import Op
from harness.core.progress import Progress, quiet
from harness.trace.parquet import Trace
from harness.trace.source import Source
from harness.trace.stats.depth import QueueDepth
from harness.trace.stats.histogram import LogHistogram
from harness.trace.stats.locality import Locality
from harness.trace.stats.regions import Regions, Sample
from harness.trace.stats.rewrites import Rewrites
from harness.trace.stats.timeline import Timeline
from harness.trace.stats.totals import Totals
from harness.trace.stats.view import COLUMNS, OP_NAMES, View, view_of


@dataclass(frozen=True)
class TraceStats:
    """``data`` is the result as plain data; the histograms and the sample are for plots."""

    data: dict[str, Any]
    latency_ns: dict[str, LogHistogram]
    jump_bytes: dict[str, LogHistogram]
    sample: dict[str, npt.NDArray[Any]]


class Collector:
    """All statistics, fed a batch at a time; for those who have the batches in hand."""

    def __init__(self) -> None:
        self._totals = Totals()
        self._locality = Locality()
        self._depth = QueueDepth()
        self._timeline = Timeline()
        self._regions = Regions()
        self._rewrites = Rewrites()
        self._sample = Sample()
        self._devices: dict[int, int] = {}

    def add(self, view: View) -> None:
        """Add a batch of one row or more, in issue order."""
        for part in (self._totals, self._locality, self._regions, self._rewrites, self._sample):
            part.add(view)
        self._timeline.add(view, self._depth.add(view))
        for dev, count in zip(*np.unique(view.dev, return_counts=True), strict=True):
            self._devices[int(dev)] = self._devices.get(int(dev), 0) + int(count)

    def result(self) -> TraceStats:
        """The statistics of everything added."""
        devices = [
            {"dev": dev, "major": dev >> 20, "minor": dev & 0xFFFFF, "requests": count}
            for dev, count in sorted(self._devices.items(), key=lambda item: -item[1])
        ]
        data = {
            **self._totals.result(),
            "devices": devices,
            "locality": self._locality.result(),
            "queue_depth": self._depth.result(),
            "rewrites": self._rewrites.result(),
            "regions": self._regions.result(),
            "timeline": self._timeline.result(),
        }
        sample = self._sample.arrays()
        latency = {name: self._totals.latency(op) for op, name in OP_NAMES.items()}
        jumps = {OP_NAMES[op]: self._locality.jumps(op) for op in (Op.READ, Op.WRITE)}
        return TraceStats(data, latency, jumps, sample)


def collect(source: Source, progress: Progress = quiet) -> TraceStats:
    """Statistics of ``source`` in one pass; ``data`` also holds its metadata.

    Errors: UsageError for an empty trace, and whatever reading it raises.
    """
    collector = Collector()
    total = source.rows if isinstance(source, Trace) else None
    done = 0
    for batch in source.batches(COLUMNS):
        if batch.num_rows:
            collector.add(view_of(batch))
            done += batch.num_rows
            if total is not None:
                progress(done, total)
    if done == 0:
        raise UsageError(f"{source.path} holds no requests")
    stats = collector.result()
    meta = source.meta.model_dump(mode="json")
    data = {"trace": str(source.path), "has_clock": source.meta.has_clock, **stats.data}
    return TraceStats(data | {"meta": meta}, stats.latency_ns, stats.jump_bytes, stats.sample)
