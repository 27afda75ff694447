"""Requests in flight at each issue: as recorded, or counted from issue times and latencies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

_DEEPEST = 1 << 14

Ints = npt.NDArray[np.int64]


@dataclass
class DepthAtIssue:
    """``counts`` int64 (16384): requests by depth at their issue, themselves included.

    Requests without a completion are left out: they would stay in flight for ever.
    """

    counts: Ints = field(default_factory=lambda: np.zeros(_DEEPEST, np.int64))
    _ends: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, ts: Ints, latency: Ints, recorded: Any = None) -> None:
        """Add rows in issue order; ``recorded`` is the trace's own column if it has one."""
        if recorded is not None:
            depth = recorded.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
        else:
            depth = self._counted(ts, latency)
        self.counts += np.bincount(np.minimum(depth, _DEEPEST - 1), minlength=_DEEPEST)

    def _counted(self, ts: Ints, latency: Ints) -> Ints:
        seen = latency >= 0
        start = ts[seen]
        if len(start) == 0:
            return start
        # In flight for at least 1 ns: so no later request's end lies at or before this issue.
        ends = np.sort(np.concatenate([self._ends, start + np.maximum(latency[seen], 1)]))
        done = np.searchsorted(ends, start, side="right")
        issued = len(self._ends) + np.arange(1, len(start) + 1)
        self._ends = ends[ends > start[-1]]
        return np.asarray(issued - done)

    def quantile(self, share: float) -> int:
        """Smallest depth that at least ``share`` of requests do not exceed; 0 if none known."""
        total = int(self.counts.sum())
        if total == 0:
            return 0
        rank = max(1, int(np.ceil(share * total)))
        return int(np.searchsorted(np.cumsum(self.counts), rank))

    @property
    def deepest(self) -> int:
        """Largest depth seen; 0 if none known."""
        used = np.flatnonzero(self.counts)
        return int(used[-1]) if len(used) else 0
