"""Has a series of nights changed? Rank tests, so that neither units nor outliers decide.

Night figures are few, skewed and now and then wild; ranks need no shape of noise. The change
points are those of E-divisive (Matteson and James, JASA 2014, as used by MongoDB and
apache-otava) in its plan (best split, permutation test, then both halves) with the statistic of
a rank CUSUM: its null distribution depends on the number of nights alone, so it is drawn once a
length instead of once a series. No distribution is assumed; nights are taken as exchangeable.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu, rankdata

Floats = NDArray[np.float64]

PERMUTATIONS = 4999
"""The smallest p a change point can have is 1 / 5000."""

MIN_SEGMENT = 3
"""Nights on either side of a change: fewer cannot be told from one bad night."""

_SEED = 20260101


@dataclass(frozen=True)
class Shift:
    """Recent nights against earlier ones.

    ``p`` is two-sided; ``delta`` is Cliff's delta (-1 each recent value below each earlier one,
    +1 above, 0 neither); ``ratio`` is median over median, None where the earlier is 0.
    """

    p: float
    delta: float
    before: float
    after: float
    ratio: float | None


@dataclass(frozen=True)
class ChangePoint:
    """``index`` is the first night of the new level; medians are those of the two segments."""

    index: int
    p: float
    before: float
    after: float


def compare(earlier: Floats, recent: Floats) -> Shift:
    """Mann-Whitney with its effect size; both float64[n], n >= 1."""
    before, after = float(np.median(earlier)), float(np.median(recent))
    ratio = after / before if before else None
    pooled = np.concatenate([earlier, recent])
    if pooled.min() == pooled.max():
        return Shift(1.0, 0.0, before, after, ratio)
    result = mannwhitneyu(recent, earlier, alternative="two-sided", method="auto")
    delta = 2 * float(result.statistic) / (len(recent) * len(earlier)) - 1
    return Shift(float(result.pvalue), delta, before, after, ratio)


def first_split(values: Floats) -> tuple[int, float]:
    """The best split of float64[n] and its p. (0, 1.0) where no split is possible."""
    n = len(values)
    if n < 2 * MIN_SEGMENT or values.min() == values.max():
        return 0, 1.0
    ranks = rankdata(values)
    curve = _curves(ranks[None, :])[0]
    found = float(curve.max())
    tied = len(np.unique(values)) < n
    null = _curves(ranks[_orders(n)]).max(axis=1) if tied else _null(n)
    above = int(np.count_nonzero(null >= found - 1e-9))
    return MIN_SEGMENT + int(curve.argmax()), (1 + above) / (1 + len(null))


def change_points(values: Floats, alpha: float) -> list[ChangePoint]:
    """All changes of level in float64[n], by time, each with p <= ``alpha`` in its segment."""
    cuts = sorted(_cuts(values, 0, alpha))
    edges = [0, *(index for index, _ in cuts), len(values)]
    return [
        ChangePoint(
            index, p,
            float(np.median(values[edges[i] : index])),
            float(np.median(values[index : edges[i + 2]])),
        )
        for i, (index, p) in enumerate(cuts)
    ]  # fmt: skip


def benjamini_hochberg(p_values: Floats) -> Floats:
    """Adjusted p (q) of each of float64[m]: the false discovery rate at which it would count."""
    m = len(p_values)
    if m == 0:
        return p_values
    order = np.argsort(p_values)
    scaled = p_values[order] * m / np.arange(1, m + 1)
    adjusted = np.minimum.accumulate(scaled[::-1])[::-1].clip(max=1.0)
    q = np.empty(m)
    q[order] = adjusted
    return q


def _cuts(values: Floats, offset: int, alpha: float) -> list[tuple[int, float]]:
    index, p = first_split(values)
    if p > alpha:
        return []
    left = _cuts(values[:index], offset, alpha)
    right = _cuts(values[index:], offset + index, alpha)
    return [*left, (offset + index, p), *right]


def _curves(ranks: Floats) -> Floats:
    """|rank CUSUM| of each split of each row, over its standard deviation if nothing changed."""
    n = ranks.shape[1]
    k = np.arange(MIN_SEGMENT, n - MIN_SEGMENT + 1)
    sums = np.cumsum(ranks - (n + 1) / 2, axis=1)[:, k - 1]
    curves: Floats = np.abs(sums) / np.sqrt(k * (n - k) * (n + 1) / 12)
    return curves


@lru_cache(maxsize=64)
def _orders(n: int) -> NDArray[np.int64]:
    """int64[PERMUTATIONS, n]: the same random orders each time, so that a verdict repeats."""
    rows = np.broadcast_to(np.arange(n), (PERMUTATIONS, n))
    return np.random.default_rng(_SEED + n).permuted(rows, axis=1)


@lru_cache(maxsize=512)
def _null(n: int) -> Floats:
    largest: Floats = _curves((_orders(n) + 1).astype(np.float64)).max(axis=1)
    return largest
