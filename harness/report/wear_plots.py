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
    """(host pages so far, WAF of the step, WAF so far) by windows of one namespace each.

    A result without windows gives its snapshots instead, whose counters add up from the start.
    """
    windows = records(data, "windows")
    pages = _pages(windows) if windows else _increments(_pages(records(data, "snapshots")))
    steps, host, copied = [], 0.0, 0.0
    for written, moved in pages:
        if written > 0:
            host, copied = host + written, copied + moved
            steps.append((host, (written + moved) / written, (host + copied) / host))
    return steps


def _pages(found: list[dict[str, Any]]) -> list[tuple[float, float]]:
    pairs = [(number(f, "host_pages"), number(f, "gc_pages")) for f in found]
    return [(host, moved) for host, moved in pairs if host is not None and moved is not None]


def _increments(totals: list[tuple[float, float]]) -> list[tuple[float, float]]:
    before = [(0.0, 0.0), *totals]
    return [(h - b, m - c) for (h, m), (b, c) in zip(totals, before, strict=False)]


def _waf(
    key: str, data: dict[str, Any], windows: list[tuple[float, float, float]], device: str
) -> Figure:
    capacity = number(data, "namespace_pages")
    page = number(data, "page_bytes") or 4096.0
    unit = "drive capacities" if capacity else "TB"
    scale = 1 / capacity if capacity else page / 1e12

    def draw(axes: Axes) -> None:
        written = [host * scale for host, _, _ in windows]
        axes.plot(
            written, [w for _, w, _ in windows], color=BLUE, label="each window",
            marker="o" if len(windows) < 40 else "",
        )  # fmt: skip
        axes.plot(written, [c for _, _, c in windows], "--", color=GREY, label="so far")
        low, high = number(data, "waf.low"), number(data, "waf.high")
        steady = number(data, "waf.steady")
        if steady is not None:
            label = f"steady, {steady:.3g}"
            axes.axhline(steady, color=VERMILION, linestyle=":", label=label)
        if low is not None and high is not None:
            band = str(dig(data, "waf.band") or "band")
            axes.axhspan(low, high, color=VERMILION, alpha=0.15, label=band)
        top = max(w for _, w, _ in windows)
        axes.set_ylim(0.95, max(1.3, 1.08 * max(top, high or 0)))
        axes.set_xlim(left=0)
        axes.set_xlabel(f"written by the host ({unit})")
        axes.set_ylabel("WAF")
        legend_above(axes, 2)

    title = f"WAF while the store writes on: {NAMES[key]}"
    return Figure(f"{key}-waf", title, f"{unit}; ratio", device, draw)


def histogram(data: dict[str, Any]) -> list[tuple[float, float, float]]:
    """(from, to, lines) of the erase histogram; [] unless every edge and count is a number."""
    edges, counts = (dig(data, f"erases.histogram.{part}") for part in ("edges", "counts"))
    if not isinstance(edges, list) or not isinstance(counts, list):
        return []
    bounds = [found for edge in edges if (found := number(edge)) is not None]
    lines = [found for count in counts if (found := number(count)) is not None]
    if len(lines) != len(counts) or len(bounds) != len(edges) or len(bounds) != len(lines) + 1:
        return []
    return list(zip(bounds, bounds[1:], lines, strict=False))


def _erases(key: str, data: dict[str, Any], device: str) -> Figure:
    bars = histogram(data)

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        axes.bar(
            [low for low, _, _ in bars], [n for _, _, n in bars],
            [high - low for low, high, _ in bars], align="edge", color=BLUE,
            edgecolor="white", linewidth=0.5,
        )  # fmt: skip
        mean = number(data, "erases.mean")
        if mean is not None:
            axes.axvline(mean, color=VERMILION, linestyle="--", label=f"mean {mean:.3g}")
            legend_above(axes)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
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
