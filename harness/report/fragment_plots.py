"""The price of fragments: how much slower than in order, against the size of a command."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from harness.report.layout_cells import LEAST_SIZES, Cells, varying, word
from harness.report.model import Figure
from harness.report.plots import LINES, MARKERS, SERIES, byte_axis, legend_above
from harness.report.values import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_SERIES = 6

_OCTAVE_PARTS = 4
_NOTE = (
    "Time to read the same session back over the session-contiguous layout's, pair by pair, with "
    "its 95 % interval. Published, at one unstated size: 1.0 at 16K tokens, 1.8 at 64K."
)


def figures(comparisons: Cells, device: str) -> list[Figure]:
    """One figure, if the comparisons differ enough in the size of their commands."""
    found = [c for c in comparisons if number(c, "request_bytes")]
    sizes = {round(_OCTAVE_PARTS * _log2(c)) for c in found}
    return [_by_fragment(found, device)] if len(sizes) >= LEAST_SIZES else []


def _log2(found: dict[str, Any]) -> float:
    return math.log2(found["request_bytes"])


def _by_fragment(found: Cells, device: str) -> Figure:
    keys = [key for key in varying(found) if key not in ("context_tokens", "chunk_tokens")]
    groups: dict[str, list[dict[str, Any]]] = {}
    for c in found:
        groups.setdefault(", ".join(word(c, key) for key in keys), []).append(c)
    many = len(groups) > MOST_SERIES
    if many:  # a curve each would be a tangle: marks by layout
        groups = {}
        for c in found:
            groups.setdefault(str(c["layout"]), []).append(c)

    def draw(axes: Axes) -> None:
        for n, (name, members) in enumerate(groups.items()):
            mine = sorted(members, key=_log2)
            medians = [number(c, "slowdown.median") or 0.0 for c in mine]
            below = [
                m - (number(c, "slowdown.low") or m) for m, c in zip(medians, mine, strict=True)
            ]
            above = [
                (number(c, "slowdown.high") or m) - m for m, c in zip(medians, mine, strict=True)
            ]
            axes.errorbar(
                [c["request_bytes"] for c in mine], medians, [below, above],
                linestyle="none" if many else LINES[n % 4], marker=MARKERS[n % 7],
                color=SERIES[n % 7], capsize=3, label=name or "scattered",
            )  # fmt: skip
        axes.axhline(1.0, color="0.5", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        byte_axis(axes.xaxis)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}x")
        axes.set_xlabel("mean bytes of a command")
        axes.set_ylabel("slower than contiguous")
        legend_above(axes, 2 if many else 1)

    height = 3.3 + 0.17 * (0 if many else len(groups))
    return Figure(
        "layouts-fragments", "Slowdown by the size of the fragments", "bytes; times", device, draw,
        _NOTE, height,
    )  # fmt: skip
