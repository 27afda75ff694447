"""Figures of replays: how late requests were issued, and what the device answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.report.model import Figure
from harness.report.plots import (
    BLACK,
    BLUE,
    GREY,
    MARKERS,
    VERMILION,
    duration_axis,
    legend_above,
)
from harness.report.values import dig, nanoseconds, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUANTILES = {"p50": "p50", "p90": "p90", "p99": "p99", "p999": "p99.9", "max": "max"}
"""Keys of a summary of nanoseconds and what people call them."""

OPERATIONS = {"R": "read", "W": "write", "D": "discard", "F": "flush", "Z": "write zeroes"}
_COLOURS = {"R": BLUE, "W": VERMILION}


def figures(data: dict[str, Any], device: str) -> list[Figure]:
    """Figures of a replay that kept a schedule."""
    found = []
    if number(data, "fidelity.lag_ns.max"):
        found.append(_lag(data, device))
    if any(_line(dig(data, f"latency_ns.{op}")) for op in _COLOURS):
        found.append(_latency(data, device))
    return found


def _line(summary: Any) -> list[tuple[int, float]]:
    """(place on the axis, seconds) of the quantiles that are there and above zero."""
    values = [(place, number(summary, key)) for place, key in enumerate(QUANTILES)]
    return [(place, value / 1e9) for place, value in values if value is not None and value > 0]


def _plot(axes: Axes, summary: Any, **style: Any) -> None:
    line = _line(summary)
    if line:
        axes.plot([x for x, _ in line], [y for _, y in line], **style)


def _finish(axes: Axes, label: str) -> None:
    axes.set_yscale("log")
    duration_axis(axes.yaxis)
    axes.set_xlim(-0.4, len(QUANTILES) - 0.6)
    axes.set_xticks(range(len(QUANTILES)), list(QUANTILES.values()))
    axes.set_ylabel(label)
    legend_above(axes, 2)


def _lag(data: dict[str, Any], device: str) -> Figure:
    def draw(axes: Axes) -> None:
        style = {"marker": MARKERS[0], "color": BLUE}
        _plot(axes, dig(data, "fidelity.lag_ns"), label="this replay", **style)
        style = {"marker": MARKERS[2], "color": GREY, "linestyle": "--"}
        _plot(axes, dig(data, "fidelity.lag_floor_ns"), label="a perfect replayer", **style)
        allowed = number(data, "fidelity.lag_p99_allowed_ns")
        if allowed:
            place = list(QUANTILES).index("p99")
            axes.plot([place - 0.3, place + 0.3], [allowed / 1e9] * 2, color=BLACK,
                      linewidth=2.4, label="p99 allowed")  # fmt: skip
        for x, y in _line(dig(data, "fidelity.lag_ns")):
            axes.annotate(
                nanoseconds(y * 1e9).text, (x, y), xytext=(0, -13), textcoords="offset points",
                ha="center", fontsize=8.5, color=BLUE,
            )  # fmt: skip
        axes.margins(y=0.15)
        axes.set_xlabel("requests, by how late they were issued")
        _finish(axes, "lag behind the schedule")

    note = (
        "A perfect replayer is late too where the device's queue is full; zero lag is not drawn."
        if number(data, "fidelity.lag_floor_ns.max") is not None
        else ""
    )
    title = "How late requests were issued"
    return Figure("replay-lag", title, "quantile; time", device, draw, note)


def _latency(data: dict[str, Any], device: str) -> Figure:
    def draw(axes: Axes) -> None:
        for place, (op, colour) in enumerate(_COLOURS.items()):
            name, marker = OPERATIONS[op], MARKERS[place]
            _plot(axes, dig(data, f"latency_ns.{op}"), marker=marker, color=colour,
                  label=f"{name}, replayed")  # fmt: skip
            _plot(axes, dig(data, f"recorded_latency_ns.{op}"), marker=marker, color=colour,
                  linestyle="--", markerfacecolor="white", label=f"{name}, recorded")  # fmt: skip
        axes.set_xlabel("requests, by latency")
        _finish(axes, "latency")

    title = "Latency, replayed and recorded"
    return Figure("replay-latency", title, "quantile; time", device, draw)
