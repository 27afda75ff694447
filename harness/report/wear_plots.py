"""Figures of a wear result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.report.model import Figure
from harness.report.plots import BLUE, GREY, SERIES, VERMILION, legend_above
from harness.report.values import days, dig, number, records

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {"wear": "full-size drive", "wear-captured": "captured trace"}
_CONVENTIONS = ("paper_days", "waf1_days", "nand_days", "nand_level_days", "jedec_days")


def figures(key: str, data: dict[str, Any], device: str) -> list[Figure]:
    """What the result has data for: WAF over writes, erase histogram, lifetimes."""
    found = []
    windows = waf_windows(data)
    if len(windows) > 1:
        found.append(_waf(key, data, windows, device))
    if histogram(data):
        found.append(_erases(key, data, device))
    if sum(number(data, f"lifetimes.{name}") is not None for name in _CONVENTIONS) > 1:
        found.append(_lifetimes(key, data, device))
    return found


def waf_windows(data: dict[str, Any]) -> list[tuple[float, float, float]]:
    """(host pages so far, WAF of the step, cumulative WAF) from the counters of the snapshots."""
    steps = []
    before = (0.0, 0.0)
    for snapshot in records(data, "snapshots"):
        host, moved = number(snapshot, "host_pages"), number(snapshot, "gc_pages")
        if host is None or moved is None:
            continue
        done, copied = host - before[0], moved - before[1]
        if done > 0:
            steps.append((host, (done + copied) / done, (host + moved) / host))
            before = (host, moved)
    return steps


def _waf(
    key: str, data: dict[str, Any], windows: list[tuple[float, float, float]], device: str
) -> Figure:
    capacity = number(data, "namespace_pages") or number(data, "profile.namespace_pages")
    page = number(data, "page_bytes") or 4096.0
    unit = "drive capacities" if capacity else "TB"
    scale = 1 / capacity if capacity else page / 1e12

    def draw(axes: Axes) -> None:
        written = [host * scale for host, _, _ in windows]
        axes.plot(
            written, [w for _, w, _ in windows], color=BLUE, label="since the last snapshot",
            marker="o" if len(windows) < 40 else "", drawstyle="default",
        )  # fmt: skip
        axes.plot(written, [c for _, _, c in windows], "--", color=GREY, label="cumulative")
        low, high = number(data, "waf.low"), number(data, "waf.high")
        steady = number(data, "waf.steady")
        if steady is not None:
            axes.axhline(steady, color=VERMILION, linestyle=":", label="steady")
        if low is not None and high is not None:
            axes.axhspan(low, high, color=VERMILION, alpha=0.15, label="band")
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.set_xlabel(f"written by the host ({unit})")
        axes.set_ylabel("WAF")
        legend_above(axes, 2)

    title = f"WAF while the store writes on: {NAMES[key]}"
    return Figure(f"{key}-waf", title, f"{unit}; ratio", device, draw)


def erase_counts(data: dict[str, Any]) -> dict[str, Any]:
    """``{min, mean, max, …}`` of erases a line, {} where the result has none."""
    for path in ("erases", "erase_counts", "erase", "erases_per_line"):
        found = dig(data, path)
        if isinstance(found, dict) and number(found, "mean") is not None:
            return found
    return {}


def histogram(data: dict[str, Any]) -> list[tuple[float, float, float]]:
    """(from, to, lines) of the erase histogram, in any of the forms a histogram may take."""
    found = dig(erase_counts(data), "histogram") or dig(data, "erase_histogram")
    if isinstance(found, dict):
        edges, counts = dig(found, "edges"), dig(found, "counts")
        if isinstance(edges, list) and isinstance(counts, list) and len(edges) == len(counts) + 1:
            return [(edges[i], edges[i + 1], n) for i, n in enumerate(counts)]
        pairs = sorted((int(k), n) for k, n in found.items() if k.isdigit())
        return [(k - 0.5, k + 0.5, n) for k, n in pairs]
    if isinstance(found, list):
        listed = [_pair(item) for item in found]
        return [(k - 0.5, k + 0.5, n) for k, n in listed if k is not None and n is not None]
    return []


def _pair(item: Any) -> tuple[float | None, float | None]:
    if isinstance(item, list) and len(item) == 2:
        return number(item[0]), number(item[1])
    return number(item, "erases"), number(item, "lines")


def _erases(key: str, data: dict[str, Any], device: str) -> Figure:
    bars = histogram(data)

    def draw(axes: Axes) -> None:
        axes.bar(
            [low for low, _, _ in bars], [n for _, _, n in bars],
            [high - low for low, high, _ in bars], align="edge", color=BLUE,
            edgecolor="white", linewidth=0.5,
        )  # fmt: skip
        mean = number(erase_counts(data), "mean")
        if mean is not None:
            axes.axvline(mean, color=VERMILION, linestyle="--", label=f"mean {mean:.3g}")
            legend_above(axes)
        axes.set_xlabel("erases of a line")
        axes.set_ylabel("lines")

    title = f"How evenly the lines wear: {NAMES[key]}"
    return Figure(f"{key}-erases", title, "erases; lines", device, draw)


def _lifetimes(key: str, data: dict[str, Any], device: str) -> Figure:
    known = [(n, v) for n in _CONVENTIONS if (v := number(data, f"lifetimes.{n}")) is not None]
    warranty = number(data, "warranty_years") or number(data, "profile.warranty_years")

    def draw(axes: Axes) -> None:
        places = range(len(known))[::-1]
        axes.barh(
            places,
            [v for _, v in known],
            0.62,
            color=[SERIES[_CONVENTIONS.index(name)] for name, _ in known],
        )
        top = max([v for _, v in known] + ([warranty * 365] if warranty else []))
        for place, (_, value) in zip(places, known, strict=True):
            axes.annotate(
                f" {days(value).text}", (value, place), va="center", fontsize=9.5,
                xytext=(3, 0), textcoords="offset points",
            )  # fmt: skip
        if warranty:
            label = f"warranty, {warranty:g} y"
            axes.axvline(warranty * 365, color="#1b1f24", linestyle="--", linewidth=1, label=label)
            legend_above(axes)
        axes.set_xlim(0, top * 1.22)
        axes.set_yticks(places, [name for name, _ in known])
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("days until the budget is spent")

    title = f"Lifetime by convention: {NAMES[key]}"
    return Figure(f"{key}-lifetimes", title, "days", device, draw, height_in=2.8)
