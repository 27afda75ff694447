"""Figures of a binned block trace."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.core.ops import Op
from harness.core.units import format_size
from harness.report.bins import TIME_BINS, TraceBins
from harness.report.model import Figure
from harness.report.plots import (
    LINES,
    OP_COLOURS,
    OP_NAMES,
    byte_axis,
    duration_axis,
    legend_above,
    log_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STEPS = 128
_MAPS = {Op.READ: "Blues", Op.WRITE: "Oranges"}


def figures(bins: TraceBins, device: str) -> tuple[Figure, ...]:
    """What the trace has data for."""
    found = []
    if bins.size_bytes[[Op.READ, Op.WRITE, Op.DISCARD]].any():
        found.append(_sizes(bins, device))
        found.append(_rate(bins, device))
    found += [_map(bins, op, device) for op in _MAPS if bins.size_bytes[op] > 0]
    if bins.depth.deepest:
        found.append(_depth(bins, device))
    if bins.latency_counts.any():
        found.append(_latency(bins, device))
    return tuple(found)


def _span(bins: TraceBins) -> int:
    """Bins of the time axis up to the last issue."""
    return min(TIME_BINS, bins.last_ts_ns // bins.time.width + 1)


def _time_means(values: Any, bins: TraceBins) -> tuple[Any, Any]:
    """(seconds, means) of a series over the time axis, in at most 128 equal steps."""
    span = _span(bins)
    joined = 1
    while span > _STEPS * joined:
        joined *= 2
    steps = -(-span // joined)
    means = values[: steps * joined].reshape(steps, joined).mean(axis=1)
    return (np.arange(steps) + 0.5) * joined * bins.time.width / 1e9, means


def _size_classes(bins: TraceBins, op: Op) -> dict[int, int]:
    """Requests by size rounded up to a power of two."""
    classes: dict[int, int] = {}
    for length, count in bins.sizes(op).items():
        if length:
            top = 1 << (length - 1).bit_length()
            classes[top] = classes.get(top, 0) + count
    return classes


def _sizes(bins: TraceBins, device: str) -> Figure:
    def draw(axes: Axes) -> None:
        ops = [op for op in (Op.READ, Op.WRITE, Op.DISCARD) if bins.size_bytes[op] > 0]
        classes = {op: _size_classes(bins, op) for op in ops}
        used = [top for found in classes.values() for top in found]
        ticks = [1 << n for n in range(min(used).bit_length() - 1, max(used).bit_length())]
        width = 0.8 / len(ops)
        for place, op in enumerate(ops):
            total = sum(classes[op].values())
            shares = [100 * classes[op].get(top, 0) / total for top in ticks]
            where = np.arange(len(ticks)) - 0.4 + width * (place + 0.5)
            axes.bar(where, shares, width, color=OP_COLOURS[op], label=OP_NAMES[op])
        step = max(1, -(-len(ticks) // 9))
        axes.set_xticks(range(0, len(ticks), step), [format_size(t) for t in ticks[::step]])
        axes.tick_params(axis="x", rotation=35)
        axes.grid(axis="x", visible=False)
        axes.set_xlabel("request size, up to")
        axes.set_ylabel("share of the operation's requests (%)")
        legend_above(axes)

    return Figure("trace-sizes", "Request sizes", "bytes; % of requests", device, draw)


def _rate(bins: TraceBins, device: str) -> Figure:
    def draw(axes: Axes) -> None:
        for style, op in zip(LINES, (Op.READ, Op.WRITE, Op.DISCARD), strict=False):
            if bins.size_bytes[op] > 0:
                # Bytes a nanosecond are gigabytes a second.
                rate = bins.bytes_over_time[op] / bins.time.width
                axes.plot(
                    *_time_means(rate, bins), style,
                    color=OP_COLOURS[op], label=OP_NAMES[op], linewidth=1.3,
                )  # fmt: skip
        axes.set_xlim(0, _span(bins) * bins.time.width / 1e9)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("time since the first request (s)")
        axes.set_ylabel("issued (GB/s)")
        legend_above(axes)

    return Figure("trace-rate", "Bytes issued over time", "s; GB/s", device, draw)


def _map(bins: TraceBins, op: Op, device: str) -> Figure:
    factor = _coarseness(bins)
    cell_ns, cell_bytes = bins.time.width * factor, bins.lba.width * factor

    def draw(axes: Axes) -> None:
        from matplotlib.colors import LogNorm

        columns = -(-_span(bins) // factor)
        both = [_coarser(plane, factor) for plane in bins.bytes_map]
        rows = np.flatnonzero(sum(both).sum(axis=1))
        low, high = int(rows[0]), int(rows[-1]) + 1
        shown = np.ma.masked_equal(both[op][low:high, :columns], 0)
        most = float(shown.max()) / 2**20
        least = min(float(shown.min()) / 2**20, most / 10)
        image = axes.imshow(
            shown / 2**20, origin="lower", aspect="auto", interpolation="nearest",
            cmap=_stronger(_MAPS[op]), norm=LogNorm(least, most),
            extent=(0, columns * cell_ns / 1e9, low * cell_bytes, high * cell_bytes),
        )  # fmt: skip
        byte_axis(axes.yaxis)
        axes.grid(visible=False)
        axes.set_xlabel("time since the first request (s)")
        axes.set_ylabel("offset on the device")
        assert axes.figure is not None
        bar = axes.figure.colorbar(image, ax=axes, label="MiB a cell", pad=0.02)
        log_axis(bar.ax.yaxis, lambda value: f"{value:g}")

    title = "Where reads fall" if op == Op.READ else "Where writes fall"
    size_text = f"{cell_ns / 1e6:.3g} ms x {format_size(cell_bytes)}"
    note = f"Bytes by time and first LBA; a cell is {size_text}; white cells had none."
    unit = "s; bytes of device offset; MiB"
    return Figure(f"trace-map-{OP_NAMES[op]}", title, unit, device, draw, note)


def _coarseness(bins: TraceBins) -> int:
    """Bins of either axis to join into one cell, so that a short trace shows density, not dust."""
    rows = np.count_nonzero(bins.bytes_map.sum(axis=(0, 2)))
    factor = 1
    while factor < 8 and rows * _span(bins) > 3 * bins.rows * factor**2:
        factor *= 2
    return factor


def _coarser(plane: Any, factor: int) -> Any:
    height, width = plane.shape
    return plane.reshape(height // factor, factor, width // factor, factor).sum(axis=(1, 3))


def _stronger(name: str) -> Any:
    """A colour map without its palest fifth, which would pass for an empty cell."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    return ListedColormap(matplotlib.colormaps[name](np.linspace(0.25, 1.0, 192)))


