"""What a load does to requests, as figures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.core.config import Strict
from harness.core.errors import UsageError
from harness.simulator.loading.alone import load_s, prefetched_s
from harness.simulator.loading.cost import Cost, Prices, cost_per_thousand
from harness.simulator.loading.events import Record
from harness.simulator.loading.options import LoadOptions
from harness.simulator.loading.rates import Rates
from harness.simulator.loading.servers import serve
from harness.simulator.loading.work import Work


class Spread(Strict):
    """Mean and quantiles over requests, seconds."""

    mean: float
    p50: float
    p99: float
    max: float


class LoadResult(Strict):
    """One load on one discipline.

    ``alone_s``: load latency of each request if it had the machine to itself. ``ttft_s``: from
    arrival until all is loaded and recomputed. ``prefetch_s``: from arrival until the SSD part is
    in place, where there is one. ``ceiling``: share of the prompt tokens that the cache had;
    ``delivered``: share that reached the GPU. ``cancelled``: requests whose restore was given up.
    ``read_share``: bytes read off the SSD for each byte delivered from it. ``busy``: share of the
    time that SSD, PCIe and GPUs worked. ``usd_per_thousand``: None without prices.
    """

    options: LoadOptions
    requests: int
    requests_per_s: float
    alone_s: Spread
    ttft_s: Spread
    prefetch_s: Spread | None
    ceiling: float
    delivered: float
    cancelled: int
    read_share: float | None
    busy: dict[str, float]
    usd_per_thousand: dict[str, float] | None
    constants: dict[str, str]


def spread(values_s: NDArray[np.float64]) -> Spread:
    """The spread of at least one value."""
    p50, p99 = np.percentile(values_s, [50, 99])
    return Spread(
        mean=float(values_s.mean()), p50=float(p50), p99=float(p99), max=float(values_s.max())
    )


def under_load(
    work: Work, rates: Rates, options: LoadOptions, prices: Prices | None = None
) -> LoadResult:
    """Serve ``work`` and sum up; UsageError for a log without requests."""
    if not len(work):
        raise UsageError("the run holds no request")
    record = serve(work, rates, options)
    lost_tokens = np.where(record.lost, work.ssd_tokens, 0.0)
    cost = (
        cost_per_thousand(work, rates, prices, work.missed_tokens + lost_tokens) if prices else None
    )
    tokens = float(work.context_tokens.sum()) or 1.0
    delivered_bytes = float(work.ssd_bytes[~record.lost].sum())
    read_bytes = float(record.read_bytes.sum())
    prefetched = record.prefetch_s[~np.isnan(record.prefetch_s)]
    span_s = float(record.done_s.max() - record.arrival_s[0])
    arrivals_s = float(record.arrival_s[-1] - record.arrival_s[0])
    return LoadResult(
        options=options,
        requests=len(work),
        requests_per_s=(len(work) - 1) / arrivals_s if arrivals_s > 0 else 0.0,
        alone_s=spread(_alone_s(work, rates, options)),
        ttft_s=spread(record.done_s - record.arrival_s),
        prefetch_s=spread(prefetched) if len(prefetched) else None,
        ceiling=float(work.hit_tokens.sum()) / tokens,
        delivered=float(work.hit_tokens.sum() - lost_tokens.sum()) / tokens,
        cancelled=int(record.lost.sum()),
        read_share=read_bytes / delivered_bytes if delivered_bytes else None,
        busy=_busy(record, span_s, options.gpus),
        usd_per_thousand=_dollars(cost),
        constants=dict(rates.sources),
    )


def _alone_s(work: Work, rates: Rates, options: LoadOptions) -> NDArray[np.float64]:
    if options.scheduler == "two-queues":
        return prefetched_s(work, rates, options.path)
    return load_s(work, rates, options.path, options.layers)


def _busy(record: Record, span_s: float, gpus: int) -> dict[str, float]:
    span_s = span_s or 1.0
    return {
        "ssd": record.ssd_busy_s / span_s,
        "pcie": record.pcie_busy_s / span_s,
        "gpu": record.gpu_busy_s / span_s / gpus,
    }


def _dollars(cost: Cost | None) -> dict[str, float] | None:
    if cost is None:
        return None
    return {"gpu": cost.gpu_usd, "ssd": cost.ssd_usd, "total": cost.total_usd}
