"""Figures of the WAF terms of a calibration file: curves through their samples, and residuals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.calibrate.fits import waf_at
from harness.calibrate.wear import ROUNDED, rounded
from harness.report.model import Figure
from harness.report.plots import LINES, MARKERS, SERIES, legend_above
from harness.report.values import number, records, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Record = dict[str, Any]

_POINTS = 80
_MOST_CURVES = 7
_LABELS = {
    "utilisation": "store / namespace",
    "over_provisioning": "spare / namespace",
    "chunk_per_line": "chunk / line",
}


def figures(data: Record, device: str) -> list[Figure]:
    """WAF against each variable that was swept, with the residuals of its curves."""
    samples = [s for s in records(data, "waf") if number(s, "steady") is not None]
    found = []
    for variable in _LABELS:
        terms = [
            t for t in records(data, "waf_terms")
            if t.get("variable") == variable and members(t, samples)
        ]  # fmt: skip
        # The curves that bend most are those that a reader looks for.
        terms.sort(key=lambda t: -_rise(t, members(t, samples)))
        if terms:
            found.append(_curves(variable, terms, samples, device))
            found.append(_residuals(variable, terms, samples, device))
    return found


def members(term: Record, samples: Sequence[Record]) -> list[Record]:
    """The samples that a WAF term was fitted through, by what it holds."""
    held = term.get("held")
    if not isinstance(held, dict) or not held:
        return []
    return [s for s in samples if all(_equal(key, s.get(key), held[key]) for key in held)]


def value(sample: Record, variable: str) -> float | None:
    """The value of a variable in a sample."""
    if variable == "chunk_per_line":
        chunk, line = number(sample, "chunk_bytes"), number(sample, "line_bytes")
        return chunk / line if chunk and line else None
    return number(sample, variable)


def _equal(key: str, found: Any, held: Any) -> bool:
    return bool((rounded(number(found)) if key in ROUNDED else found) == held)


def _points(term: Record, samples: list[Record], variable: str) -> list[tuple[float, float]]:
    pairs = [(value(s, variable), number(s, "steady")) for s in members(term, samples)]
    return sorted((x, waf) for x, waf in pairs if x is not None and waf is not None)


def _rise(term: Record, samples: list[Record]) -> float:
    wafs = [number(s, "steady") or 1.0 for s in samples]
    return max(wafs) - min(wafs)


def _at(term: Record, x: float | np.ndarray) -> np.ndarray:
    return waf_at(
        text(term, "form") or "", np.atleast_1d(np.asarray(x, float)),
        number(term, "a") or 0.0, number(term, "b") or 0.0,
    )  # fmt: skip


def _name(term: Record, among: list[Record]) -> str:
    """A curve by what is held in it and differs between the curves."""
    held = [t["held"] for t in among]
    keys = [key for key in term["held"] if len({str(h.get(key)) for h in held}) > 1]
    return ", ".join(_word(key, term["held"][key]) for key in keys) or (text(term, "store") or "")


def _word(key: str, held: Any) -> str:
    from harness.core.units import format_size

    if key.endswith("_bytes") and isinstance(held, int):
        return f"{key.removesuffix('_bytes')} {format_size(held)}"
    words = {"utilisation": "used", "over_provisioning": "spare"}
    return f"{words[key]} {held:g}" if key in words and held is not None else str(held)


def _same(terms: list[Record]) -> str:
    held = terms[0]["held"]
    keys = [k for k in held if len({str(t["held"].get(k)) for t in terms}) == 1]
    return ", ".join(_word(key, held[key]) for key in keys if held[key] is not None)


def _curves(variable: str, terms: list[Record], samples: list[Record], device: str) -> Figure:
    shown = terms[:_MOST_CURVES]

    def draw(axes: Axes) -> None:
        for n, term in enumerate(shown):
            x, waf = np.array(_points(term, samples, variable)).T
            colour, line = SERIES[n % 7], LINES[n % 4]
            axes.plot(x, waf, linestyle="none", marker=MARKERS[n % 7], color=colour)
            across = np.linspace(x.min(), x.max(), _POINTS)
            name = _name(term, shown)
            axes.plot(across, _at(term, across), line, color=colour, linewidth=1.1, label=name)
        axes.set_xlabel(_LABELS[variable])
        axes.set_ylabel("steady WAF")
        legend_above(axes, 1)

    note = f"Marks: samples; lines: fits within their range. The same in all: {_same(shown)}."
    if len(shown) < len(terms):
        note += f" {len(terms) - len(shown)} flatter curves are left out."
    title = f"Write amplification by {_LABELS[variable]}"
    height = 3.3 + 0.17 * len(shown)
    return Figure(f"calibration-waf-{variable}", title, "WAF", device, draw, note, height)


def _residuals(variable: str, terms: list[Record], samples: list[Record], device: str) -> Figure:
    shown = terms[:_MOST_CURVES]

    def draw(axes: Axes) -> None:
        for n, term in enumerate(shown):
            x, waf = np.array(_points(term, samples, variable)).T
            axes.plot(
                x, 100 * (_at(term, x) / waf - 1), linestyle="none", marker=MARKERS[n % 7],
                color=SERIES[n % 7], label=f"{_name(term, shown)}: {text(term, 'form')}",
            )  # fmt: skip
        axes.axhline(0.0, color="0.4", linewidth=0.9)
        axes.set_xlabel(_LABELS[variable])
        axes.set_ylabel("fit over sample, minus one (%)")
        legend_above(axes, 1)

    title = f"Residuals of the WAF fits by {_LABELS[variable]}"
    height = 3.3 + 0.17 * len(shown)
    name = f"calibration-waf-residuals-{variable}"
    return Figure(name, title, "%", device, draw, height_in=height)