def _depth(bins: TraceBins, device: str) -> Figure:
    def draw(axes: Axes) -> None:
        seconds, mean = _time_means(bins.mean_depth(), bins)
        axes.fill_between(seconds, mean, step="mid", color="#56B4E9", alpha=0.55, linewidth=0)
        axes.plot(seconds, mean, color="#0072B2", linewidth=1.1, drawstyle="steps-mid")
        axes.set_xlim(0, _span(bins) * bins.time.width / 1e9)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("time since the first request (s)")
        axes.set_ylabel("requests in flight (mean)")

    at_issue = ", ".join(
        f"{label} {bins.depth.quantile(share)}"
        for label, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    )
    note = f"At issue, the request itself counted: {at_issue}."
    return Figure("trace-depth", "Queue depth over time", "s; requests", device, draw, note)


def _latency(bins: TraceBins, device: str) -> Figure:
    # Evenly spaced in nines, so that the tail gets its room.
    nines = np.linspace(0.05, 5, 100)
    marks = {0.301: "50", 1: "90", 2: "99", 3: "99.9", 4: "99.99", 5: "99.999"}

    def draw(axes: Axes) -> None:
        deepest = 1.0
        for style, op in zip(cycle(LINES), (o for o in OP_NAMES if bins.latency_counts[o].any()),
                             strict=False):  # fmt: skip
            known = nines <= np.log10(max(10, int(bins.latency_counts[op].sum())))
            seconds = bins.latency_ns(op, 1 - 10.0 ** -nines[known]) / 1e9
            colour = OP_COLOURS.get(op, "#8a929b")
            axes.plot(nines[known], seconds, style, color=colour, label=OP_NAMES[op])
            deepest = max(deepest, float(nines[known][-1]))
        axes.set_yscale("log")
        duration_axis(axes.yaxis)
        ticks = [n for n in marks if n <= deepest + 0.01]
        axes.set_xticks(ticks, [marks[n] for n in ticks])
        axes.set_xlabel("share of requests that were faster (%)")
        axes.set_ylabel("latency")
        legend_above(axes)

    return Figure("trace-latency", "Latency by operation", "% of requests; time", device, draw)
