"""How many requests were in flight, and how far apart they were issued: two traces compared."""

from __future__ import annotations

import numpy as np

from harness.replay.heap import pop, push
from harness.replay.histogram import Histogram, distance
from harness.replay.jit import kernel
from harness.replay.window import I64

DEEPEST = 4096


class Shape:
    """Depth and inter-arrival distributions of a sequence of requests, block by block.

    ``depth[d]`` counts requests that were issued as the d-th in flight, themselves included.
    """

    def __init__(self) -> None:
        self.depth = np.zeros(DEEPEST + 1, np.int64)
        self.gaps = Histogram()
        self._last: int | None = None
        self._keys = np.zeros(1 << 16, np.int64)
        self._size = np.zeros(1, np.int64)

    def add(self, issued: I64, done: I64) -> None:
        """Count requests (times in ns, in issue order); one without a completion ends at once."""
        if not issued.size:
            return
        if self._last is not None:
            self.gaps.add(np.maximum(issued[:1] - self._last, 0))
        self.gaps.add(np.maximum(np.diff(issued), 0))
        self._last = int(issued[-1])
        if int(self._size[0]) + issued.size > len(self._keys):
            self._keys = np.resize(self._keys, 2 * (int(self._size[0]) + issued.size))
        _count_depth(issued, done, self._keys, self._size, self.depth)

    def summary(self) -> dict[str, float | int | None]:
        """Mean, median and largest depth; None without requests."""
        total = int(self.depth.sum())
        if total == 0:
            return {"mean": None, "p50": None, "max": None}
        mean = float((self.depth * np.arange(DEEPEST + 1)).sum() / total)
        median = int(np.searchsorted(np.cumsum(self.depth), total / 2))
        return {"mean": mean, "p50": median, "max": int(np.flatnonzero(self.depth)[-1])}

    def counts(self) -> list[list[int]]:
        """[depth, requests issued at it] for every depth that occurred."""
        return [[int(d), int(self.depth[d])] for d in np.flatnonzero(self.depth)]

    def depth_distance(self, other: Shape) -> float | None:
        """Kolmogorov-Smirnov distance of the depths."""
        return distance(self.depth, other.depth)

    def gap_distance(self, other: Shape) -> float | None:
        """Kolmogorov-Smirnov distance of the inter-arrival times."""
        return distance(self.gaps.counts, other.gaps.counts)


@kernel
def _count_depth(issued: I64, done: I64, keys: I64, size: I64, depth: I64) -> None:
    for i in range(len(issued)):
        while size[0] > 0 and keys[0] <= issued[i]:
            pop(keys, keys, size)
        push(keys, keys, size, done[i], done[i])
        depth[min(size[0], len(depth) - 1)] += 1
