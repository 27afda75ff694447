"""The same input under several policies: WAF, lifetimes and how far they lie apart."""

from __future__ import annotations

from typing import Any

from harness.report.model import Cell, Column, Table
from harness.report.values import cell, days, decimal_bytes, dig, number, plain, records
from harness.report.wear_tables import CONVENTIONS, policy_name, profile_name

Points = list[dict[str, Any]]


def points_of(data: dict[str, Any]) -> Points:
    """The results by policy, of a measurement that compared several; else []."""
    points = [point for point in records(data, "points") if number(point, "waf.cumulative")]
    return points if len(points) > 1 and dig(data, "grid") is None else []


def tables(data: dict[str, Any]) -> list[Table]:
    """What the policies cost, and the lifetimes that follow; [] for a single policy."""
    points = points_of(data)
    if not points:
        return []
    return [_comparison(points), *_lifetimes(points)]


def _comparison(points: Points) -> Table:
    rows = tuple(
        (
            Cell(policy_name(point)),
            Cell(profile_name(point)),
            cell(dig(point, "fill")),
            cell(dig(point, "waf.first")),
            cell(dig(point, "waf.cumulative")),
            cell(dig(point, "waf.steady")),
            cell(dig(point, "namespace_writes")),
            cell(dig(point, "erases.mean")),
            decimal_bytes(dig(point, "affordable_bytes_per_day")),
        )
        for point in points
    )
    columns = (
        Column("policy", numeric=False),
        Column("profile", numeric=False),
        Column("fill state", numeric=False),
        Column("WAF, first"),
        Column("WAF, cumulative"),
        Column("WAF, steady"),
        Column("namespaces written"),
        Column("erases a line"),
        Column("a day that lasts the warranty"),
    )
    wafs = [value for point in points if (value := number(point, "waf.cumulative"))]
    note = f"The cumulative WAF differs by a factor of {plain(max(wafs) / min(wafs))}."
    return Table("Policies compared", columns, rows, note)


def _lifetimes(points: Points) -> list[Table]:
    rows = []
    for name, meaning in CONVENTIONS.items():
        found = [number(point, f"lifetimes.{name}") for point in points]
        known = [value for value in found if value]
        if not known:
            continue
        spread = max(known) / min(known) if len(known) > 1 else None
        shown = (days(value) for value in found)
        rows.append((Cell(name), *shown, cell(spread), Cell(meaning)))
    columns = (
        Column("convention", numeric=False),
        *(Column(policy_name(point)) for point in points),
        Column("longest / shortest"),
        Column("formula", numeric=False),
    )
    note = "A dash: the WAF was not steady, or an input is not known."
    return [Table("Lifetime by policy", columns, tuple(rows), note)] if rows else []
