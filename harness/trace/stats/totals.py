"""Operations, bytes, request sizes and latencies."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.core.ops import PAGE_BYTES, Op
from harness.trace.schema import (
    FLAG_BACKGROUND,
    FLAG_FUA,
    FLAG_META,
    FLAG_PREFLUSH,
    FLAG_READAHEAD,
    FLAG_SYNC,
)
from harness.trace.stats.histogram import ExactCounts, LogHistogram
from harness.trace.stats.view import OP_NAMES, View

_FLAGS = {
    "sync": FLAG_SYNC,
    "fua": FLAG_FUA,
    "meta": FLAG_META,
    "readahead": FLAG_READAHEAD,
    "background": FLAG_BACKGROUND,
    "preflush": FLAG_PREFLUSH,
}
_COMMON_SIZES = 12


class Totals:
    """Per operation: requests, bytes, sizes, latencies, errors, alignment, flags."""

    def __init__(self) -> None:
        self._per_op = {op: _OneOp() for op in OP_NAMES}
        self.requests = 0
        self.last_ts_ns = 0
        self.low: int | None = None
        self.high = 0

    def add(self, view: View) -> None:
        """Add a batch."""
        self.requests += len(view)
        self.last_ts_ns = int(view.ts_ns[-1])
        for op, one in self._per_op.items():
            chosen = view.where(view.op == op)
            if len(chosen):
                one.add(chosen)
        touching = view.where((view.size > 0) & (view.op <= Op.DISCARD))
        if len(touching):
            low = int(touching.start.min())
            self.low = low if self.low is None else min(self.low, low)
            self.high = max(self.high, int((touching.start + touching.size).max()))

    def result(self) -> dict[str, Any]:
        """Totals and, for each operation that occurs, its figures."""
        present = {OP_NAMES[op]: one for op, one in self._per_op.items() if one.requests}
        duration_s = self.last_ts_ns / 1e9
        size_bytes = sum(one.bytes for one in present.values())
        return {
            "requests": self.requests,
            "bytes": size_bytes,
            "duration_s": duration_s,
            "requests_per_s": self.requests / duration_s if duration_s else None,
            "bytes_per_s": size_bytes / duration_s if duration_s else None,
            "touched": {"low": self.low, "high": self.high} if self.low is not None else None,
            "operations": {name: one.result() for name, one in present.items()},
        }

    def latency(self, op: Op) -> LogHistogram:
        """The latency histogram of ``op`` (ns)."""
        return self._per_op[op].latency_ns


class _OneOp:
    def __init__(self) -> None:
        self.requests = self.bytes = self.errors = self.unaligned = self.without_latency = 0
        self.sizes = LogHistogram()
        self.exact_sizes = ExactCounts()
        self.latency_ns = LogHistogram()
        self.flags = dict.fromkeys(_FLAGS, 0)

    def add(self, view: View) -> None:
        self.requests += len(view)
        self.bytes += int(view.size.sum())
        self.errors += int(np.count_nonzero(view.error))
        self.unaligned += int(np.count_nonzero((view.start | view.size) % np.uint64(PAGE_BYTES)))
        self.sizes.add(view.size)
        self.exact_sizes.add(view.size)
        known = view.latency_ns >= 0
        self.without_latency += int(np.count_nonzero(~known))
        self.latency_ns.add(view.latency_ns[known])
        for name, bit in _FLAGS.items():
            self.flags[name] += int(np.count_nonzero(view.flags & bit))

    def result(self) -> dict[str, Any]:
        common = self.exact_sizes.most_common(_COMMON_SIZES)
        return {
            "requests": self.requests,
            "bytes": self.bytes,
            "errors": self.errors,
            "unaligned_4k": self.unaligned,
            "flags": {name: count for name, count in self.flags.items() if count},
            "size_bytes": self.sizes.summary(),
            "common_sizes": [{"bytes": size, "requests": count} for size, count in common],
            "without_latency": self.without_latency,
            "latency_ns": self.latency_ns.summary(),
        }
