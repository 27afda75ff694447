"""A figure over the nights: its values, its levels, where they changed and what changed beside."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from harness.nightly.nights import SOFTWARE
from harness.nightly.regressions import Series
from harness.nightly.statistics import ChangePoint, Floats
from harness.report.model import Figure
from harness.report.plots import BLUE, GREY, VERMILION, legend_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 300
"""More nights than that are drawn as medians of as many groups: a page stays small."""

_BLOCKS = "▁▂▃▄▅▆▇█"


def figure(number: int, series: Series, points: list[ChangePoint]) -> Figure:
    """The plot of ``series``; its changes of level are ``points``."""
    metric, nights = series.metric, series.nights
    grouped = f"; each point the median of {_group(series)} nights" if _group(series) > 1 else ""
    changed = "".join(
        f" {nights[p.index].started:%Y-%m-%d}: {p.before:.4g} to {p.after:.4g}." for p in points
    )
    return Figure(
        name=f"series-{number}",
        title=metric.name,
        unit=f"{metric.unit or 'a ratio or count, no unit'} against the night, UTC",
        device=f"{series.device} of {series.host}, {series.job}",
        draw=lambda axes: _draw(axes, series, points),
        note=f"{'More' if metric.better > 0 else 'Less'} is better{grouped}."
        + (f" Level changed{changed.rstrip('.')}." if changed else " No change of level."),
    )


def course(values: Floats, width: int = 24) -> str:
    """The last values as a line of block characters, low to high, each of equally many nights."""
    groups = np.array_split(values, min(width, len(values)))
    medians = np.array([np.median(group) for group in groups])
    low, high = float(medians.min()), float(medians.max())
    if low == high:
        return _BLOCKS[3] * len(medians)
    steps = (medians - low) / (high - low) * (len(_BLOCKS) - 1)
    return "".join(_BLOCKS[round(float(step))] for step in steps)


def software_changes(series: Series) -> list[tuple[datetime, str]]:
    """When kernel, firmware, fio or harness differed from the night before."""
    return [
        (new.started, name)
        for old, new in pairwise(series.nights)
        for name in SOFTWARE
        if old.software[name] != new.software[name]
    ]


def _group(series: Series) -> int:
    return -(-len(series.values) // MOST_POINTS)


def _draw(axes: Axes, series: Series, points: list[ChangePoint]) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    when = np.array([night.started.replace(tzinfo=None) for night in series.nights])
    step = _group(series)
    places = range(0, len(when), step)
    values = [float(np.median(series.values[at : at + step])) for at in places]
    axes.plot(
        when[::step],
        values,
        "o",
        color=BLUE,
        markersize=3,
        label="night" if step == 1 else "nights",
    )
    edges = [0, *(point.index for point in points), len(when)]
    for place, (start, end) in enumerate(pairwise(edges)):
        level = float(np.median(series.values[start:end]))
        said = "level" if place == 0 else None
        axes.plot([when[start], when[end - 1]], [level, level], "-", color=GREY, label=said)
    for place, point in enumerate(points):
        said = "change of level" if place == 0 else None
        axes.axvline(when[point.index], color=VERMILION, linestyle="--", label=said)
    _mark_software(axes, series)
    low, high = float(series.values.min()), float(series.values.max())
    room = 0.12 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(low - room, high + 2 * room)
    locator = AutoDateLocator(minticks=3, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.set_ylabel(series.metric.unit or "ratio or count")
    legend_above(axes)


def _mark_software(axes: Axes, series: Series) -> None:
    """The newest eight: more cannot be read."""
    from matplotlib.dates import date2num

    for when, name in software_changes(series)[-8:]:
        moment: float = date2num(when.replace(tzinfo=None))
        axes.axvline(moment, color=GREY, linestyle=":", linewidth=1)
        axes.annotate(
            name, (moment, 0.98), xycoords=("data", "axes fraction"), rotation=90, fontsize=8,
            va="top", ha="right", color="#404750",
        )  # fmt: skip
