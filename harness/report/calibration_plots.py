"""Figures of a calibration file: samples with their intervals, the fits, and what these miss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from harness.calibrate.fits import latency_gbps, saturation_gbps
from harness.report.model import Figure
from harness.report.plots import LINES, MARKERS, SERIES, byte_axis, legend_above
from harness.report.values import number, records, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Record = dict[str, Any]

_POINTS = 120
_MOST_TERMS = 8
_MOST_DEPTHS = 5
_KIND = ("hop", "direction", "pattern", "engine", "transport", "access", "layout")
_WORDS = ("direction", "pattern", "layout", "access", "engine", "transport", "hop")


def figures(data: Record, device: str) -> list[Figure]:
    """Bandwidth against request size, each fit with its samples, and the residuals of all."""
    samples = [
        s for s in records(data, "bandwidth")
        if (number(s, "request_bytes") or 0) > 0 and (number(s, "gbps.median") or 0) > 0
    ]  # fmt: skip
    if len({s["request_bytes"] for s in samples}) < 2:
        return []
    drawable = [t for t in records(data, "bandwidth_terms") if members(t, samples)]
    # Fits of one layout are parts of those of all layouts, and stand in the table.
    shown = [t for t in drawable if not text(t, "layout")]
    shown.sort(key=lambda t: (text(t, "direction") != "read", text(t, "pattern") == "layout"))
    shown = shown[:_MOST_TERMS]
    found = [_fit(n, t, members(t, samples), shown, device) for n, t in enumerate(shown)]
    if not found:
        return [_measured(samples, device)]
    return [*found, _residuals(shown, samples, device)]


def members(term: Record, samples: Sequence[Record]) -> list[Record]:
    """The samples that a bandwidth term was fitted through."""
    keys = [key for key in _KIND if text(term, key)]
    return [
        s for s in samples
        if not s.get("background_writes") and all(text(s, key) == text(term, key) for key in keys)
    ]  # fmt: skip


def issued_bytes(sample: Record) -> float:
    """Bytes of a request as it reaches the device (readers cut longer ones into tasks)."""
    size = number(sample, "request_bytes") or 0.0
    return min(size, number(sample, "task_bytes") or size)


def in_flight(sample: Record) -> float:
    """Requests outstanding in a sample."""
    return (number(sample, "queue_depth") or 1.0) * (number(sample, "threads") or 1.0)


def fitted(
    term: Record, size: npt.NDArray[np.float64], depth: float
) -> npt.NDArray[np.float64] | None:
    """GB/s that a fitted term gives for requests of ``size`` bytes, ``depth`` of them in flight.

    None where the term lacks a parameter.
    """
    limit = number(term, "b_max_gbps")
    t0_us, stream = number(term, "t0_us"), number(term, "b1_gbps")
    half = number(term, "half_bytes")
    if limit is None:
        return None
    flight = np.full(len(size), depth)
    if text(term, "form") == "saturation" and half:
        return saturation_gbps(size, flight, limit, half)
    if text(term, "form") == "latency" and t0_us is not None and stream:
        return latency_gbps(size, flight, t0_us, stream, limit)
    return None


def miss(term: Record, sample: Record) -> float | None:
    """Fitted over measured, minus one."""
    rate = fitted(term, np.array([issued_bytes(sample)]), in_flight(sample))
    median = (number(sample, "gbps.median") or 0.0) * amplification(sample)
    return None if rate is None or not median else float(rate[0]) / median - 1


def amplification(sample: Record) -> float:
    """Bytes read over bytes wanted: fits are of what the device gave."""
    return number(sample, "amplification") or 1.0


def _name(term: Record, among: Sequence[Record]) -> str:
    """A term by what tells it from the others."""
    keys = [
        key for key in _WORDS
        if key in ("direction", "pattern") or len({text(t, key) for t in among}) > 1
    ]  # fmt: skip
    return ", ".join(word for key in keys if (word := text(term, key)))


def _fit(
    place: int, term: Record, samples: list[Record], among: Sequence[Record], device: str
) -> Figure:
    depths = sorted({in_flight(s) for s in samples})
    chosen = depths if len(depths) <= _MOST_DEPTHS else _spread(depths)

    def draw(axes: Axes) -> None:
        sizes = [issued_bytes(s) for s in samples]
        size = np.geomspace(min(sizes), max(sizes), _POINTS)
        for n, depth in enumerate(chosen):
            mine = [s for s in samples if in_flight(s) == depth]
            _points(axes, mine, n, f"{depth:g} in flight")
            rate = fitted(term, size, depth)
            if rate is not None:
                axes.plot(size, rate, LINES[n % 4], color=SERIES[n % 7], linewidth=1.1)
        _size_axis(axes)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("bytes read or written (GB/s)")
        legend_above(axes, 3)

    form, error = text(term, "form") or "fit", number(term, "error")
    note = f"Marks: medians with 95 % intervals. Lines: the {form} form"
    note += "" if error is None else f", cross-validated error {error:.1%}"
    other = term.get("rejected")
    if isinstance(other, dict) and other:
        note += "".join(f"; not taken: {name} ({value:.1%})" for name, value in other.items())
    if chosen != depths:
        note += f". {len(chosen)} of {len(depths)} depths are drawn"
    title = f"Bandwidth by request size: {_name(term, among)}"
    return Figure(f"calibration-fit-{place}", title, "bytes; GB/s", device, draw, note + ".")


def _spread(depths: list[float]) -> list[float]:
    picks = np.round(np.linspace(0, len(depths) - 1, _MOST_DEPTHS)).astype(int)
    return [depths[i] for i in picks]


def _points(axes: Axes, samples: list[Record], place: int, label: str) -> None:
    def rate(sample: Record, end: str) -> float:
        given = number(sample, f"gbps.{end}") or number(sample, "gbps.median") or 0.0
        return given * amplification(sample)

    middle = [rate(s, "median") for s in samples]
    pairs = list(zip(samples, middle, strict=True))
    low = [max(0.0, m - rate(s, "low")) for s, m in pairs]
    high = [max(0.0, rate(s, "high") - m) for s, m in pairs]
    axes.errorbar(
        [issued_bytes(s) for s in samples], middle, [low, high], linestyle="none",
        marker=MARKERS[place % 7], color=SERIES[place % 7], capsize=2, label=label,
    )  # fmt: skip


def _size_axis(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    byte_axis(axes.xaxis)
    axes.set_xlabel("request size")


def _residuals(terms: list[Record], samples: list[Record], device: str) -> Figure:
    def draw(axes: Axes) -> None:
        for n, term in enumerate(terms):
            pairs = [(issued_bytes(s), miss(term, s)) for s in members(term, samples)]
            pairs = [pair for pair in pairs if pair[1] is not None]
            axes.plot(
                [size for size, _ in pairs], [100 * (off or 0.0) for _, off in pairs],
                linestyle="none", marker=MARKERS[n % 7], color=SERIES[n % 7], alpha=0.8,
                label=_name(term, terms),
            )  # fmt: skip
        axes.axhline(0.0, color="0.4", linewidth=0.9)
        _size_axis(axes)
        axes.set_ylabel("fit over sample, minus one (%)")
        legend_above(axes, 1)

    note = "Each fit at each of its samples; a pattern over size is what the form lacks."
    height = 3.3 + 0.17 * len(terms)
    title = "Residuals of the bandwidth fits"
    return Figure("calibration-residuals", title, "bytes; %", device, draw, note, height)


def _measured(samples: list[Record], device: str) -> Figure:
    def series(sample: Record) -> str:
        name = text(sample, "layout") or text(sample, "pattern") or "sample"
        direction = text(sample, "direction")
        return f"{name}, {direction}" if direction else name

    def draw(axes: Axes) -> None:
        for place, name in enumerate(dict.fromkeys(series(s) for s in samples)):
            _points(axes, [s for s in samples if series(s) == name], place, name)
        _size_axis(axes)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("bytes read or written (GB/s)")
        legend_above(axes, 2)

    note = "Median with its 95 % interval, all depths; too few sizes and depths for a fit."
    title = "Measured bandwidth by request size"
    return Figure("calibration-bandwidth", title, "bytes; GB/s", device, draw, note)
