"""Work by hand: a few requests with known bytes, and rates in round figures."""

from __future__ import annotations

import numpy as np

from harness.simulator.loading.rates import Rates
from harness.simulator.loading.work import Work

GB = 1e9


def work(*rows: tuple[float, float, float, float], hit_tokens: float = 1000.0) -> Work:
    """Requests as (arrival_s, GB on the SSD, GB in DRAM, tokens missed)."""
    table = np.array(rows, np.float64).reshape(-1, 4)
    hits = np.where(table[:, 1] + table[:, 2] > 0, hit_tokens, 0.0)
    return Work(
        arrival_s=table[:, 0],
        ssd_bytes=table[:, 1] * GB,
        dram_bytes=table[:, 2] * GB,
        hit_tokens=hits,
        ssd_tokens=np.where(table[:, 1] > 0, hits, 0.0),
        missed_tokens=table[:, 3],
        context_tokens=hits + table[:, 3],
        written_bytes=np.full(len(table), 2 * GB),
    )


def rates(requests: int) -> Rates:
    """1 GB/s off the SSD, 10 GB/s over PCIe, 1000 tokens/s."""
    return Rates(np.full(requests, GB), 10 * GB, 1000.0, 1.5, {"B_ssd": "hand"})
