"""Counting whole numbers of any size in little memory: 64 buckets an octave, exact below 128."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from harness.stores.jit import kernel

BUCKETS = 64 * 60
"""Enough for any value below 2^63; a bucket is at most 1/64 of its value wide."""


@kernel
def count(histogram: NDArray[np.int64], value: int, times: int) -> None:
    """Count ``value`` (not negative) ``times`` over in int64[BUCKETS]."""
    shift = 0
    while (value >> shift) >= 128:
        shift += 1
    histogram[shift * 64 + (value >> shift)] += times


def bucket_values() -> NDArray[np.int64]:
    """The least value of each bucket."""
    index = np.arange(BUCKETS, dtype=np.int64)
    shift = np.maximum(0, index // 64 - 1)
    return (index - shift * 64) << np.minimum(shift, 56)


def percentiles(histogram: NDArray[np.int64], shares: Sequence[float]) -> list[float | None]:
    """Values at ``shares`` (0 to 1) of what was counted; None where nothing was."""
    total = int(histogram.sum())
    if total == 0:
        return [None for _ in shares]
    cumulative = np.cumsum(histogram)
    values = bucket_values()
    found = np.searchsorted(cumulative, np.maximum(1, np.ceil(np.array(shares) * total)))
    return [float(values[at]) for at in found]


def cumulative_share(
    histogram: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(values, share of counts at or below) of the buckets that hold anything; for plots."""
    used = np.flatnonzero(histogram)
    share = np.cumsum(histogram)[used] / max(1, int(histogram.sum()))
    return bucket_values()[used], share
