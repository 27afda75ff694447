"""The open-loop sweep: what arrives in time, and how long a prefetch takes, as the rate rises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.report.model import Figure
from harness.report.plots import LINES, MARKERS, SERIES, duration_axis, legend_above
from harness.report.values import number, records

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = list[dict[str, Any]]


def figures(bench: dict[str, Any], device: str) -> list[Figure]:
    """Delivered share and prefetch time against the rate, if two rates were run."""
    points = [p for p in records(bench, "load") if number(p, "rate_per_s")]
    if len({p["rate_per_s"] for p in points}) < 2:
        return []
    return [_delivered(points, device), _prefetch(points, device)]


def series(points: Points) -> dict[str, Points]:
    """Points of each layout and rule at the deadline, by rising rate."""
    found: dict[str, Points] = {}
    for point in sorted(points, key=lambda p: float(p["rate_per_s"])):
        name = f"{point.get('layout')}, {point.get('on_deadline')}"
        found.setdefault(name, []).append(point)
    return found


def _delivered(points: Points, device: str) -> Figure:
    def draw(axes: Axes) -> None:
        for n, (name, mine) in enumerate(series(points).items()):
            middle = [100 * (number(p, "delivered.median") or 0.0) for p in mine]
            pairs = list(zip(mine, middle, strict=True))
            low = [max(0.0, m - 100 * (number(p, "delivered.low") or 0.0)) for p, m in pairs]
            high = [max(0.0, 100 * (number(p, "delivered.high") or 0.0) - m) for p, m in pairs]
            axes.errorbar(
                [p["rate_per_s"] for p in mine], middle, [low, high], capsize=2,
                linestyle=LINES[n % 4], marker=MARKERS[n % 7], color=SERIES[n % 7], label=name,
            )  # fmt: skip
        axes.set_ylim(0, 105)
        axes.set_xlabel("sessions restored a second (offered)")
        axes.set_ylabel("delivered by the deadline (%)")
        legend_above(axes, 1)

    note = (
        "Share of wanted bytes, with its 95 % interval over the repeats. Published: 94 % at every "
        "load, against 88 % falling to 64 %."
    )
    return Figure("load-delivered", "Delivered in time", "1/s; %", device, draw, note, 3.9)


def _prefetch(points: Points, device: str) -> Figure:
    def draw(axes: Axes) -> None:
        axes.set_yscale("log")
        for n, (name, mine) in enumerate(series(points).items()):
            known = [p for p in mine if number(p, "prefetch_s.p50")]
            axes.plot(
                [p["rate_per_s"] for p in known], [p["prefetch_s"]["p50"] for p in known],
                linestyle=LINES[n % 4], marker=MARKERS[n % 7], color=SERIES[n % 7], label=name,
            )  # fmt: skip
        duration_axis(axes.yaxis)
        axes.set_xlabel("sessions restored a second (offered)")
        axes.set_ylabel("prefetch time, median")
        legend_above(axes, 1)

    note = (
        "Requests that were completed only: where most are cancelled, the quick ones are left. "
        "Published: 1.47 to 1.75 s against 3.16 to 9.50 s."
    )
    return Figure("load-prefetch", "Prefetch time under load", "1/s; s", device, draw, note, 3.9)
