"""Figures of a calibration file: samples with their intervals, and the fits through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from harness.report.model import Figure
from harness.report.plots import LINES, MARKERS, SERIES, byte_axis, legend_above
from harness.report.values import number, records, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 120


def figures(data: dict[str, Any], device: str) -> list[Figure]:
    """Bandwidth against request size, where more than one size was measured."""
    samples = [
        s for s in records(data, "bandwidth")
        if number(s, "request_bytes") and number(s, "gbps.median")
    ]  # fmt: skip
    if len({s["request_bytes"] for s in samples}) < 2:
        return []
    return [_bandwidth(samples, records(data, "bandwidth_terms"), device)]


def _series(found: dict[str, Any]) -> str:
    name = text(found, "layout") or text(found, "pattern") or "sample"
    direction = text(found, "direction")
    return f"{name}, {direction}" if direction else name


def fitted(term: dict[str, Any], size: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
    """GB/s that a fitted term gives for requests of ``size`` bytes at its largest depth.

    The two forms are those of the calibration file: ``latency`` is
    min(depth * size / (t0 + size / b1), b_max), ``saturation`` b_max * size / (size + half).
    None where the term lacks a parameter.
    """
    limit = number(term, "b_max_gbps")
    t0_us, stream = number(term, "t0_us"), number(term, "b1_gbps")
    half = number(term, "half_bytes")
    if limit is None:
        return None
    if text(term, "form") == "saturation" and half:
        return np.asarray(limit * size / (size + half))
    if text(term, "form") == "latency" and t0_us is not None and stream:
        depth = number(term, "valid.queue_depth.high") or 1.0
        seconds = t0_us / 1e6 + size / (stream * 1e9)
        return np.asarray(np.minimum(depth * size / seconds / 1e9, limit))
    return None


def _curve(axes: Axes, term: dict[str, Any], line: str) -> None:
    low, high = (number(term, f"valid.request_bytes.{end}") for end in ("low", "high"))
    if low is None or high is None or not 0 < low < high:
        return
    size = np.geomspace(low, high, _POINTS)
    rate = fitted(term, size)
    if rate is not None:
        depth = number(term, "valid.queue_depth.high")
        label = f"fit: {_series(term)}" + (f", depth {depth:g}" if depth else "")
        axes.plot(size, rate, line, color="#59626d", linewidth=1.2, label=label)


def _bandwidth(samples: list[dict[str, Any]], terms: list[dict[str, Any]], device: str) -> Figure:
    def draw(axes: Axes) -> None:
        for place, term in enumerate(terms[:3]):
            _curve(axes, term, LINES[place])
        for place, name in enumerate(dict.fromkeys(_series(s) for s in samples)):
            mine = [s for s in samples if _series(s) == name]
            middle = [s["gbps"]["median"] for s in mine]
            pairs = list(zip(mine, middle, strict=True))
            low = [max(0.0, m - (number(s, "gbps.low") or m)) for s, m in pairs]
            high = [max(0.0, (number(s, "gbps.high") or m) - m) for s, m in pairs]
            axes.errorbar(
                [s["request_bytes"] for s in mine], middle, [low, high], linestyle="none",
                marker=MARKERS[place % 7], color=SERIES[place % 7], capsize=2, label=name,
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        byte_axis(axes.xaxis)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("mean request size")
        axes.set_ylabel("bandwidth (GB/s)")
        legend_above(axes, 2)

    note = "Median with its 95 % interval, all depths; grey lines are the fitted terms."
    title = "Measured bandwidth by request size"
    return Figure("calibration-bandwidth", title, "bytes; GB/s", device, draw, note)
