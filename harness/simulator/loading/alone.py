"""Load latency of a request that has the machine to itself: the closed forms.

The event-driven layer must give these same figures when requests arrive far apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.simulator.loading.rates import Path, Rates
from harness.simulator.loading.work import Work

F64 = NDArray[np.float64]


def ssd_s(work: Work, rates: Rates) -> F64:
    """Seconds in which each request's bytes come off the SSD; float64[n]."""
    return work.ssd_bytes / rates.ssd


def pcie_s(work: Work, rates: Rates, path: Path) -> F64:
    """Seconds on the way from DRAM to the GPU; what was read directly does not go there."""
    moved = work.cached_bytes if path == "staged" else work.dram_bytes
    return moved / rates.pcie


def recompute_s(work: Work, rates: Rates) -> F64:
    """Seconds of prefill for the tokens that the cache did not have."""
    return work.missed_tokens / rates.prefill


def load_s(work: Work, rates: Rates, path: Path = "staged", layers: int = 0) -> F64:
    """Both hops, one after the other, beside the recomputation (equations.md section 5).

    With ``layers`` the hops overlap in a window of two layers: while one layer is copied to the
    GPU the next is read, so the slower hop takes its whole time and the other one layer of its own.
    """
    first, second = ssd_s(work, rates), pcie_s(work, rates, path)
    hops = first + second
    if layers:
        hops = np.maximum(first, second) + np.minimum(first, second) / layers
    return np.maximum(hops, recompute_s(work, rates))


def prefetched_s(work: Work, rates: Rates, path: Path = "direct") -> F64:
    """With two queues: the whole prefetch first, and only then what comes from DRAM, beside the
    recomputation."""
    rest = pcie_s(work, rates, path)
    return ssd_s(work, rates) + np.maximum(rest, recompute_s(work, rates))
