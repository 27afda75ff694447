"""Wear: write amplification, erases and what they make of the drive's life."""

from __future__ import annotations

from typing import Any

from harness.report import wear_plots, wear_policies, wear_sweep, wear_tables
from harness.report.model import (
    Better,
    Figure,
    KeyNumber,
    Level,
    Section,
    Verdict,
)
from harness.report.run import Run
from harness.report.values import cell, days, decimal_bytes, number, strings
from harness.report.wear_plots import NAMES
from harness.report.wear_tables import CONVENTIONS, policy_name, profile_name

_HEADLINES = {"paper_days": 2, "waf1_days": 3}


def section(run: Run) -> Section:
    """The section of the wear results that ``run`` holds."""
    name, title = "wear", "Wear and lifetime"
    wears = {key: run.results[key] for key in NAMES if key in run.results}
    if not wears:
        return Section(name, title, absent=run.why_absent("wear"))
    if wear_sweep.points_of(wears.get("wear", {})):
        return wear_sweep.section(name, title, wears["wear"])
    tables = [
        wear_tables.amplification(wears),
        *wear_tables.lifetimes(wears),
        *wear_tables.rates(wears),
        *wear_tables.classes(wears),
        *wear_tables.erases(wears),
        *(table for data in wears.values() for table in wear_policies.tables(data)),
    ]
    figures: list[Figure] = []
    for key, data in wears.items():
        figures += wear_plots.figures(key, data, _device(key, data))
    return Section(
        name,
        title,
        "How much more is written to the flash than the store wrote, and how long does that last?",
        verdicts=tuple(v for key, data in wears.items() for v in _verdict(key, data)),
        keys=tuple(k for key, data in wears.items() for k in _keys(key, data)),
        tables=tuple(tables),
        figures=tuple(figures),
        notes=tuple(n for key, data in wears.items() for n in _notes(key, data)),
    )


def _device(key: str, data: dict[str, Any]) -> str:
    return f"FTL model, {profile_name(data)}, policy {policy_name(data)} ({NAMES[key]})"


def _verdict(key: str, data: dict[str, Any]) -> list[Verdict]:
    steady, last = number(data, "waf.steady"), number(data, "waf.cumulative")
    if steady is None and last is None:
        return []
    subject = f"WAF, {NAMES[key]}"
    if steady is not None:
        return [Verdict(subject, "STEADY", Level.GOOD, f"{cell(steady).text} ({_band(data)})")]
    detail = f"cumulative {cell(last).text}; no lifetime is extrapolated from it"
    return [Verdict(subject, "NOT STEADY", Level.CAUTION, detail)]


def _band(data: dict[str, Any]) -> str:
    low, high = number(data, "waf.low"), number(data, "waf.high")
    if low is None or high is None:
        return "no band measured"
    return f"band {cell(low).text}–{cell(high).text}"


def _keys(key: str, data: dict[str, Any]) -> list[KeyNumber]:
    name, found = NAMES[key], []
    for part, label in (("steady", "steady"), ("cumulative", "cumulative"), ("first", "first")):
        value = number(data, f"waf.{part}")
        if value is None:
            continue
        bounds = part == _headline(data)  # the band is that of the figure beside it
        found.append(
            KeyNumber(
                f"WAF {label}, {name}",
                cell(value, f"{key}.waf.{part}"),
                better=Better.LOWER,
                low=number(data, "waf.low") if bounds else None,
                high=number(data, "waf.high") if bounds else None,
                headline=int(key == "wear" and bounds),
                tile=f"WAF, {label}",
            )
        )
    for part in CONVENTIONS:
        value = number(data, f"lifetimes.{part}")
        if value is not None:
            label = f"Lifetime, {part}" + ("" if key == "wear" else f", {name}")
            shown = days(value, f"{key}.lifetimes.{part}")
            headline = _HEADLINES.get(part, 0) if key == "wear" else 0
            found.append(KeyNumber(label, shown, better=Better.HIGHER, headline=headline))
    required = number(data, "required_dwpd")
    if required is not None:
        shown = cell(required, f"{key}.required_dwpd")
        found.append(KeyNumber(f"Required DWPD, {name}", shown, better=Better.LOWER))
    affordable = number(data, "affordable_bytes_per_day")
    if affordable is not None:
        shown = decimal_bytes(affordable, f"{key}.affordable_bytes_per_day")
        tile = "Writes a day that last the warranty"
        headline, label = 4 * (key == "wear"), f"{tile}, {name}"
        found.append(KeyNumber(label, shown, better=Better.HIGHER, headline=headline, tile=tile))
    return found


def _headline(data: dict[str, Any]) -> str:
    return "cumulative" if number(data, "waf.steady") is None else "steady"


def _notes(key: str, data: dict[str, Any]) -> list[str]:
    return [
        f"{NAMES[key]}: {note}"
        for part in ("notes", "caveats", "warnings", "labels")
        for note in strings(data, part)
    ]
