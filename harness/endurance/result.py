"""A wear measurement as plain data: never a WAF without profile, policy and fill state."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.endurance.lifetimes import Lifetimes, hdd_days, lifetimes, rated_waf, required_dwpd
from harness.endurance.measure import Measured
from harness.endurance.steady import WINDOWS, Window, steady_windows
from harness.endurance.wear import Wear

FEW_ERASES = 10
DAY_S = 86400.0


def to_json(done: Wear) -> dict[str, Any]:
    """What ``harness wear --json`` prints."""
    profile, found = done.profile, done.measured
    assert found.total is not None
    rates = _rates(done)
    rate = rates[0] if rates else None
    return {
        "source": "ftl-model",
        "input": done.source.name,
        "input_kind": done.source.kind,
        **done.source.facts,
        "profile": profile.model_dump(mode="json", exclude_none=True),
        "policy": profile.policy,
        "thresholds": _thresholds(done),
        "waf": _waf(done),
        "stopped": found.stopped,
        "snapshots": [
            {"event": snapshot.event, **snapshot.counters.to_json()} for snapshot in found.snapshots
        ],
        "counted_from": "the drive's first command" if _from_new(done) else "the end of the fill",
        "windows": [_window(window) for window in found.windows],
        **_bytes(done),
        **_beside(done),
        "erases": _erases(done.erases),
        "by_class": _by_class(done),
        **_rate(done, rate),
        "rates": rates[1:],
        "affordable_bytes_per_day": _affordable(done),
        "lifetimes_from": _basis(done)[1],
        "lifetimes": _lifetimes(done, rate["writes_per_day_bytes"] if rate else None).to_json(),
        "seconds": done.seconds,
        "notes": _notes(done),
    }


def _from_new(done: Wear) -> bool:
    return done.fills == 0 and done.options.resume is None


def _waf(done: Wear) -> dict[str, Any]:
    windows, band = done.measured.windows, done.band
    known = [done.steady_waf if done.steady_waf is not None else done.cumulative_waf]
    known += band.wafs if band else []
    wafs = [waf for waf in known if waf is not None]
    return {
        "first": windows[0].waf if windows else None,
        "cumulative": done.cumulative_waf,
        "steady": done.steady_waf,
        "low": min(wafs) if band and band.wafs else None,
        "high": max(wafs) if band and band.wafs else None,
        "band": None if band is None else band.what,
        "band_asked": None if band is None else band.asked,
        "band_done": None if band is None else len(band.wafs),
    }


def _window(window: Window) -> dict[str, Any]:
    return {
        "host_bytes": window.host_bytes,
        "host_pages": window.host_pages,
        "gc_pages": window.gc_pages,
        "erased_lines": window.erased_lines,
        "waf": window.waf,
    }


def _thresholds(done: Wear) -> dict[str, Any]:
    profile = done.profile
    if not profile.is_femu:
        return profile.drive.model_dump(mode="json")
    return {
        "gc_thres_pcent": profile.gc_thres_pcent,
        "gc_thres_pcent_high": profile.gc_thres_pcent_high,
        "gc_thres_lines": profile.gc_thres_lines,
        "gc_thres_lines_high": profile.gc_thres_lines_high,
    }


def _bytes(done: Wear) -> dict[str, Any]:
    total, page = done.measured.total, done.profile.page_bytes
    assert total is not None
    return {
        "host_bytes": total.host_bytes,
        "host_page_bytes": total.host_pages * page,
        "gc_bytes": total.gc_pages * page,
        "nand_bytes": (total.host_pages + total.gc_pages) * page,
        "page_bytes": page,
        "rounding": total.host_pages * page / total.host_bytes,
    }


def _beside(done: Wear) -> dict[str, Any]:
    """What must stand next to a WAF."""
    profile, shape, total = done.profile, done.shape, done.measured.total
    assert total is not None
    chunk = shape.chunk_bytes
    store = done.source.facts.get("store_bytes")
    flash = profile.lines * profile.pages_per_line
    used = store / profile.namespace_bytes if store else shape.touched_share
    return {
        "line_bytes": profile.line_bytes,
        "lines": profile.lines,
        "namespace_bytes": profile.namespace_bytes,
        "namespace_pages": profile.namespace_pages,
        "chunk_bytes": None if chunk is None else int(chunk),
        "chunk_per_line": None if chunk is None else chunk / profile.line_bytes,
        "over_provisioning": flash / done.mapped_pages - 1 if done.mapped_pages else None,
        "mapped_pages": done.mapped_pages,
        "mapped_share": done.mapped_pages / flash,
        "utilisation": used,
        "append_streams": shape.append_streams,
        "namespace_writes": total.host_bytes / profile.namespace_bytes,
        "repeats": done.measured.repeats,
        "discards": shape.discards,
        "precondition": done.fill,
        "fill": f"{done.fill}; {100 * done.mapped_pages / profile.namespace_pages:.1f} % of the "
        "namespace mapped at the end",
    }


def _erases(erases: np.ndarray) -> dict[str, Any]:
    """Distribution of erase counts over lines, since the drive was new."""
    counts, edges = np.histogram(erases, bins=_bins(erases))
    return {
        "min": int(erases.min()),
        "mean": float(erases.mean()),
        "max": int(erases.max()),
        "levelling": _levelling(erases),
        "histogram": {"edges": [float(e) for e in edges], "counts": [int(n) for n in counts]},
    }


def _bins(erases: np.ndarray) -> np.ndarray:
    """Edges of at most 40 bins, a whole number of erases wide."""
    low, high = int(erases.min()), int(erases.max())
    width = -(-(high - low + 1) // 40)
    return np.arange(low, high + width + 1, width) - 0.5


def _levelling(erases: np.ndarray) -> float | None:
    return float(erases.mean() / erases.max()) if erases.max() else None


def _by_class(done: Wear) -> list[dict[str, Any]]:
    if not done.source.has_classes or done.pages_by_class.sum() == 0:
        return []
    page = done.profile.page_bytes
    host, moved = done.pages_by_class
    names = dict(enumerate(done.source.class_names))
    return [
        {
            "class": names.get(number, "not of the input" if number else "unknown"),
            "host_bytes": int(host[number]) * page,
            "gc_bytes": int(moved[number]) * page,
            "waf": float((host[number] + moved[number]) / host[number]) if host[number] else None,
        }
        for number in range(256)
        if host[number] or moved[number]
    ]


def _rates(done: Wear) -> list[dict[str, Any]]:
    """Rates of writing, the one that counts first."""
    given = [(rate, "given (--writes-per-day)") for rate in done.options.writes_per_day]
    clocked = bytes_per_day(done.measured)
    if clocked is not None:
        given.append((clocked, f"clock of the requests {done.source.facts.get('requests')}"))
    return [_rate_entry(done, rate, where) for rate, where in given]


def _rate_entry(done: Wear, rate: float, where: str) -> dict[str, Any]:
    capacity = done.profile.capacity_bytes
    profile = done.profile
    hdd = None
    if profile.warranty_years is not None:
        hdd = hdd_days(profile.hdd_tb_per_year * 1e12, profile.warranty_years, rate, 0.0)
    return {
        "writes_per_day_bytes": rate,
        "rate_source": where,
        "required_dwpd": None if capacity is None else required_dwpd(capacity, rate),
        "lifetimes": _lifetimes(done, rate).to_json(),
        "hdd_days_without_reads": hdd,
    }


def _rate(done: Wear, rate: dict[str, Any] | None) -> dict[str, Any]:
    tokens, written = done.measured.new_tokens, done.measured.new_token_bytes
    return {
        "writes_per_day_bytes": rate["writes_per_day_bytes"] if rate else None,
        "rate_source": rate["rate_source"] if rate else None,
        "required_dwpd": rate["required_dwpd"] if rate else None,
        "hdd_days_without_reads": rate["hdd_days_without_reads"] if rate else None,
        "new_tokens": tokens or None,
        "bytes_per_new_token": written / tokens if tokens else None,
    }


def bytes_per_day(found: Measured) -> float | None:
    """Host bytes a day by the input's own clock, over the second half of what was written.

    The first half of a store's life is left out: it fills, and what it then writes for each
    request is not yet what it writes in the long run.
    """
    if len(found.clock) < 3:
        return None
    half = found.clock[-1][0] / 2
    late = [(written, clock) for written, clock in found.clock if written >= half]
    (bytes_from, clock_from), (bytes_to, clock_to) = late[0], late[-1]
    if clock_to <= clock_from or bytes_to <= bytes_from:
        return None
    return (bytes_to - bytes_from) / (clock_to - clock_from) * DAY_S


def _basis(done: Wear) -> tuple[float | None, str | None]:
    """The WAF that lifetimes are computed from, and what it is."""
    if done.steady_waf is not None:
        return done.steady_waf, f"steady WAF (last {WINDOWS} windows)"
    life, total = done.profile.tbw_bytes, done.measured.total
    if life is not None and total is not None and total.host_bytes >= life:
        return total.waf, "WAF over the whole rated life"
    return None, None


def _lifetimes(done: Wear, rate: float | None) -> Lifetimes:
    waf = _basis(done)[0]
    total = done.measured.total
    assert total is not None
    if waf is not None:  # writes smaller than a page cost a whole one
        waf *= total.host_pages * done.profile.page_bytes / total.host_bytes
    return lifetimes(done.profile, rate, waf, _levelling(done.erases))


def _affordable(done: Wear) -> float | None:
    """Host bytes a day at which the rated life lasts for the warranty, by ``paper_days``."""
    life, years, waf = done.profile.tbw_bytes, done.profile.warranty_years, _basis(done)[0]
    return None if life is None or years is None or waf is None else life / (365 * years * waf)


def _notes(done: Wear) -> list[str]:
    notes = list(done.source.labels)
    found, profile = done.measured, done.profile
    if not steady_windows(found.windows):
        notes.append(
            f"not steady after {len(found.windows)} windows of one namespace ({found.stopped}): "
            "no lifetime is extrapolated from its WAF"
        )
    if _from_new(done) and done.source.kind != "oplist":
        notes.append("the drive was empty at the start: a used one gives a higher WAF")
    if profile.drive.streams == "placement" and not profile.is_femu:
        notes.append("streams by placement id; an input without ids goes to stream 0")
    band = done.band
    if band is not None and len(band.wafs) < band.asked:
        notes.append(f"{len(band.wafs)} of {band.asked} {band.what} within the time budget")
    if done.erases.mean() < FEW_ERASES and profile.pe_cycles is not None:
        notes.append(
            f"levelling from {done.erases.mean():.1f} erases a line is rough: nand_days is low"
        )
    dated = done.options.writes_per_day or bytes_per_day(found) is not None
    if dated and profile.pe_cycles is None:
        notes.append(
            "no nand_days: the profile has no pe_cycles, which "
            "vendors rarely publish; with pe_cycles and pe_source (source, cell mode) there are"
        )
    if profile.waf_rated is None and rated_waf(profile) is not None:
        notes.append("waf_rated is estimated as P/E cycles x raw flash / TBW")
    return notes
