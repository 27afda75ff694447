"""Tables of wear results: what must stand beside a WAF, rates, classes, erases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.report.model import Cell, Column, Table
from harness.report.values import (
    cell,
    days,
    decimal_bytes,
    dig,
    number,
    percent,
    records,
    size,
    text,
)
from harness.report.wear_plots import NAMES

Wears = dict[str, dict[str, Any]]

CONVENTIONS = {
    "paper_days": "TBW / (writes a day x WAF): the published simulator's formula, WAF measured",
    "waf1_days": "TBW / writes a day: the published simulator's assumption, WAF = 1",
    "nand_days": "P/E cycles x raw bytes x levelling / (writes a day x WAF): the flash itself",
    "nand_level_days": "the same with perfect levelling",
    "jedec_days": "TBW x rated WAF / (writes a day x WAF): the vendor's own workload as yardstick",
}


def _spare(value: Any, key: str = "") -> Cell:
    """Effective over-provisioning; of an almost empty drive the percentage says nothing."""
    found = number(value)
    if found is not None and found > 1:
        return Cell("more free than mapped", value, key)
    return percent(value, key)


_BESIDE: dict[str, tuple[str, Callable[..., Cell]]] = {
    "input": ("input", cell),
    "waf.first": ("WAF, first window", cell),
    "waf.cumulative": ("WAF, cumulative", cell),
    "waf.steady": ("WAF, steady", cell),
    "waf.low": ("band, low", cell),
    "waf.high": ("band, high", cell),
    "waf.band": ("band over", cell),
    "stopped": ("ended by", cell),
    "namespace_writes": ("namespaces written", cell),
    "fill": ("fill state", cell),
    "counted_from": ("counted from", cell),
    "line_bytes": ("line size", size),
    "chunk_bytes": ("chunk size", size),
    "chunk_per_line": ("chunk / line", cell),
    "mapped_share": ("mapped / flash", percent),
    "over_provisioning": ("over-provisioning, effective", _spare),
    "utilisation": ("store / namespace", percent),
    "append_streams": ("append streams", cell),
    "discards": ("discards seen", cell),
    "host_bytes": ("written by the host", decimal_bytes),
    "gc_bytes": ("copied by garbage collection", decimal_bytes),
    "nand_bytes": ("written to the flash", decimal_bytes),
    "bytes_per_new_token": ("written a new token", size),
    "affordable_bytes_per_day": ("a day that lasts the warranty", decimal_bytes),
}


def profile_name(data: dict[str, Any]) -> str:
    """The profile, whether the file names it or holds it whole."""
    return text(data, "profile") or text(data, "profile.name") or "profile not recorded"


def policy_name(data: dict[str, Any]) -> str:
    """The policy with what it is set to."""
    name = text(data, "policy") or text(data, "policy.name") or "policy not recorded"
    low, high = (number(data, f"thresholds.{part}") for part in ("gc_thres_pcent", _HIGH))
    if low is not None and high is not None:
        return f"{name} ({low:g}/{high:g})"
    parts = [text(data, "thresholds.victim"), text(data, "thresholds.streams")]
    if all(parts):
        return f"{name} ({parts[0]}, streams {parts[1]})"
    return name


_HIGH = "gc_thres_pcent_high"


def amplification(wears: Wears) -> Table:
    """WAF with profile, policy, fill state and the rest that it depends on."""
    rows = [
        (Cell("profile"), *(Cell(profile_name(data)) for data in wears.values())),
        (Cell("policy"), *(Cell(policy_name(data)) for data in wears.values())),
    ]
    for path, (label, form) in _BESIDE.items():
        if any(dig(data, path) is not None for data in wears.values()):
            shown = (form(dig(data, path), f"{key}.{path}") for key, data in wears.items())
            rows.append((Cell(label), *shown))
    columns = (Column("quantity", numeric=False), *(Column(NAMES[key]) for key in wears))
    note = "WAF = flash pages programmed / host pages written. A dash under steady: not steady."
    return Table("Write amplification", columns, tuple(rows), note)


def lifetimes(wears: Wears) -> list[Table]:
    """Days by convention, for the results that have any."""
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
    basis = next((text(data, "lifetimes_from") for data in dated.values()), None)
    note = f"From the {basis}. A dash: an input is not known." if basis else ""
    return [Table("Lifetime by convention", columns, rows, note)] if dated else []


def rates(wears: Wears) -> list[Table]:
    """Writes a day, where they come from and what they ask of the drive."""
    rows = []
    for key, data in wears.items():
        for found in (data, *records(data, "rates")):
            if number(found, "writes_per_day_bytes") is None:
                continue
            rows.append(
                (
                    Cell(NAMES[key]),
                    decimal_bytes(dig(found, "writes_per_day_bytes")),
                    cell(dig(found, "rate_source")),
                    cell(dig(found, "required_dwpd")),
                    days(dig(found, "lifetimes.paper_days")),
                    days(dig(found, "lifetimes.waf1_days")),
                    days(dig(found, "hdd_days_without_reads")),
                )
            )
    columns = (
        Column("what", numeric=False),
        Column("written a day"),
        Column("rate from", numeric=False),
        Column("DWPD needed"),
        Column("paper_days"),
        Column("waf1_days"),
        Column("hard drive, no reads"),
    )
    return [Table("Rate of writing", columns, tuple(rows))] if rows else []


def classes(wears: Wears) -> list[Table]:
    """Which objects cause the wear."""
    rows = []
    for key, data in wears.items():
        found = records(data, "by_class")
        total = sum(_nand(entry) for entry in found) or 1.0
        rows += [
            (
                Cell(NAMES[key]),
                cell(dig(entry, "class")),
                decimal_bytes(dig(entry, "host_bytes")),
                decimal_bytes(dig(entry, "gc_bytes")),
                cell(dig(entry, "waf")),
                percent(_nand(entry) / total),
            )
            for entry in found
        ]
    columns = (
        Column("what", numeric=False),
        Column("object class", numeric=False),
        Column("by the host"),
        Column("by garbage collection"),
        Column("WAF"),
        Column("share of flash writes"),
    )
    return [Table("Wear by object class", columns, tuple(rows))] if rows else []


def _nand(entry: dict[str, Any]) -> float:
    return (number(entry, "host_bytes") or 0.0) + (number(entry, "gc_bytes") or 0.0)


def erases(wears: Wears) -> list[Table]:
    """Fewest, mean and most erases of a line."""
    rows = []
    for key, data in wears.items():
        found = dig(data, "erases")
        if number(found, "mean") is not None:
            shown = (cell(dig(found, part)) for part in ("min", "mean", "max"))
            rows.append((Cell(NAMES[key]), *shown, percent(dig(found, "levelling"))))
    columns = (
        Column("what", numeric=False),
        Column("fewest"),
        Column("mean"),
        Column("most"),
        Column("mean / most"),
    )
    return [Table("Erases a line", columns, tuple(rows))] if rows else []
