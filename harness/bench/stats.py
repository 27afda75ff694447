"""Medians and their bootstrap intervals, settling and outliers: pure functions of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, model_validator

from harness.core.config import Strict

RESAMPLES = 4000
CONFIDENCE = 0.95


class Interval(Strict):
    """A median with its bootstrap 95 % interval over ``n`` repeats."""

    model_config = ConfigDict(allow_inf_nan=False)

    median: float
    low: float
    high: float
    n: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _ordered(self) -> Interval:
        if not self.low <= self.median <= self.high:
            raise ValueError("expected low <= median <= high")
        return self


def estimate(samples: Sequence[float] | NDArray[np.float64], seed: int = 0) -> Interval:
    """Median and 95 % percentile bootstrap of the median; needs one sample at least."""
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError("no samples")
    picks = np.random.default_rng(seed).integers(0, values.size, (RESAMPLES, values.size))
    medians = np.median(values[picks], axis=1)
    tail = (1 - CONFIDENCE) / 2 * 100
    low, high = np.percentile(medians, [tail, 100 - tail])
    median = float(np.median(values))
    # Percentiles interpolate between resampled medians and may miss the median by a rounding.
    low, high = min(float(low), median), max(float(high), median)
    return Interval(median=median, low=low, high=high, n=int(values.size))


def ratio(above: Sequence[float], below: Sequence[float], seed: int = 0) -> Interval:
    """Median of the ratios of samples taken in the same rounds, so that drift cancels."""
    pairs = np.asarray(above, dtype=np.float64) / np.asarray(below, dtype=np.float64)
    return estimate(pairs, seed)


def spread(samples: Sequence[float]) -> float:
    """(max - min) / median."""
    values = np.asarray(samples, dtype=np.float64)
    return float((values.max() - values.min()) / np.median(values))


def settled(samples: Sequence[float], tolerance: float) -> bool:
    """The stated rule: the interval is no wider than ``tolerance`` of the median, and the
    later half's median is within ``tolerance`` of the earlier half's (no trend)."""
    found = estimate(samples)
    if found.high - found.low > tolerance * found.median:
        return False
    half = len(samples) // 2
    if half == 0:
        return False
    drift = np.median(samples[-half:]) / np.median(samples[:half]) - 1
    return abs(float(drift)) <= tolerance


def without_outliers(samples: Sequence[float], mads: float) -> list[int]:
    """Positions of the samples within ``mads`` scaled median deviations; all if 0."""
    values = np.asarray(samples, dtype=np.float64)
    if mads == 0 or values.size < 3:
        return list(range(values.size))
    deviation = np.abs(values - np.median(values))
    # 1.4826 makes the median deviation of a normal sample its standard deviation.
    scale = 1.4826 * float(np.median(deviation))
    if scale == 0:
        return list(range(values.size))
    return [int(i) for i in np.flatnonzero(deviation <= mads * scale)]
