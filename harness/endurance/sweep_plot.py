"""A sweep as one table and one plot."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from harness.core.units import format_duration, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABELS = {
    "over_provisioning": "over-provisioning (flash / namespace - 1)",
    "line_bytes": "line size (bytes)",
    "chunk_tokens": "chunk (tokens)",
    "utilisation": "store / namespace",
    "namespace_bytes": "namespace (bytes)",
}
_SHORT = {"over_provisioning": "spare", "chunk_tokens": "chunk", "utilisation": "store"}
"""Headings of the dimensions whose names are wide; sizes lose their ``_bytes``."""


def sweep_table(points: list[dict[str, Any]]) -> Table:
    """One row a point; ``failures`` says why there is nothing for one."""
    axes = varying(points)
    title = f"Sweep: {conditions(points)}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in axes:
        heading = _SHORT.get(name, name.removesuffix("_bytes"))
        table.add_column(heading, justify="right", no_wrap=True)
    for name in ("WAF", "writes", "mapped", "chunk\n/ line", "paper\ndays"):
        table.add_column(name, justify="right", no_wrap=True)
    table.caption = "*: not steady, WAF of all that was written; writes: namespaces written"
    for point in points:
        values = [shown(name, point["point"][name]) for name in axes]
        if "error" in point:
            table.add_row(*values, "-", "failed")
            continue
        steady, days = point["waf"]["steady"], point["lifetimes"]["paper_days"]
        table.add_row(
            *values,
            f"{point['waf']['cumulative']:.3f}*" if steady is None else f"{steady:.3f} ",
            f"{point['namespace_writes']:.1f}",
            f"{100 * point['mapped_pages'] / point['namespace_pages']:.3g} %",
            f"{point['chunk_per_line']:.3g}",
            "-" if days is None else format_duration(days * 86400),
        )
    return table


def failures(points: list[dict[str, Any]]) -> list[str]:
    """Where each point that failed lies, and why it did."""
    names = varying(points)
    return [
        f"{', '.join(shown(name, point['point'][name]) for name in names)}: {point['error']}"
        for point in points
        if "error" in point
    ]


def varying(points: list[dict[str, Any]]) -> list[str]:
    """The dimensions in which the points differ."""
    return [name for name in points[0]["point"] if len(_values(points, name)) > 1]


def _values(points: list[dict[str, Any]], name: str) -> set[Any]:
    return {point["point"][name] for point in points}


def conditions(points: list[dict[str, Any]]) -> str:
    """What is the same in every point of a sweep: drive, policy, precondition, fixed dimensions."""
    measured = [point for point in points if "error" not in point]
    if not measured:
        return "no point could be measured"
    first = measured[0]
    fixed = [
        f"{name.removesuffix('_bytes').replace('_', ' ')} {shown(name, value)}"
        for name, value in first["point"].items()
        if name not in varying(points)
    ]
    policy = [] if "policy" in first["point"] else [f"policy {first['policy']}"]
    return ", ".join([first["profile"]["name"], *policy, *fixed, first["precondition"]])


def shown(name: str, value: Any) -> str:
    """The value of a dimension as people read it."""
    return format_size(value) if name.endswith("_bytes") else str(value)


def plot_axis(points: list[dict[str, Any]]) -> str | None:
    """The dimension to draw along: the numeric one with most values; None if none has two."""
    counts = {name: len(_values(points, name)) for name in points[0]["point"] if name in _LABELS}
    best = max(counts, key=lambda name: counts[name], default=None)
    return best if best is not None and counts[best] > 1 else None


def draw_sweep(points: list[dict[str, Any]], path: Path) -> bool:
    """WAF along one dimension as SVG. False, and no file, where none has two values."""
    if plot_axis(points) is None:
        return False
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(8, 4.8), layout="constrained")
    draw_curves(figure.subplots(), points)
    figure.savefig(path, format="svg")
    return True


def draw_curves(axes: Axes, points: list[dict[str, Any]]) -> None:
    """WAF along ``plot_axis(points)``, which must exist; a curve for each mix of the others.

    Hollow marks are cumulative WAFs of points that did not become steady.
    """
    along = plot_axis(points)
    assert along is not None
    for name, curve in _curves(points, along).items():
        xs, ys, steady = zip(*sorted(curve), strict=True)
        (line,) = axes.plot(xs, ys, label=name)
        color = line.get_color()
        fills = [color if known else "white" for known in steady]
        axes.scatter(xs, ys, facecolors=fills, edgecolors=color, linewidths=1.5, zorder=3)
    if along.endswith("_bytes") or along == "chunk_tokens":
        axes.set_xscale("log", base=2)
    axes.set_xlabel(_LABELS[along])
    axes.set_ylabel("WAF (hollow: not steady, cumulative)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def _curves(points: list[dict[str, Any]], along: str) -> dict[str, list[tuple[float, float, bool]]]:
    """(value, WAF, steady) by what else differs between the points."""
    differ = [name for name in varying(points) if name != along]
    curves: dict[str, list[tuple[float, float, bool]]] = defaultdict(list)
    for point in points:
        if "error" in point:
            continue
        names = [f"{name.removesuffix('_bytes')} {shown(name, point['point'][name])}"
                 for name in differ]  # fmt: skip
        waf = point["waf"]
        steady = waf["steady"] is not None
        value = waf["steady"] if steady else waf["cumulative"]
        curves[", ".join(names) or f"policy {point['policy']}"].append(
            (point["point"][along], value, steady)
        )
    return curves
