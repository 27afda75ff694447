"""Histograms of nanoseconds in the manner of HDR: every bin at most 1.6 % wide.

Values below 128 have a bin each; above, every octave has 64 bins. Counts are exact and
histograms of the same kind add up, so they take constant memory for any number of values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.replay.jit import kernel

_SUB_BITS = 6
_SUB = 1 << _SUB_BITS
_OCTAVES = 44 - _SUB_BITS
BINS = (_OCTAVES + 1) * _SUB
"""Enough for 2**44 ns, nearly five hours; longer values count in the last bin."""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


@kernel
def bin_of(value: int) -> int:
    """Bin of ``value`` (negative values count as 0)."""
    if value < 2 * _SUB:
        return max(value, 0)
    octave = 0
    rest = value >> (_SUB_BITS + 1)
    while rest > 0:
        rest >>= 1
        octave += 1
    return min(octave * _SUB + (value >> octave), BINS - 1)


@kernel
def _add(counts: NDArray[np.int64], values: NDArray[np.int64]) -> None:
    for value in values:
        counts[bin_of(value)] += 1


def lower_edges() -> NDArray[np.int64]:
    """Smallest value of every bin, shape (BINS,)."""
    index = np.arange(BINS)
    octave = np.maximum(index // _SUB - 1, 0)
    return np.asarray((index - octave * _SUB) << octave, dtype=np.int64)


class Histogram:
    """Counts of nanoseconds. ``maximum`` is exact (0 when empty)."""

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.int64)
        self.maximum = 0
        self.sum = 0

    def add(self, values: NDArray[np.int64]) -> None:
        """Count ``values`` (int64 ns)."""
        if values.size:
            _add(self.counts, values)
            self.maximum = max(self.maximum, int(values.max()))
            self.sum += int(values.sum())

    def merge(self, other: Histogram) -> None:
        """Add the counts of ``other``."""
        self.counts += other.counts
        self.maximum = max(self.maximum, other.maximum)
        self.sum += other.sum

    @property
    def n(self) -> int:
        """How many values were counted."""
        return int(self.counts.sum())

    def quantile(self, share: float) -> int | None:
        """The value below which ``share`` of the values lie, to 1.6 %; None when empty."""
        cumulative = np.cumsum(self.counts)
        if cumulative[-1] == 0:
            return None
        place = int(np.searchsorted(cumulative, share * cumulative[-1]))
        edges = lower_edges()
        top = edges[place + 1] - 1 if place + 1 < BINS else self.maximum
        return min(int((edges[place] + top) // 2), self.maximum)

    def summary(self) -> dict[str, int | None]:
        """Count, mean, quantiles and maximum, in ns; None where there is no value."""
        n = self.n
        quantiles = {name: self.quantile(share) for name, share in QUANTILES.items()}
        mean = self.sum // n if n else None
        return {"n": n, "mean": mean, **quantiles, "max": self.maximum if n else None}

    def bins(self) -> list[list[int]]:
        """Non-empty bins as [lower edge in ns, count]."""
        filled = np.flatnonzero(self.counts)
        pairs: Any = np.column_stack((lower_edges()[filled], self.counts[filled]))
        return [[int(edge), int(count)] for edge, count in pairs]


def distance(one: NDArray[np.int64], other: NDArray[np.int64]) -> float | None:
    """Kolmogorov-Smirnov distance of two histograms over the same bins; None if one is empty."""
    if one.sum() == 0 or other.sum() == 0:
        return None
    difference = np.cumsum(one) / one.sum() - np.cumsum(other) / other.sum()
    return float(np.abs(difference).max())
