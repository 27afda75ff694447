"""Wear: write amplification, erases and what they make of the drive's life."""

from __future__ import annotations

from typing import Any

from harness.report import wear_plots
from harness.report.model import (
    Better,
    Cell,
    Column,
    Figure,
    KeyNumber,
    Level,
    Section,
    Table,
    Verdict,
)
from harness.report.run import Run
from harness.report.values import (
    ABSENT,
    cell,
    days,
    decimal_bytes,
    dig,
    number,
    size,
    strings,
    text,
)
from harness.report.wear_plots import NAMES

CONVENTIONS = {
    "paper_days": "TBW / (writes a day x WAF): the published simulator's formula, WAF measured",
    "waf1_days": "TBW / writes a day: the published simulator's assumption, WAF = 1",
    "nand_days": "P/E cycles x raw bytes x levelling / (writes a day x WAF): the flash itself",
    "nand_level_days": "the same with perfect levelling",
    "jedec_days": "TBW x rated WAF / (writes a day x WAF): the vendor's own workload as yardstick",
}
_HEADLINES = {"paper_days": 2, "waf1_days": 3}
_BESIDE = {
    "line_bytes": ("line size", size),
    "chunk_bytes": ("chunk size", size),
    "chunk_per_line": ("chunk / line", cell),
    "over_provisioning": ("over-provisioning, effective", cell),
    "utilisation": ("store / namespace", cell),
    "append_streams": ("append streams", cell),
    "namespace_writes": ("namespace writes done", cell),
    "precondition": ("preconditioning", cell),
    "discards": ("discards seen", cell),
    "fill": ("fill state", cell),
}


def section(run: Run) -> Section:
    """The section of the wear results that ``run`` holds."""
    name, title = "wear", "Wear and lifetime"
    wears = {key: run.results[key] for key in NAMES if key in run.results}
    if not wears:
        return Section(name, title, absent=run.why_absent("wear"))
    tables = [_amplification(wears), *_lifetimes(wears), *_erases(wears)]
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


def profile_name(data: dict[str, Any]) -> str:
    """The profile, whether the file names it or holds it whole."""
    return text(data, "profile") or text(data, "profile.name") or "profile not recorded"


def policy_name(data: dict[str, Any]) -> str:
    """The policy, whether the file names it or holds it whole."""
    return text(data, "policy") or text(data, "policy.name") or "policy not recorded"


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
        bounds = part == "steady"
        found.append(
            KeyNumber(
                f"WAF {label}, {name}",
                cell(value, f"{key}.waf.{part}"),
                better=Better.LOWER,
                low=number(data, "waf.low") if bounds else None,
                high=number(data, "waf.high") if bounds else None,
                headline=int(key == "wear" and part == _headline(data)),
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
    return found


def _headline(data: dict[str, Any]) -> str:
    return "cumulative" if number(data, "waf.steady") is None else "steady"


def _amplification(wears: dict[str, dict[str, Any]]) -> Table:
    parts = {
        "first": "WAF, first window",
        "cumulative": "WAF, cumulative",
        "steady": "WAF, steady",
        "low": "band, low",
        "high": "band, high",
    }
    rows = [
        (Cell("profile"), *(Cell(profile_name(data)) for data in wears.values())),
        (Cell("policy"), *(Cell(policy_name(data)) for data in wears.values())),
    ]
    for part, label in parts.items():
        shown = (cell(dig(d, f"waf.{part}"), f"{k}.waf.{part}") for k, d in wears.items())
        rows.append((Cell(label), *shown))
    for name, (label, form) in _BESIDE.items():
        values = [dig(data, name) for data in wears.values()]
        if any(value is not None for value in values):
            rows.append((Cell(label), *(form(value) for value in values)))
    columns = (Column("quantity", numeric=False), *(Column(NAMES[key]) for key in wears))
    note = "WAF = flash pages programmed / host pages written. A dash under steady: not steady."
    return Table("Write amplification", columns, tuple(rows), note)


def _lifetimes(wears: dict[str, dict[str, Any]]) -> list[Table]:
    dated = {
        key: data
        for key, data in wears.items()
        if any(number(data, f"lifetimes.{name}") is not None for name in CONVENTIONS)
    }
    rows = tuple(
        (
            Cell(name),
            *(
                days(dig(data, f"lifetimes.{name}"), f"{key}.lifetimes.{name}")
                for key, data in dated.items()
            ),
            Cell(meaning),
        )
        for name, meaning in CONVENTIONS.items()
    )
    columns = (
        Column("convention", numeric=False),
        *(Column(NAMES[key]) for key in dated),
        Column("formula", numeric=False),
    )
    rates = "; ".join(f"{NAMES[key]}: {_rate(data)}" for key, data in wears.items())
    note = f"Writes a day: {rates}. A dash: an input is not known."
    return [Table("Lifetime by convention", columns, rows, note)] if dated else []


def _rate(data: dict[str, Any]) -> str:
    source = text(data, "rate_source") or "source not given"
    per_day = decimal_bytes(dig(data, "writes_per_day_bytes") or dig(data, "host_bytes_per_day"))
    shown = source if per_day is ABSENT else f"{per_day.text} a day, {source}"
    required = number(data, "required_dwpd")
    return shown if required is None else f"{shown}, needs {cell(required).text} DWPD"


def _erases(wears: dict[str, dict[str, Any]]) -> list[Table]:
    rows = []
    for key, data in wears.items():
        found = wear_plots.erase_counts(data)
        if found:
            rows.append((Cell(NAMES[key]), *(cell(found.get(p)) for p in ("min", "mean", "max"))))
    columns = (
        Column("what", numeric=False),
        Column("fewest"),
        Column("mean"),
        Column("most"),
    )
    return [Table("Erases a line", columns, tuple(rows))] if rows else []


def _notes(key: str, data: dict[str, Any]) -> list[str]:
    return [
        f"{NAMES[key]}: {note}"
        for part in ("notes", "caveats", "warnings", "labels")
        for note in strings(data, part)
    ]
