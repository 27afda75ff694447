"""FlatCake's figures: what reaches the GPU, and how long it takes, as the load rises."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.report.model import Figure
from harness.report.plots import duration_axis
from harness.report.simulate_plots import style
from harness.report.values import number, records, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = list[tuple[float, float]]


def figures(found: dict[str, Any]) -> list[Figure]:
    """The figures of ``harness simulate loads --json``."""
    servers = {
        text(one, "server") or "–": records(one, "loads") for one in records(found, "servers")
    }
    of = text(found, "of") or "trace"
    staged = text(found, "staged") or ""
    digits = "Shapes may be compared with the paper, digits may not: its model and machine differ."

    def curves(value: str, scale: float = 1.0) -> dict[str, Curve]:
        shown = {}
        for name, loads in servers.items():
            pairs = [(number(one, "requests_per_s"), number(one, value)) for one in loads]
            shown[name] = [(x, scale * y) for x, y in pairs if x is not None and y is not None]
        return shown

    def figure(name: str, title: str, unit: str, draw: Callable[[Axes], None], note: str) -> Figure:
        return Figure(name, title, unit, of, draw, note=f"{note} {digits}")

    def delivered(axes: Axes) -> None:
        _lines(axes, curves("delivered", 100))
        for at, curve in enumerate(curves("ceiling", 100).values()):
            axes.plot(*_columns(curve), color=style(at)["color"], linestyle=":",
                      label="its cache has" if at == 0 else None)  # fmt: skip
        axes.set_ylabel("prompt tokens from the cache (%)")
        axes.legend(loc="best")

    def waits(axes: Axes) -> None:
        for side, (value, name) in enumerate((("mean", "mean"), ("p99", "P99"))):
            shown = {k: v for k, v in curves(f"ttft_s.{value}").items() if "flat" in k}
            _lines(axes, {f"{k}, {name}": v for k, v in shown.items()}, 2 * side)
        axes.set_yscale("log")
        duration_axis(axes.yaxis)
        axes.set_ylabel("time to first token")
        axes.legend()

    def prefetches(axes: Axes) -> None:
        _lines(axes, curves("prefetch_s.mean"))
        axes.set_yscale("log")
        duration_axis(axes.yaxis)
        axes.set_ylabel("mean prefetch from the SSD")
        axes.legend()

    return [
        figure("delivered", "What reaches the GPU", "percent, load", delivered, staged),
        figure("queues", "One queue or two", "seconds, load", waits,
               "Small reads first, then at their old place; or first come, first served."),
        figure("prefetch", "How long the SSD takes", "seconds, load", prefetches,
               "From arrival until what lies on the SSD is in place; cancelled ones not counted."),
    ]  # fmt: skip


def _lines(axes: Axes, curves: dict[str, Curve], first: int = 0) -> None:
    for at, (name, curve) in enumerate(curves.items()):
        axes.plot(*_columns(curve), label=name, **style(first + at))
    axes.set_xlabel("requests a second")


def _columns(curve: Curve) -> tuple[list[float], list[float]]:
    return [x for x, _ in curve], [y for _, y in curve]
