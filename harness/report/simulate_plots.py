"""Plots of simulated caches: misses against writes, and lives by layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.report.model import Figure
from harness.report.plots import GREY, LINES, MARKERS, SERIES
from harness.report.values import dig, number, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = list[dict[str, Any]]
TB = 1e12


def figures(answers: Rows, rows: Rows) -> list[Figure]:
    """What ``simulate`` and ``simulate compare`` show; nothing of a single point."""
    found = []
    where = text(answers[0], "trace") or "trace"
    points = [p for p in map(_traded, answers) if p is not None]
    if len({point[:3] for point in points}) > 1:
        found.append(
            Figure(
                "misses-writes", "Misses against writes", "miss ratio, TB written", where,
                lambda axes: _trade(axes, points),
                note="Left and below is better. Every policy that was asked for is shown.",
            )
        )  # fmt: skip
    lives = [row for row in rows if number(row, "waf1_days") is not None]
    if len(lives) > 1:
        found.append(
            Figure(
                "lives", "Days until the rated writes are used up", "days, logarithmic", where,
                lambda axes: _lives(axes, lives), height_in=1.2 + 0.42 * len(lives),
                note="Hollow: at WAF 1, as simulators assume. Filled: with the steady WAF, where"
                " there is one.",
            )
        )  # fmt: skip
    return found


def _traded(one: dict[str, Any]) -> tuple[str, float, float] | None:
    miss = number(one, "miss")
    written = [number(one, f"written_bytes.{kind}") for kind in ("full", "state")]
    if miss is None or None in written:
        return None
    return text(one, "label") or "–", miss, sum(w for w in written if w is not None) / TB


def _trade(axes: Axes, points: list[tuple[str, float, float]]) -> None:
    labels = list(dict.fromkeys(label for label, _, _ in points))
    for place, label in enumerate(labels):
        own = sorted((w, m) for name, m, w in points if name == label)
        axes.plot([w for w, _ in own], [m for _, m in own], label=label, **style(place))
    axes.set_xlabel("written to the SSD (TB)")
    axes.set_ylabel("miss ratio")
    axes.legend()


def _lives(axes: Axes, rows: Rows) -> None:
    names = [f"{dig(r, 'policy')}, {dig(r, 'layout')},\n{dig(r, 'drive')}" for r in rows]
    for at, row in enumerate(rows):
        at_one, true = number(row, "waf1_days"), number(row, "paper_days")
        if at_one and true:
            axes.plot([true, at_one], [at, at], color=GREY, linewidth=1)
        if at_one:
            axes.plot([at_one], [at], "o", color=SERIES[0], fillstyle="none")
        if true:
            axes.plot([true], [at], "s", color=SERIES[1])
    axes.set_xscale("log")
    plain_log_ticks(axes)
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.set_xlabel("days")


def style(place: int) -> dict[str, Any]:
    """How the curve number ``place`` is drawn: lines change where the colours begin again."""
    return {
        "color": SERIES[place % len(SERIES)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": LINES[place // len(SERIES) % len(LINES)],
    }


def plain_log_ticks(axes: Axes) -> None:
    """Few ticks, as plain numbers, on a logarithmic x axis that may span less than a decade."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=8))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
