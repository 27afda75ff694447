"""Figures as inline SVG: one look, colours that the colour-blind can tell apart."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.core.ops import Op
from harness.report.model import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette; series differ in marker or line style too, for print.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, GREY = "#E69F00", "#56B4E9", "#1b1f24", "#8a929b"
SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":")
OP_COLOURS = {Op.READ: BLUE, Op.WRITE: VERMILION, Op.DISCARD: GREEN, Op.FLUSH: PURPLE}
OP_NAMES = {
    Op.READ: "read",
    Op.WRITE: "write",
    Op.DISCARD: "discard",
    Op.FLUSH: "flush",
    Op.WRITE_ZEROES: "write zeroes",
    Op.OTHER: "other",
}

WIDTH_IN = 4.8
_STYLE: dict[str, Any] = {
    "font.size": 9.5,
    "font.family": ["DejaVu Sans"],
    "svg.fonttype": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#596069",
    "axes.labelcolor": BLACK,
    "axes.titlesize": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.7,
    "xtick.color": "#404750",
    "ytick.color": "#404750",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.7,
    "lines.markersize": 5,
    "patch.linewidth": 0,
    "figure.facecolor": "none",
    "axes.facecolor": "white",
}


def svg(figure: Figure, salt: str = "") -> str:
    """Draw ``figure`` and return its ``<svg>`` element; the same input gives the same text.

    ``salt`` keeps the ids inside apart from those of other figures on the page.
    """
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    style: Any = {**_STYLE, "svg.hashsalt": figure.name + salt}
    with matplotlib.rc_context(style):
        canvas = Canvas(figsize=(WIDTH_IN, figure.height_in), layout="constrained")
        figure.draw(canvas.add_subplot())
        text = io.StringIO()
        plain = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        canvas.savefig(text, format="svg", metadata=plain)
    return _inline(text.getvalue(), figure.title)


def _inline(text: str, title: str) -> str:
    """Without the XML prologue and ids that nothing refers to; named for screen readers."""
    text = text[text.index("<svg") :].strip()
    text = re.sub(r'<g id="[A-Za-z0-9_.]+_\d+"', "<g", text)
    text = re.sub(r"\n\s*", "\n", text)
    # The page's width decides, not the size in points.
    text = re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", text, count=1)
    label = title.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def byte_axis(axis: Any) -> None:
    """Label ticks of ``axes.xaxis`` or ``axes.yaxis`` in KiB, MiB…, at binary multiples."""
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    from harness.core.units import format_size

    low, high = axis.get_view_interval()
    if axis.get_scale() == "linear" and high > low:
        step = 2 ** math.ceil(math.log2((high - low) / 6))
        axis.set_major_locator(MultipleLocator(step))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_size(value)))


def duration_axis(axis: Any) -> None:
    """Label ticks of a logarithmic axis in seconds as ns, µs, ms…"""
    from harness.core.units import format_duration

    log_axis(axis, lambda value: format_duration(value).replace("us", "µs"))


def log_axis(axis: Any, label: Callable[[float], str]) -> None:
    """Ticks at 1, 2 and 5 of each decade of a logarithmic axis, or of one if there are many."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    few = low > 0 and high / low < 300
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: label(value)))
    axis.set_minor_formatter(NullFormatter())


def legend_above(axes: Axes, columns: int = 3) -> None:
    """A legend over the axes, where it hides nothing; none for a single unlabelled series."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(
            handles, labels, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns,
            borderaxespad=0.2, handlelength=1.8, columnspacing=1.2,
        )  # fmt: skip
