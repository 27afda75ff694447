"""From wear results to WAF samples, their fits, and endurance terms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from harness.calibrate.fits import fit_waf
from harness.calibrate.model import EnduranceTerm, Range, Residuals, WafSample, WafTerm
from harness.core.config import validate
from harness.core.errors import UsageError
from harness.core.profiles import DeviceProfile, load_profile

Variable = Literal["utilisation", "over_provisioning", "chunk_per_line"]
VARIABLES: tuple[Variable, ...] = ("utilisation", "over_provisioning", "chunk_per_line")

_BESIDE = (
    "trace_sha256", "chunk_bytes", "line_bytes", "utilisation", "over_provisioning",
    "append_streams", "namespace_writes", "discards",
)  # fmt: skip
"""What a wear result says beside its WAF, by the same names."""


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
    terms = []
    for variable in VARIABLES:
        groups: dict[tuple[Any, ...], list[tuple[float, float]]] = defaultdict(list)
        for sample in samples:
            x = value_of(sample, variable)
            if x is not None and sample.steady is not None:
                groups[_held(sample, variable)].append((x, sample.steady))
        for key, members in groups.items():
            term = _waf_term(key, variable, members)
            if term is not None:
                terms.append(term)
    return terms


def value_of(sample: WafSample, variable: Variable) -> float | None:
    """The value of a variable in a sample; None where it is not recorded."""
    if variable == "chunk_per_line":
        if not sample.chunk_bytes or not sample.line_bytes:
            return None
        return sample.chunk_bytes / sample.line_bytes
    value: float | None = getattr(sample, variable)
    return value


def _held(sample: WafSample, variable: Variable) -> tuple[Any, ...]:
    """Everything but ``variable`` that must be equal for samples to lie on one curve."""
    others = [value_of(sample, other) for other in VARIABLES if other != variable]
    # Swept over-provisioning renames nothing, but another profile is another drive.
    return (sample.store, sample.policy, sample.profile, sample.source, *others)


def _waf_term(
    key: tuple[Any, ...], variable: Variable, members: list[tuple[float, float]]
) -> WafTerm | None:
    x, waf = np.array(sorted(members)).T
    if len(np.unique(x)) < 3:
        return None
    fitted = fit_waf(x, waf)
    return WafTerm(
        store=key[0],
        policy=key[1],
        profile=key[2],
        variable=variable,
        form="linear" if fitted.form == "linear" else "power",
        a=fitted.parameters["a"],
        b=fitted.parameters["b"],
        residuals=Residuals(rms=fitted.rms, worst=fitted.worst),
        n=len(x),
        valid=Range(low=float(x.min()), high=float(x.max())),
    )


def endurance(result: dict[str, Any], run: str) -> EnduranceTerm | None:
    """Budget and lifetimes of a wear result; None if its profile has no rating."""
    profile = _profile(result, run)
    if profile is None or profile.tbw_bytes is None:
        return None
    assert profile.capacity_bytes and profile.dwpd and profile.warranty_years  # TBW has them
    lifetimes = result.get("lifetimes") or {}
    price = profile.price_usd
    return EnduranceTerm(
        profile=profile.name,
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
