"""Requests in flight when a request is issued, itself included."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from harness.trace.stats.histogram import LogHistogram
from harness.trace.stats.view import View


class QueueDepth:
    """Queue depth at issue, from issue times and latencies.

    Requests without a latency cannot be placed and are left out (``unplaced``).
    """

    def __init__(self) -> None:
        self._completions: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.unplaced = 0
        self.depth = LogHistogram()

    def add(self, view: View) -> npt.NDArray[np.int64]:
        """Add a batch; returns the depth at each placed request, 0 for the others."""
        known = view.latency_ns >= 0
        self.unplaced += int(np.count_nonzero(~known))
        issue_ns = view.ts_ns[known]
        pending = len(self._completions)
        ends = np.sort(np.concatenate([self._completions, issue_ns + view.latency_ns[known]]))
        finished = np.searchsorted(ends, issue_ns, side="right")
        # A request whose latency is 0 finishes at its own issue; it still counts as in flight.
        depth = np.maximum(pending + np.arange(1, len(issue_ns) + 1) - finished, 1)
        self.depth.add(depth)
        if len(view):
            self._completions = ends[np.searchsorted(ends, view.ts_ns[-1], side="right") :]
        all_depths = np.zeros(len(view), np.int64)
        all_depths[known] = depth
        return all_depths

    def result(self) -> dict[str, Any] | None:
        """Depth percentiles over requests; None when no latency is known."""
        if self.depth.count == 0:
            return None
        return {**self.depth.summary(), "unplaced": self.unplaced}
