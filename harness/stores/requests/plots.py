"""Four plots of a request trace's reuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.core.files import whole_file
from harness.stores.models import ModelKv
from harness.stores.requests.histogram import cumulative_share
from harness.stores.requests.stats import RequestStats

_INK = "#1f4e79"
_SECOND = "#c55a11"


def plot_stats(stats: RequestStats, path: Path, model: ModelKv | None = None) -> Path:
    """Write one figure (SVG, PNG or PDF by the suffix) with what a team should measure first."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    figure.suptitle(f"{stats.name}: {stats.requests:,} requests, {stats.references:,} references")
    _accesses(axes[0, 0], stats)
    _gaps(axes[0, 1], stats)
    _hits(axes[1, 0], stats, model)
    _sessions(axes[1, 1], stats, model)
    with whole_file(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip(".") or "svg")
    return path


def _style(axis: Axes, title: str, x: str, y: str) -> None:
    axis.set_title(title, loc="left", fontsize=10)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(alpha=0.3)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _accesses(axis: Axes, stats: RequestStats) -> None:
    counts = np.bincount(np.minimum(stats.accesses, 1000))
    share = np.cumsum(counts) / max(1, counts.sum())
    axis.step(np.arange(1, len(share)), share[1:], where="post", color=_INK)
    axis.axhline(stats.one_shot_share, color=_SECOND, linewidth=1)
    axis.annotate(
        f"used once: {stats.one_shot_share:.1%}", (0.97, stats.one_shot_share),
        xycoords=("axes fraction", "data"), ha="right", va="bottom", color=_SECOND,
    )  # fmt: skip
    axis.set_xscale("log")
    axis.set_ylim(0, 1.02)
    _style(axis, "How often a block is used", "accesses", "share of blocks, cumulative")


def _gaps(axis: Axes, stats: RequestStats) -> None:
    for histogram, scale, label, color in (
        (stats.reuse.gap_requests, 1.0, "requests", _INK),
        (stats.reuse.gap_ms, 1e-3, "seconds", _SECOND),
    ):
        values, share = cumulative_share(histogram)
        axis.step(np.maximum(values * scale, 1e-2), share, where="post", color=color, label=label)
    axis.set_xscale("log")
    axis.legend(frameon=False)
    _style(axis, "How far apart uses are", "gap", "share of reuses, cumulative")


def _hits(axis: Axes, stats: RequestStats, model: ModelKv | None) -> None:
    cumulative = np.cumsum(stats.reuse.distances) / max(1, stats.references)
    held = np.unique(np.geomspace(1, max(2, stats.distinct_blocks), 200).astype(np.int64))
    scale, unit = _unit(stats, model)
    axis.plot(held * scale, cumulative[held - 1], color=_INK, label="LRU")
    axis.axhline(stats.ideal_prefix_hit, color=_SECOND, linewidth=1, label="ideal prefix hit")
    axis.set_xscale("log")
    axis.set_ylim(0, 1.02)
    axis.legend(frameon=False, loc="upper left")
    _style(axis, "What a cache of a size hits", f"capacity, {unit}", "hit rate")


def _sessions(axis: Axes, stats: RequestStats, model: ModelKv | None) -> None:
    blocks = np.sort(stats.reuse.session_blocks[stats.reuse.session_requests > 0])
    scale, unit = _unit(stats, model)
    share = np.arange(1, len(blocks) + 1) / max(1, len(blocks))
    axis.step(np.maximum(blocks, 1) * scale, share, where="post", color=_INK)
    axis.set_xscale("log")
    axis.set_ylim(0, 1.02)
    _style(axis, "How large a session is", f"distinct blocks, {unit}", "share of sessions")


def _unit(stats: RequestStats, model: ModelKv | None) -> tuple[float, str]:
    if model is None:
        return 1.0, f"blocks of {stats.form.block_tokens} tokens"
    return float(model.token_bytes * stats.form.block_tokens) / 2**30, f"GiB of {model.name}"
