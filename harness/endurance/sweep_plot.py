"""A sweep as one table and one plot."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from rich.table import Table

from harness.core.units import format_duration, format_size

_LABELS = {
    "over_provisioning": "over-provisioning (flash / namespace - 1)",
    "line_bytes": "line size (bytes)",
    "chunk_tokens": "chunk (tokens)",
    "utilisation": "store / namespace",
    "namespace_bytes": "namespace (bytes)",
}


def sweep_table(points: list[dict[str, Any]]) -> Table:
    """One row a point."""
    axes = list(points[0]["point"])
    table = Table(title="Sweep", title_justify="left")
    for name in (*axes, "WAF steady", "cumulative", "namespaces", "chunk / line", "paper_days"):
        table.add_column(name, justify="right")
    for point in points:
        values = [_shown(name, point["point"][name]) for name in axes]
        if "error" in point:
            table.add_row(*values, point["error"], "", "", "", "")
            continue
        waf, days = point["waf"], point["lifetimes"]["paper_days"]
        table.add_row(
            *values,
            "not steady" if waf["steady"] is None else f"{waf['steady']:.3f}",
            f"{waf['cumulative']:.3f}",
            f"{point['namespace_writes']:.1f}",
            f"{point['chunk_per_line']:.3g}",
            "-" if days is None else format_duration(days * 86400),
        )
    return table


def _shown(name: str, value: Any) -> str:
    return format_size(value) if name.endswith("_bytes") else str(value)


def plot_axis(points: list[dict[str, Any]]) -> str | None:
    """The dimension to draw along: the numeric one with most values; None if none has two."""
    names = [name for name in points[0]["point"] if name in _LABELS]
    counts = {name: len({point["point"][name] for point in points}) for name in names}
    best = max(counts, key=lambda name: counts[name], default=None)
    return best if best is not None and counts[best] > 1 else None


def draw_sweep(points: list[dict[str, Any]], path: Path) -> bool:
    """WAF along one dimension, one curve for each combination of the others, as SVG.

    Hollow marks are cumulative WAFs of points that did not become steady. False, and no file,
    where no numeric dimension has two values.
    """
    along = plot_axis(points)
    if along is None:
        return False
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots()
    for name, curve in _curves(points, along).items():
        xs, ys, steady = zip(*sorted(curve), strict=True)
        (line,) = axes.plot(xs, ys, label=name)
        color = line.get_color()
        fills = [color if known else "white" for known in steady]
        axes.scatter(xs, ys, color=color, facecolors=fills, zorder=3)
    if along.endswith("_bytes") or along == "chunk_tokens":
        axes.set_xscale("log", base=2)
    axes.set_xlabel(_LABELS[along])
    axes.set_ylabel("WAF (hollow: not steady, cumulative)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, format="svg")
    return True


def _curves(points: list[dict[str, Any]], along: str) -> dict[str, list[tuple[float, float, bool]]]:
    curves: dict[str, list[tuple[float, float, bool]]] = defaultdict(list)
    for point in points:
        if "error" in point:
            continue
        rest = [_shown(k, v) for k, v in point["point"].items() if k != along]
        waf = point["waf"]
        steady = waf["steady"] is not None
        value = waf["steady"] if steady else waf["cumulative"]
        curves[", ".join(rest) or point["policy"]].append((point["point"][along], value, steady))
    return curves
