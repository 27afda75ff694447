"""The seed simulator's constants, and what takes their place."""

from __future__ import annotations

from collections.abc import Sequence

from harness.bench.stats import Interval
from harness.calibrate.model import BandwidthSample, Constant, HopTerm, WafSample

SEED_B_SSD_GBPS = 10.0
SEED_B_PCIE_GBPS = 50.0
SEED_WAF = 1.0
SEED_R_PREFILL_TOKENS_PER_S = 60_000.0
"""Gandalf section 5.7; equations.md section 5."""

CAPTURED_NOTE = "the captured trace on a model as large as the loop device"
"""Marks WAF samples that say nothing about the drive's own size."""

_CONTIGUOUS = "session-contiguous"


def constants(
    bandwidth: Sequence[BandwidthSample], hops: Sequence[HopTerm], waf: Sequence[WafSample]
) -> list[Constant]:
    """All four constants, each replaced, imported or marked as not measured."""
    return [_b_ssd(bandwidth), _b_pcie(hops), _waf(waf), _r_prefill()]


def _b_ssd(bandwidth: Sequence[BandwidthSample]) -> Constant:
    """The best restore of a contiguous session, else the best sequential read."""
    quiet = [
        sample
        for sample in bandwidth
        if (sample.hop, sample.direction) == ("ssd-to-dram", "read")
        and sample.transport == "posix-direct"
        and not sample.background_writes
    ]
    best = _best([b for b in quiet if b.layout == _CONTIGUOUS]) or _best(
        [b for b in quiet if b.pattern == "sequential"]
    )
    if best is None:
        return _missing("B_ssd", "GB/s", SEED_B_SSD_GBPS, "no read bandwidth was measured")
    what = (
        f"{best.layout}, {best.model}, {best.context_tokens} tokens, {best.access}"
        if best.layout
        else f"{best.pattern} read"
    )
    conditions = (
        f"{what}; {best.request_bytes / 1024:.0f} KiB a command, depth {best.queue_depth}, "
        f"{best.engine}, {best.transport}, {best.hop}"
    )
    return Constant(
        name="B_ssd", unit="GB/s", seed=SEED_B_SSD_GBPS, status="measured", value=best.gbps,
        conditions=conditions,
    )  # fmt: skip


def _best(samples: list[BandwidthSample]) -> BandwidthSample | None:
    return max(samples, key=lambda sample: sample.gbps.median, default=None)


def _b_pcie(hops: Sequence[HopTerm]) -> Constant:
    for hop in hops:
        if hop.hop == "dram-to-gpu":
            return Constant(
                name="B_pcie", unit="GB/s", seed=SEED_B_PCIE_GBPS, status="measured",
                value=hop.gbps, conditions=hop.conditions,
            )  # fmt: skip
    return _missing("B_pcie", "GB/s", SEED_B_PCIE_GBPS, "no copy to a GPU was measured")


def _waf(samples: Sequence[WafSample]) -> Constant:
    """A steady WAF replaces the constant; one that was still moving does not."""
    sample, unit = best_waf(samples), "NAND bytes / host bytes"
    if sample is None:
        return _missing("WAF", unit, SEED_WAF, "no wear result was given")
    if sample.point is not None:
        reason = f"only points of sweeps were given ({len(samples)}): choose one by its conditions"
        return _missing("WAF", unit, SEED_WAF, reason)
    store = f", store {sample.store}" if sample.store else ""
    origin = f"{sample.source}, profile {sample.profile}, policy {sample.policy}{store}"
    if sample.steady is None:
        reason = f"{origin}: not steady, cumulative {sample.cumulative:.3g} so far"
        return _missing("WAF", unit, SEED_WAF, reason)
    known = [sample.steady, *(w for w in (sample.low, sample.high) if w is not None)]
    band = "the band over the order of requests" if len(known) > 1 else "not measured"
    return Constant(
        name="WAF",
        unit=unit,
        seed=SEED_WAF,
        status="modelled" if sample.source == "ftl-model" else "measured",
        value=Interval(median=sample.steady, low=min(known), high=max(known), n=1),
        conditions=f"{origin}; steady; interval: {band}",
    )


def best_waf(samples: Sequence[WafSample]) -> WafSample | None:
    """The sample that speaks for the drive: of its own size and no point of a sweep, steady,
    measured before modelled."""
    rank = {"device-counters": 0, "femu": 1, "ftl-model": 2}
    return min(
        samples,
        key=lambda s: (
            s.note == CAPTURED_NOTE,
            s.point is not None,
            s.steady is None,
            rank[s.source],
        ),
        default=None,
    )


def _r_prefill() -> Constant:
    return Constant(
        name="R_prefill",
        unit="tokens/s",
        seed=SEED_R_PREFILL_TOKENS_PER_S,
        status="imported",
        value=None,
        conditions="a property of model and GPU, never measured here: give your own, or take the "
        "published simulator's",
    )


def _missing(name: str, unit: str, seed: float, reason: str) -> Constant:
    return Constant.model_validate(
        {
            "name": name,
            "unit": unit,
            "seed": seed,
            "status": "not-measured",
            "value": None,
            "conditions": reason,
        }
    )
