"""Statistics as pictures: one file each, SVG or PNG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.core.files import whole_file
from harness.core.ops import Op
from harness.trace.stats.histogram import LogHistogram

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from harness.trace.stats import TraceStats

FORMATS = ("svg", "png")
_COLOURS = {"read": "#1f77b4", "write": "#d62728", "discard": "#7f7f7f"}
_GIB = 2**30


def write_plots(stats: TraceStats, folder: Path, form: str = "svg") -> list[Path]:
    """Draw every plot that ``stats`` has data for into ``folder``; returns the files."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.fonttype"] = "none"
    rcParams["svg.hashsalt"] = "trace"
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, draw in _PLOTS.items():
        figure = Figure(figsize=(7.5, 4.0), layout="constrained")
        axes = figure.add_subplot()
        if not draw(stats, axes):
            continue
        axes.grid(alpha=0.3)
        path = folder / f"{name}.{form}"
        with whole_file(path) as temporary:
            figure.savefig(temporary, format=form, dpi=120, metadata=_no_date(form))
        made.append(path)
    return made


def _no_date(form: str) -> dict[str, Any]:
    """The same statistics give the same file."""
    return {"Date": None} if form == "svg" else {}


def _addresses(stats: TraceStats, axes: Axes) -> bool:
    sample = stats.sample
    for op, name in ((Op.READ, "read"), (Op.WRITE, "write"), (Op.DISCARD, "discard")):
        mine = sample["op"] == op
        if mine.any():
            time, unit = _time_axis(stats, sample["ts_ns"][mine])
            axes.plot(
                time,
                sample["start"][mine] / _GIB,
                ".",
                markersize=2,
                color=_COLOURS[name],
                label=name,
                rasterized=True,
            )
            axes.set_xlabel(unit)
    axes.set_ylabel("address (GiB)")
    axes.set_title(f"Addresses over time ({len(sample['op']):,} requests drawn)")
    axes.legend(loc="upper left", markerscale=5)
    return True


def _time_axis(stats: TraceStats, ts_ns: Any) -> tuple[Any, str]:
    if stats.data["has_clock"]:
        return ts_ns / 1e9, "time (s)"
    return ts_ns, "request (no clock)"


def _throughput(stats: TraceStats, axes: Axes) -> bool:
    line = stats.data["timeline"]
    if not stats.data["has_clock"] or len(line["reads"]) < 2:
        return False
    time = np.arange(len(line["reads"])) * line["bin_s"]
    for name in ("read", "write", "discard"):
        rate = np.array(line[f"{name}_bytes"]) / line["bin_s"] / 2**20
        if rate.any():
            axes.step(time, rate, where="post", color=_COLOURS[name], label=name)
    axes.set_xlabel("time (s)")
    axes.set_ylabel("MiB/s")
    axes.set_title("Read/write mix over time")
    axes.legend()
    return True


def _depth(stats: TraceStats, axes: Axes) -> bool:
    line = stats.data["timeline"]
    if stats.data["queue_depth"] is None or len(line["reads"]) < 2:
        return False
    time = np.arange(len(line["reads"])) * line["bin_s"]
    axes.step(time, line["depth_max"], where="post", color="#c7c7c7", label="maximum")
    axes.step(time, line["depth_mean"], where="post", color="#2ca02c", label="mean")
    axes.set_xlabel("time (s)")
    axes.set_ylabel("requests in flight at issue")
    axes.set_title("Queue depth over time")
    axes.legend()
    return True


def _sizes(stats: TraceStats, axes: Axes) -> bool:
    shown = {
        name: each["common_sizes"][:8]
        for name, each in stats.data["operations"].items()
        if name in _COLOURS
    }
    sizes = sorted({size["bytes"] for common in shown.values() for size in common})
    if not sizes:
        return False
    width = 0.8 / len(shown)
    for number, (name, common) in enumerate(shown.items()):
        place = [sizes.index(size["bytes"]) + number * width for size in common]
        axes.bar(
            place, [size["requests"] for size in common], width, color=_COLOURS[name], label=name
        )
    labels = [f"{size / 1024:g}" for size in sizes]
    axes.set_xticks(np.arange(len(sizes)) + width * (len(shown) - 1) / 2, labels, rotation=45)
    axes.set_xlabel("request size (KiB)")
    axes.set_ylabel("requests")
    axes.set_title("Most frequent request sizes")
    axes.legend()
    return True


def _distribution(
    histograms: dict[str, LogHistogram], axes: Axes, scale: float, title: str, label: str, what: str
) -> bool:
    """Cumulative shares on a logarithmic axis."""
    drawn = False
    edges = LogHistogram.edges()
    for name, histogram in histograms.items():
        if histogram.count and name in _COLOURS:
            used = np.flatnonzero(histogram.counts)
            share = np.cumsum(histogram.counts)[used] / histogram.count
            axes.step(edges[used] / scale, share, where="post", color=_COLOURS[name], label=name)
            drawn = True
    if drawn:
        axes.set_xscale("log")
        axes.set_ylim(0, 1.02)
        axes.set_xlabel(label)
        axes.set_ylabel(f"share of {what}")
        axes.set_title(title)
        axes.legend()
    return drawn


def _latency(stats: TraceStats, axes: Axes) -> bool:
    return _distribution(stats.latency_ns, axes, 1e6, "Latency", "latency (ms)", "requests")


def _jumps(stats: TraceStats, axes: Axes) -> bool:
    title = "Distance of jumps (sequential requests left out)"
    return _distribution(stats.jump_bytes, axes, 2**20, title, "distance (MiB)", "jumps")


def _fates(stats: TraceStats, axes: Axes) -> bool:
    fates = stats.data["rewrites"]
    if not fates["written_bytes"]:
        return False
    labels = ("overwritten later", "discarded while valid", "never rewritten")
    keys = ("overwritten_bytes", "discarded_bytes", "never_rewritten_bytes")
    axes.barh(labels, [fates[key] / _GIB for key in keys], color=("#d62728", "#7f7f7f", "#2ca02c"))
    axes.invert_yaxis()
    axes.set_xlabel("GiB")
    axes.set_title(f"What became of {fates['written_bytes'] / _GIB:.3g} GiB written")
    return True


_PLOTS: dict[str, Callable[[TraceStats, Axes], bool]] = {
    "addresses": _addresses,
    "throughput": _throughput,
    "queue-depth": _depth,
    "request-sizes": _sizes,
    "latency": _latency,
    "jumps": _jumps,
    "rewrites": _fates,
}
