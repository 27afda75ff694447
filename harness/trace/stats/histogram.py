"""Histograms of bounded size for streams of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_SUB_BINS = 64
_EXPONENTS = 66

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


class LogHistogram:
    """Counts of non-negative numbers in bins 0.8 to 1.6 % wide, with exact extremes and sum."""

    def __init__(self) -> None:
        self.counts = np.zeros(_EXPONENTS * _SUB_BINS, np.int64)
        self.total = 0.0
        self.low: int | None = None
        self.high: int | None = None

    @property
    def count(self) -> int:
        """How many numbers were added."""
        return int(self.counts.sum())

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add ``values`` (integers >= 0)."""
        if len(values) == 0:
            return
        mantissa, exponent = np.frexp(values.astype(np.float64))
        sub = np.maximum((mantissa * 2 - 1) * _SUB_BINS, 0).astype(np.int64)
        bins = exponent.astype(np.int64) * _SUB_BINS + sub
        self.counts += np.bincount(bins, minlength=len(self.counts))
        self.total += float(values.sum(dtype=np.float64))
        low, high = int(values.min()), int(values.max())
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)

    @staticmethod
    def edges() -> npt.NDArray[np.float64]:
        """Lower edge of every bin."""
        number = np.arange(_EXPONENTS * _SUB_BINS)
        mantissa = 0.5 + (number % _SUB_BINS) / (2 * _SUB_BINS)
        edges = np.ldexp(mantissa, number // _SUB_BINS)
        edges[0] = 0.0
        return np.asarray(edges, np.float64)

    def percentile(self, percent: float) -> int | None:
        """The value below which ``percent`` of the numbers lie, within 1 %; None if empty."""
        if self.low is None or self.high is None:
            return None
        rank = max(1, int(np.ceil(self.count * percent / 100)))
        position = int(np.searchsorted(np.cumsum(self.counts), rank))
        edges = self.edges()
        upper = edges[position + 1] if position + 1 < len(edges) else float(self.high)
        return int(min(max((edges[position] + upper) / 2, self.low), self.high))

    def summary(self) -> dict[str, float | int | None]:
        """Count, mean, extremes and percentiles; None where there is nothing."""
        count = self.count
        named = {f"p{percent:g}": self.percentile(percent) for percent in PERCENTILES}
        mean = self.total / count if count else None
        return {"count": count, "min": self.low, "mean": mean, **named, "max": self.high}


class ExactCounts:
    """Counts of numbers by value while few differ; later ones beyond ``limit`` go to a rest."""

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self.counts: dict[int, int] = {}
        self.rest = 0

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add ``values`` (integers)."""
        distinct, counts = np.unique(values, return_counts=True)
        for value, count in zip(distinct.tolist(), counts.tolist(), strict=True):
            if value in self.counts or len(self.counts) < self._limit:
                self.counts[value] = self.counts.get(value, 0) + count
            else:
                self.rest += count

    def most_common(self, number: int) -> list[tuple[int, int]]:
        """(value, count), most frequent first; the smaller value first among equals."""
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:number]
