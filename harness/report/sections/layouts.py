"""Layouts: how fast a session's KV comes back, in order and scattered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.report.model import (
    Better,
    Column,
    Figure,
    KeyNumber,
    Level,
    Section,
    Table,
    Verdict,
)
from harness.report.plots import LINES, MARKERS, SERIES, legend_above
from harness.report.run import Run, describe_device
from harness.report.values import (
    cell,
    dig,
    duration,
    interval,
    number,
    percent,
    records,
    size,
    strings,
    text,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DIMENSIONS = {
    "layout": "layout",
    "model": "model",
    "context_tokens": "context (tokens)",
    "turns": "turns",
    "sessions": "sessions",
    "access": "access",
    "queue_depth": "depth",
    "direction": "direction",
    "pattern": "pattern",
    "engine": "engine",
    "transport": "transport",
    "background_writes": "background writes",
    "age": "age",
    "background": "background",
}
_COUNTS = ("context_tokens", "turns", "sessions", "queue_depth")
_CONTIGUOUS = ("session-contiguous", "contiguous", "layer-ordered")


def section(run: Run) -> Section:
    """The section of the layout benchmark of ``run``."""
    name, title = "layouts", "Layouts"
    bench = run.get("bench")
    cells = [c for c in records(bench, "cells") if gbps(c) is not None]
    if bench is None or not cells:
        reason = (
            run.why_absent("bench") if bench is None else "no cell of the benchmark was measured"
        )
        return Section(name, title, absent=reason)
    device = describe_device(dig(bench, "device")) or run.device
    return Section(
        name,
        title,
        "What does it cost to read a session back when its blocks are scattered?",
        verdicts=tuple(_verdicts(bench, cells)),
        keys=tuple(_keys(bench, cells)),
        tables=(*_comparisons(bench), _table(cells), *_load(bench)),
        figures=tuple(_figures(cells, device)),
        notes=tuple(_notes(bench)),
    )


def gbps(found: dict[str, Any]) -> float | None:
    """Median bandwidth of a cell, GB/s."""
    return number(found, "gbps.median") or number(found, "gbps")


def slowdowns(bench: dict[str, Any]) -> list[dict[str, Any]]:
    """The benchmark's own comparisons: time over the contiguous layout's, with its interval."""
    return [c for c in records(bench, "comparisons") if number(c, "slowdown.median")]


def _verdicts(bench: dict[str, Any], cells: list[dict[str, Any]]) -> list[Verdict]:
    unsettled = sum(c.get("settled") is False for c in cells)
    worst = _worst(bench)
    word = f"{len(cells)} CELLS" if worst is None else f"{_times(worst)} SLOWER"
    what = "measured" if worst is None else f"{_label(worst)} against contiguous"
    if unsettled:
        detail = f"{what}; {unsettled} of {len(cells)} cells did not settle"
        return [Verdict("Layout benchmark", word, Level.CAUTION, detail)]
    return [Verdict("Layout benchmark", word, Level.GOOD, what)]


def _times(comparison: dict[str, Any]) -> str:
    return f"{interval(dig(comparison, 'slowdown')).text}x"


def _worst(bench: dict[str, Any]) -> dict[str, Any] | None:
    return max(slowdowns(bench), key=lambda c: number(c, "slowdown.median") or 0, default=None)


def _label(found: dict[str, Any]) -> str:
    context = number(found, "context_tokens")
    layout = text(found, "layout") or text(found, "pattern") or "cell"
    return f"{layout}, {_tokens(context)}" if context else layout


def _tokens(context: float) -> str:
    return f"{context / 1024:.0f}K tokens" if context >= 1024 else f"{context:.0f} tokens"


def _keys(bench: dict[str, Any], cells: list[dict[str, Any]]) -> list[KeyNumber]:
    found = []
    for place, c in enumerate(records(bench, "cells")):
        if c in cells:
            key = f"bench.cells.{place}.gbps"
            bounds = (number(c, "gbps.low"), number(c, "gbps.high"))
            shown = cell(gbps(c), f"{key}.median" if number(c, "gbps.median") else key)
            label = f"Read bandwidth: {_label(c)}"
            found.append(KeyNumber(label, shown, "GB/s", Better.HIGHER, *bounds))
    for place, c in enumerate(records(bench, "comparisons")):
        median = number(c, "slowdown.median")
        if median is not None:
            bounds = (number(c, "slowdown.low"), number(c, "slowdown.high"))
            shown = cell(median, f"bench.comparisons.{place}.slowdown.median")
            label, worst = f"Slower than contiguous: {_label(c)}", c is _worst(bench)
            found.append(KeyNumber(label, shown, "x", Better.LOWER, *bounds, headline=5 * worst))
    return found


def _table(cells: list[dict[str, Any]]) -> Table:
    varying = [
        key for key in _DIMENSIONS if key == "layout" or len({str(c.get(key)) for c in cells}) > 1
    ]
    fixed = [
        f"{label} {cell(cells[0][key]).text}"
        for key, label in _DIMENSIONS.items()
        if key not in varying and cells[0].get(key) not in (None, "")
    ]
    rows = tuple(
        (
            *(cell(c.get(key)) for key in varying),
            interval(dig(c, "gbps"), ""),
            cell(dig(c, "gbps.n")),
            cell(dig(c, "commands")),
            size(dig(c, "request_bytes") or dig(c, "mean_request_bytes")),
            cell(dig(c, "amplification")),
            cell("no" if c.get("settled") is False else "yes"),
        )
        for c in cells
    )
    columns = (
        *(Column(_DIMENSIONS[k], numeric=k in _COUNTS) for k in varying),
        Column("median (95 % interval)", "GB/s"),
        Column("n"),
        Column("commands"),
        Column("mean request"),
        Column("read amplification"),
        Column("settled", numeric=False),
    )  # fmt: skip
    note = f"The same in all cells: {', '.join(fixed)}." if fixed else ""
    return Table("Cells", columns, rows, note)


def _comparisons(bench: dict[str, Any]) -> list[Table]:
    found = slowdowns(bench)
    varying = [k for k in _DIMENSIONS if k == "layout" or len({str(c.get(k)) for c in found}) > 1]
    rows = tuple(
        (
            *(cell(c.get(key)) for key in varying),
            interval(dig(c, "slowdown")),
            size(dig(c, "contiguous_request_bytes")),
            size(dig(c, "request_bytes")),
        )
        for c in found
    )
    columns = (
        *(Column(_DIMENSIONS[k], numeric=k in _COUNTS) for k in varying),
        Column("times slower (95 % interval)"),
        Column("mean request, contiguous"),
        Column("mean request, this layout"),
    )
    note = "Time to read the same session back, over the session-contiguous layout's, in pairs."
    return [Table("Against the contiguous layout", columns, rows, note)] if rows else []


def _figures(cells: list[dict[str, Any]], device: str) -> list[Figure]:
    contexts = {number(c, "context_tokens") for c in cells if text(c, "layout")} - {None}
    if len(contexts) > 1:
        return [_by_context([c for c in cells if text(c, "layout")], device)]
    return [_dots(cells, device)]


def _errors(found: dict[str, Any]) -> tuple[float, float]:
    median = gbps(found) or 0.0
    low, high = number(found, "gbps.low"), number(found, "gbps.high")
    return (
        median - low if low is not None else 0.0,
        high - median if high is not None else 0.0,
    )


def _by_context(cells: list[dict[str, Any]], device: str) -> Figure:
    def draw(axes: Axes) -> None:
        for place, layout in enumerate(dict.fromkeys(str(c["layout"]) for c in cells)):
            mine = sorted(
                (c for c in cells if c["layout"] == layout and number(c, "context_tokens")),
                key=lambda c: c["context_tokens"],
            )
            axes.errorbar(
                [c["context_tokens"] for c in mine], [gbps(c) or 0.0 for c in mine],
                list(zip(*(_errors(c) for c in mine), strict=True)),
                linestyle=LINES[place % 4], marker=MARKERS[place % 7], color=SERIES[place % 7],
                capsize=3, label=layout,
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        ticks = sorted({c["context_tokens"] for c in cells if number(c, "context_tokens")})
        axes.set_xticks(ticks, [_tokens(t).removesuffix(" tokens") for t in ticks])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("context (tokens)")
        axes.set_ylabel("read bandwidth (GB/s)")
        legend_above(axes, 2)

    title = "Read bandwidth by layout and context"
    note = "Median with its 95 % interval; wanted bytes only."
    return Figure("layouts-bandwidth", title, "tokens; GB/s", device, draw, note)


def _dots(cells: list[dict[str, Any]], device: str) -> Figure:
    def draw(axes: Axes) -> None:
        places = range(len(cells))[::-1]
        for place, c in zip(places, cells, strict=True):
            low, high = _errors(c)
            ordered = text(c, "layout") in _CONTIGUOUS
            axes.errorbar(
                [gbps(c) or 0.0], [place], xerr=[[low], [high]], capsize=4,
                marker=MARKERS[0] if ordered else MARKERS[1],
                color=SERIES[0] if ordered else SERIES[1],
            )  # fmt: skip
        axes.set_yticks(places, [_row_label(c, cells) for c in cells])
        axes.set_ylim(-0.6, len(cells) - 0.4)
        axes.set_xlim(left=0)
        axes.set_xlabel("read bandwidth (GB/s)")

    height = min(7.0, 1.3 + 0.32 * len(cells))
    note = "Median with its 95 % interval; wanted bytes only."
    title = "Read bandwidth by layout"
    return Figure("layouts-bandwidth", title, "GB/s", device, draw, note, height)


def _row_label(found: dict[str, Any], cells: list[dict[str, Any]]) -> str:
    parts = [text(found, "layout") or text(found, "pattern") or "cell"]
    for key in ("access", "direction", "queue_depth", "background_writes", "engine"):
        if len({str(c.get(key)) for c in cells}) > 1 and found.get(key) is not None:
            parts.append(f"{'depth ' if key == 'queue_depth' else ''}{found[key]}")
    return ", ".join(str(part) for part in parts)


def _load(bench: dict[str, Any]) -> list[Table]:
    rows = tuple(
        (
            cell(dig(point, "layout")),
            cell(dig(point, "context_tokens")),
            cell(dig(point, "rate_per_s")),
            cell(dig(point, "requests")),
            percent(dig(point, "delivered_share")),
            cell(dig(point, "late")),
            cell(dig(point, "cancelled")),
            duration(dig(point, "prefetch_s.p50")),
            duration(dig(point, "prefetch_s.p99")),
            cell(dig(point, "read_gbps")),
        )
        for point in records(bench, "load")
    )
    columns = (
        Column("layout", numeric=False),
        Column("context", "tokens"),
        Column("requests", "1/s"),
        Column("requests"),
        Column("delivered in time"),
        Column("late"),
        Column("cancelled"),
        Column("prefetch p50"),
        Column("prefetch p99"),
        Column("read", "GB/s"),
    )
    return [Table("Under rising load", columns, rows)] if rows else []


def _notes(bench: dict[str, Any]) -> list[str]:
    notes = [n for part in ("notes", "caveats", "warnings") for n in strings(bench, part)]
    shortened, stand_in = text(bench, "shortened"), text(bench, "stand_in")
    notes += [f"shorter than asked: {shortened}"] if shortened else []
    notes += [stand_in] if stand_in else []
    for skipped in records(bench, "skipped"):
        reason = text(skipped, "reason") or "no reason given"
        needed = size(dig(skipped, "needed_bytes"))
        more = f" (needs {needed.text})" if needed.exact is not None else ""
        notes.append(f"not measured: {text(skipped, 'id') or 'a cell'}: {reason}{more}")
    missing = dig(bench, "not_measured")
    if isinstance(missing, dict):
        notes += [f"not measured: {what}: {why}" for what, why in missing.items()]
    return notes
