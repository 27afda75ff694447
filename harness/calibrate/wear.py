"""From wear results to WAF samples, their fits, and endurance terms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from harness.calibrate.fits import fit_waf
from harness.calibrate.model import (
    EnduranceTerm,
    Range,
    Residuals,
    WafByLayout,
    WafOfLayout,
    WafSample,
    WafTerm,
)
from harness.core.config import validate
from harness.core.errors import UsageError
from harness.core.profiles import DeviceProfile, load_profile

Variable = Literal["utilisation", "over_provisioning", "chunk_per_line"]
VARIABLES: tuple[Variable, ...] = ("utilisation", "over_provisioning", "chunk_per_line")

Held = dict[str, str | int | float | None]

_BESIDE = (
    "trace_sha256", "chunk_bytes", "line_bytes", "utilisation", "over_provisioning",
    "append_streams", "namespace_writes", "namespace_bytes", "discards", "requests", "model",
    "point",
)  # fmt: skip
"""What a wear result says beside its WAF, by the same names."""

_EXACT = (
    "store", "policy", "profile", "source", "model", "requests", "trace_sha256", "precondition",
    "note", "namespace_bytes", "line_bytes", "chunk_bytes",
)  # fmt: skip
ROUNDED = ("utilisation", "over_provisioning")
"""Conditions that are equal where they are to two digits: see ``rounded``."""

_FREE: dict[Variable, tuple[tuple[str, ...], ...]] = {
    "utilisation": (("utilisation",),),
    "over_provisioning": (("over_provisioning",),),
    # The ratio changes by the chunk or by the line: a curve each.
    "chunk_per_line": (("chunk_bytes",), ("line_bytes",)),
}
"""Figures that differ along a curve."""


def waf_samples(result: dict[str, Any], run: str, note: str | None = None) -> list[WafSample]:
    """The WAF of a ``wear`` result, or of every point of a wear sweep (``points``).

    A result whose WAF is null (nothing was written, or addresses were stretched) gives none.
    """
    points = result.get("points")
    if isinstance(points, list):
        return [sample for point in points for sample in waf_samples(point, run, note)]
    waf = result.get("waf")
    if not isinstance(waf, dict) or waf.get("cumulative") is None:
        return []
    facts = {key: result.get(key) for key in _BESIDE}
    record = {
        **facts,
        "source": result.get("source", "ftl-model"),
        "profile": _named(result, "profile"),
        "policy": _named(result, "policy"),
        "store": _optional_name(result.get("store")),
        "precondition": _optional_name(result.get("precondition")),
        **{key: waf.get(key) for key in ("first", "cumulative", "steady", "low", "high")},
        "note": note,
        "run": run,
    }
    return [validate(record, WafSample, f"{run}, wear result")]


def waf_terms(samples: Sequence[WafSample]) -> list[WafTerm]:
    """A fit of steady WAF against each variable, where only that variable differs."""
    steady = [sample for sample in samples if sample.steady is not None]
    terms: list[WafTerm] = []
    for variable in VARIABLES:
        for free in _FREE[variable]:
            curves: dict[tuple[Any, ...], list[WafSample]] = defaultdict(list)
            for sample in steady:
                if value_of(sample, variable):
                    curves[tuple(held(sample, free).items())].append(sample)
            terms += [
                _waf_term(dict(key), variable, curve)
                for key, curve in curves.items()
                if len({rounded(value_of(sample, variable)) for sample in curve}) >= 3
            ]
    return terms


def waf_layouts(samples: Sequence[WafSample]) -> list[WafByLayout]:
    """Stores side by side wherever several were measured under equal conditions.

    A store's own chunk is part of its layout; where a sweep gave stores several, they are compared
    chunk by chunk.
    """
    groups: dict[tuple[Any, ...], list[WafSample]] = defaultdict(list)
    for sample in samples:
        if sample.store is not None:
            groups[tuple(held(sample, ("store", "chunk_bytes")).items())].append(sample)
    found = []
    for members in groups.values():
        chunks = {(sample.store, sample.chunk_bytes) for sample in members}
        swept = len(chunks) > len({sample.store for sample in members})
        for chunk in dict.fromkeys(sample.chunk_bytes if swept else None for sample in members):
            some = [sample for sample in members if not swept or sample.chunk_bytes == chunk]
            best = {sample.store: sample for sample in sorted(some, key=_is_steady)}
            if len(best) > 1:
                free = ("store",) if swept else ("store", "chunk_bytes")
                stores = [_of_layout(sample) for sample in best.values()]
                found.append(WafByLayout(held=held(some[0], free), stores=stores))
    return found


def _is_steady(sample: WafSample) -> bool:
    return sample.steady is not None


def _of_layout(sample: WafSample) -> WafOfLayout:
    assert sample.store is not None
    return WafOfLayout(
        store=sample.store,
        waf=sample.cumulative if sample.steady is None else sample.steady,
        steady=sample.steady is not None,
        low=sample.low,
        high=sample.high,
        chunk_bytes=sample.chunk_bytes,
        run=sample.run,
    )


def value_of(sample: WafSample, variable: Variable) -> float | None:
    """The value of a variable in a sample; None where it is not recorded."""
    if variable == "chunk_per_line":
        if not sample.chunk_bytes or not sample.line_bytes:
            return None
        return sample.chunk_bytes / sample.line_bytes
    value: float | None = getattr(sample, variable)
    return value


def held(sample: WafSample, free: Sequence[str]) -> Held:
    """All conditions of a sample but ``free``: equal for samples that lie on one curve."""
    conditions: Held = {name: getattr(sample, name) for name in _EXACT if name not in free}
    return conditions | {
        name: rounded(getattr(sample, name)) for name in ROUNDED if name not in free
    }


def rounded(value: float | None) -> float | None:
    """To two digits: stores and drives consist of whole slots and lines, so that a utilisation
    of 0.85 comes out as 0.84998."""
    return None if value is None else float(f"{value:.2g}")


def _waf_term(conditions: Held, variable: Variable, curve: Sequence[WafSample]) -> WafTerm:
    points = sorted((value_of(sample, variable) or 0.0, sample.steady or 1.0) for sample in curve)
    x, waf = np.array(points).T
    fitted, rejected = fit_waf(x, waf)
    first = curve[0]
    return WafTerm(
        store=first.store,
        policy=first.policy,
        profile=first.profile,
        variable=variable,
        form="linear" if fitted.form == "linear" else "power",
        a=fitted.parameters["a"],
        b=fitted.parameters["b"],
        residuals=Residuals(rms=fitted.rms, worst=fitted.worst),
        error=fitted.error,
        rejected=rejected,
        n=len(x),
        valid=Range(low=float(x.min()), high=float(x.max())),
        held=conditions,
        runs=sorted({sample.run for sample in curve}),
    )


def endurance(result: dict[str, Any], run: str) -> list[EnduranceTerm]:
    """Budget and lifetimes of a wear result, one for each policy that it compares.

    None for a profile without a rating. A sweep changes the drive itself from point to point:
    its drives are nobody's, and none is given.
    """
    if "grid" in result:
        return []
    several = result.get("points")
    each = several if isinstance(several, list) else [result]
    return [term for one in each if (term := _endurance(one, run)) is not None]


def _endurance(result: dict[str, Any], run: str) -> EnduranceTerm | None:
    profile = _profile(result, run)
    if profile is None or profile.tbw_bytes is None:
        return None
    assert profile.capacity_bytes and profile.dwpd and profile.warranty_years  # TBW has them
    lifetimes = result.get("lifetimes") or {}
    price, waf = profile.price_usd, result.get("waf") or {}
    rests_on = waf.get("cumulative") if waf.get("steady") is None else waf.get("steady")
    return EnduranceTerm(
        profile=profile.name,
        policy=_optional_name(result.get("policy")),
        store=_optional_name(result.get("store")),
        waf=rests_on if lifetimes.get("paper_days") else None,
        capacity_bytes=profile.capacity_bytes,
        dwpd=profile.dwpd,
        warranty_years=profile.warranty_years,
        tbw_bytes=profile.tbw_bytes,
        pe_cycles=profile.pe_cycles,
        raw_bytes=profile.raw_bytes if profile.pe_cycles else None,
        price_usd=price,
        usd_per_written_byte=price / profile.tbw_bytes if price else None,
        waf_rated=profile.waf_rated,
        writes_per_day_bytes=result.get("writes_per_day_bytes"),
        rate_source=result.get("rate_source"),
        required_dwpd=result.get("required_dwpd"),
        paper_days=lifetimes.get("paper_days"),
        waf1_days=lifetimes.get("waf1_days"),
        nand_days=lifetimes.get("nand_days"),
        nand_level_days=lifetimes.get("nand_level_days"),
        jedec_days=lifetimes.get("jedec_days"),
        run=run,
    )


def _profile(result: dict[str, Any], run: str) -> DeviceProfile | None:
    given = result.get("profile")
    if isinstance(given, dict):
        return validate(given, DeviceProfile, f"profile of {run}")
    try:
        return load_profile(str(given))
    except UsageError:  # a profile of the user's own, not here any more
        return None


def _named(result: dict[str, Any], key: str) -> str:
    name = _optional_name(result.get(key))
    if name is None:
        raise UsageError(f"a wear result without {key}: a WAF means nothing without it")
    return name


def _optional_name(value: Any) -> str | None:
    """A name that is given as such, or inside an object."""
    if isinstance(value, dict):
        value = value.get("name")
    return None if value is None else str(value)
