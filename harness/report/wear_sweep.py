"""A sweep of the wear model: every point in one table and one plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.endurance.sweep_plot import conditions, draw_curves, plot_axis, shown, varying
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
from harness.report.values import cell, days, dig, number, percent, records, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def points_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The points of a sweep's result that say where they lie and what was found; [] for another."""
    if not isinstance(dig(data, "grid"), dict):
        return []
    found = [point for point in records(data, "points") if _places(point) and _is_whole(point)]
    return [point for point in found if point["point"].keys() == found[0]["point"].keys()]


def _places(point: dict[str, Any]) -> bool:
    """Whether the point lies at a number, or at a name, of each dimension."""
    where = point.get("point")
    return (
        bool(where)
        and isinstance(where, dict)
        and all(
            (text if name == "policy" else number)(value) is not None
            for name, value in where.items()
        )
    )


def _is_whole(point: dict[str, Any]) -> bool:
    """Whether the point failed, or has a WAF and what must be printed beside it."""
    if text(point, "error"):
        return True
    named = all(text(point, part) for part in ("profile.name", "policy", "precondition"))
    steady = dig(point, "waf.steady")
    known = steady is None or number(steady) is not None
    return named and known and number(point, "waf.cumulative") is not None


def measured(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The points that did not fail."""
    return [point for point in points if not text(point, "error")]


def section(name: str, title: str, data: dict[str, Any]) -> Section:
    """The section of a sweep's result."""
    points = points_of(data)
    good = measured(points)
    failed = [error for point in points if (error := text(point, "error"))]
    steady = [point for point in good if number(point, "waf.steady") is not None]
    verdicts = [
        Verdict(
            "WAF, sweep",
            "STEADY" if len(steady) == len(points) else "NOT ALL STEADY",
            Level.GOOD if len(steady) == len(points) else Level.CAUTION,
            f"{len(steady)} of {len(points)} points; {conditions(points)}",
        )
    ]
    if failed:
        verdicts.append(
            Verdict("sweep", "INCOMPLETE", Level.BAD, f"{len(failed)} points failed: {failed[0]}")
        )
    return Section(
        name,
        title,
        "What do spare flash, line, chunk, fill and policy make of the same store's writes?",
        verdicts=tuple(verdicts),
        keys=tuple(_extremes(good)),
        tables=(_table(points),),
        figures=tuple(_figures(points, data)),
    )


def waf_of(point: dict[str, Any]) -> float:
    """Steady where it is, else cumulative."""
    steady = number(point, "waf.steady")
    return steady if steady is not None else float(number(point, "waf.cumulative") or 0.0)


def _extremes(good: list[dict[str, Any]]) -> list[KeyNumber]:
    if not good:
        return []
    ordered = sorted(good, key=waf_of)
    found = []
    for place, (word, point) in enumerate((("lowest", ordered[0]), ("highest", ordered[-1]))):
        where = ", ".join(f"{k} {shown(k, point['point'][k])}" for k in varying(good))
        found.append(
            KeyNumber(
                f"WAF, {word}: {where}", cell(waf_of(point)), better=Better.LOWER,
                headline=place + 1, tile=f"WAF, {word}: {where}",
            )
        )  # fmt: skip
    return found


def _table(points: list[dict[str, Any]]) -> Table:
    axes = varying(points)
    rows = []
    for point in points:
        where = [Cell(shown(name, dig(point["point"], name))) for name in axes]
        mapped, size = number(point, "mapped_pages"), number(point, "namespace_pages")
        rows.append(
            (
                *where,
                cell(dig(point, "waf.steady")),
                cell(dig(point, "waf.cumulative")),
                cell(dig(point, "namespace_writes")),
                percent(mapped / size if mapped is not None and size else None),
                cell(dig(point, "chunk_per_line")),
                days(dig(point, "lifetimes.paper_days")),
                cell(dig(point, "error") or dig(point, "stopped")),
            )
        )
    columns = (
        *(Column(name.replace("_", " "), numeric=name != "policy") for name in axes),
        Column("WAF, steady"),
        Column("WAF, cumulative"),
        Column("namespaces written"),
        Column("namespace mapped"),
        Column("chunk / line"),
        Column("paper_days"),
        Column("ended by", numeric=False),
    )
    note = f"{conditions(points)}. A dash under steady: not steady."
    return Table("Sweep", columns, tuple(rows), note)


def _figures(points: list[dict[str, Any]], data: dict[str, Any]) -> list[Figure]:
    """WAF along the numeric dimension with most values; none where there is no such."""
    good = measured(points)
    along = plot_axis(good) if good else None
    if along is None:
        return []

    def draw(axes: Axes) -> None:
        draw_curves(axes, good)

    store = text(data, "grid.store") or "store not recorded"
    device = f"FTL model, {conditions(points)}, {store}"
    title = f"WAF by {along.removesuffix('_bytes').replace('_', ' ')}"
    note = "Hollow marks: not steady when the time was up, cumulative WAF."
    return [Figure("wear-sweep", title, f"{along}; ratio", device, draw, note, height_in=4.2)]
