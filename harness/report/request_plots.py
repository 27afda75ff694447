"""Bandwidth of benchmark cells against the size of their requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.report.layout_cells import LEAST_SIZES, Cells, errors, gbps
from harness.report.model import Figure
from harness.report.plots import LINES, MARKERS, SERIES, byte_axis, legend_above
from harness.report.values import number, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_SERIES = 7
_NOTE = "Median with its 95 % interval; wanted bytes only."


def figures(cells: Cells, device: str) -> list[Figure]:
    """A figure for each kind of plain cell with several sizes, and one for all layouts."""
    plain: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for c in cells:
        if not text(c, "layout") and number(c, "request_bytes"):
            plain.setdefault((str(c.get("pattern")), str(c.get("direction"))), []).append(c)
    found = [
        _figure(f"layouts-request-{n}", f"{pattern}, {direction}", group, _in_flight, "-", device)
        for n, ((pattern, direction), group) in enumerate(plain.items())
        if _sizes(group) >= LEAST_SIZES
    ]
    placed = [c for c in cells if text(c, "layout") and not c.get("background_writes")]
    if _sizes(placed) >= LEAST_SIZES:
        title = "sessions read back, by mean size"
        found.append(_figure("layouts-request", title, placed, _layout, "none", device))
    return found


def _sizes(cells: Cells) -> int:
    return len({c.get("request_bytes") for c in cells if number(c, "request_bytes")})


def _in_flight(found: dict[str, Any]) -> str:
    depth, threads = number(found, "queue_depth") or 1, number(found, "threads") or 1
    engine = text(found, "engine") or ""
    return f"{depth * threads:g} in flight" + (", ring" if engine.startswith("ring") else "")


def _layout(found: dict[str, Any]) -> str:
    return str(found["layout"])


def _figure(
    name: str, what: str, cells: Cells, series: Callable[[dict[str, Any]], str], line: str,
    device: str,
) -> Figure:  # fmt: skip
    groups: dict[str, list[dict[str, Any]]] = {}
    for c in sorted(cells, key=lambda c: float(c["request_bytes"])):
        groups.setdefault(series(c), []).append(c)
    shown = dict(list(groups.items())[:_MOST_SERIES])

    def draw(axes: Axes) -> None:
        for n, (label, mine) in enumerate(shown.items()):
            axes.errorbar(
                [c["request_bytes"] for c in mine], [gbps(c) or 0.0 for c in mine],
                list(zip(*(errors(c) for c in mine), strict=True)), capsize=2,
                linestyle="none" if line == "none" else LINES[n % 4], marker=MARKERS[n % 7],
                color=SERIES[n % 7], label=label,
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        byte_axis(axes.xaxis)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("bytes of a command")
        axes.set_ylabel("bandwidth (GB/s)")
        legend_above(axes, 2)

    left_out = len(groups) - len(shown)
    note = _NOTE + (f" {left_out} more series are left out." if left_out else "")
    title = f"Bandwidth by request size: {what}"
    return Figure(name, title, "bytes; GB/s", device, draw, note)
