"""What a request costs: GPU time for what is recomputed, drive for what is written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.simulator.loading.rates import Rates
from harness.simulator.loading.work import Work


@dataclass(frozen=True)
class Prices:
    """Dollars an hour of the GPUs that prefill at the given rate; of the drive a written byte.

    ``usd_per_written_byte`` is price over TBW. No price has a default: without it there is no cost.
    """

    gpu_usd_per_hour: float
    usd_per_written_byte: float

    def __post_init__(self) -> None:
        if self.gpu_usd_per_hour < 0 or self.usd_per_written_byte < 0:
            raise UsageError("prices must not be negative")


@dataclass(frozen=True)
class Cost:
    """Dollars for a thousand requests, in its two parts."""

    gpu_usd: float
    ssd_usd: float

    @property
    def total_usd(self) -> float:
        """Both parts."""
        return self.gpu_usd + self.ssd_usd


def cost_per_thousand(
    work: Work, rates: Rates, prices: Prices, missed_tokens: NDArray[np.float64] | None = None
) -> Cost:
    """Mean cost of a thousand requests (equations.md section 5, with WAF on the written bytes).

    ``missed_tokens``: float64[n], where cancelled prefetches added to what the cache missed.
    """
    missed = work.missed_tokens if missed_tokens is None else missed_tokens
    gpu_s = float(missed.sum()) / rates.prefill
    nand = float(work.written_bytes.sum()) * rates.waf
    scale = 1000 / max(len(work), 1)
    return Cost(
        gpu_usd=gpu_s * prices.gpu_usd_per_hour / 3600 * scale,
        ssd_usd=nand * prices.usd_per_written_byte * scale,
    )
