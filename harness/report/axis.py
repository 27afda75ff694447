"""An axis of equal bins whose range doubles when a value falls beyond it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass
class GrowingAxis:
    """``bins`` (a power of two) of ``width`` each, from 0. The range need not be known ahead."""

    bins: int
    width: int

    @property
    def top(self) -> int:
        """First value beyond the axis."""
        return self.bins * self.width

    def bins_of(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Bin index (int64) of each value; all must lie on the axis."""
        return values // self.width

    def factor_for(self, value: int) -> int:
        """By what power of two the axis must widen to hold ``value``."""
        factor = 1
        while value >= self.top * factor:
            factor *= 2
        return factor

    def fold(self, array: npt.NDArray[Any], factor: int, axis: int) -> npt.NDArray[Any]:
        """``array`` with each ``factor`` bins of ``axis`` summed into one, zeros behind."""
        if factor == 1:
            return array
        moved = np.moveaxis(array, axis, -1)
        result = np.zeros_like(moved)
        if factor >= self.bins:
            result[..., 0] = moved.sum(axis=-1)
        else:
            kept = self.bins // factor
            result[..., :kept] = moved.reshape(*moved.shape[:-1], kept, factor).sum(axis=-1)
        return np.moveaxis(result, -1, axis)

    def widen(self, factor: int) -> None:
        """Make each bin ``factor`` times as wide; arrays are folded by the caller."""
        self.width *= factor

    def grow(self, value: int, array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        """Widen to hold ``value`` and return ``array`` folded to match."""
        factor = self.factor_for(value)
        folded = self.fold(array, factor, axis)
        self.widen(factor)
        return folded
