"""Figures of a layout benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.report.layout_cells import (
    CONTIGUOUS,
    Cells,
    errors,
    gbps,
    label,
    tokens,
    varying,
    word,
)
from harness.report.model import Figure
from harness.report.plots import LINES, MARKERS, SERIES, legend_above
from harness.report.values import number, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_FIGURES = 6
_MOST_ROWS = 24
_NOTE = "Median with its 95 % interval; wanted bytes only."


def figures(cells: Cells, device: str) -> list[Figure]:
    """Bandwidth against context length, a figure for each way of reading; or a row a cell, if
    they are few enough to be told apart."""
    placed = [c for c in cells if text(c, "layout") and number(c, "context_tokens")]
    if len({c["context_tokens"] for c in placed}) < 2:
        return [_rows(cells, device)] if 0 < len(cells) <= _MOST_ROWS else []
    keys = varying(placed, but=("layout", "context_tokens"))
    groups: dict[str, list[dict[str, Any]]] = {}
    for c in placed:
        groups.setdefault(", ".join(word(c, key) for key in keys), []).append(c)
    shown = list(groups.items())[:_MOST_FIGURES]
    return [_by_context(n, name, group, device) for n, (name, group) in enumerate(shown)]


def _by_context(place: int, name: str, cells: Cells, device: str) -> Figure:
    def draw(axes: Axes) -> None:
        for n, layout in enumerate(dict.fromkeys(str(c["layout"]) for c in cells)):
            mine = sorted((c for c in cells if c["layout"] == layout), key=_context)
            axes.errorbar(
                [_context(c) for c in mine], [gbps(c) or 0.0 for c in mine],
                list(zip(*(errors(c) for c in mine), strict=True)),
                linestyle=LINES[n % 4], marker=MARKERS[n % 7], color=SERIES[n % 7],
                capsize=3, label=layout,
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        ticks = sorted({_context(c) for c in cells})
        axes.set_xticks(ticks, [tokens(t).removesuffix(" tokens") for t in ticks])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("context (tokens)")
        axes.set_ylabel("read bandwidth (GB/s)")
        legend_above(axes, 2)

    title = f"Read bandwidth by context: {name}" if name else "Read bandwidth by context"
    return Figure(f"layouts-context-{place}", title, "tokens; GB/s", device, draw, _NOTE)


def _context(found: dict[str, Any]) -> float:
    return float(found["context_tokens"])


def _rows(cells: Cells, device: str) -> Figure:
    def draw(axes: Axes) -> None:
        places = range(len(cells))[::-1]
        for place, c in zip(places, cells, strict=True):
            low, high = errors(c)
            style = 2 if not text(c, "layout") else int(text(c, "layout") != CONTIGUOUS)
            axes.errorbar(
                [gbps(c) or 0.0], [place], xerr=[[low], [high]], capsize=4,
                marker=MARKERS[style], color=SERIES[style],
            )  # fmt: skip
        axes.set_yticks(places, [_short(label(c, cells)) for c in cells])
        axes.set_ylim(-0.6, len(cells) - 0.4)
        axes.set_xlim(left=0)
        axes.set_xlabel("bandwidth (GB/s)")

    height = min(7.0, 1.3 + 0.32 * len(cells))
    return Figure("layouts-cells", "Bandwidth of each cell", "GB/s", device, draw, _NOTE, height)


def _short(name: str) -> str:
    return name if len(name) <= 44 else f"{name[:43]}…"
