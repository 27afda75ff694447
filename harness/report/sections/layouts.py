"""Layouts: how fast a session's KV comes back, in order and scattered."""

from __future__ import annotations

from typing import Any

from harness.core.grouping import by_reason
from harness.report import fragment_plots, layout_plots, load_plots, request_plots
from harness.report.layout_cells import (
    COUNTS,
    DIMENSIONS,
    Cells,
    fixed,
    gbps,
    label,
    measured,
    slowdowns,
    varying,
    worst,
)
from harness.report.model import Better, Column, KeyNumber, Level, Section, Table, Verdict
from harness.report.run import Run, describe_device
from harness.report.values import (
    cell,
    dig,
    duration,
    interval,
    number,
    percent,
    plain,
    records,
    size,
    strings,
    text,
)


def section(run: Run) -> Section:
    """The section of the layout benchmark of ``run``."""
    name, title = "layouts", "Layouts"
    source = "gds" if run.get("bench") is None and run.get("gds") is not None else "bench"
    bench = run.get(source)
    cells = measured(bench)
    if bench is None or not (cells or records(bench, "load")):
        reason = (
            run.why_absent(source) if bench is None else "no cell of the benchmark was measured"
        )
        return Section(name, title, absent=reason)
    device = describe_device(dig(bench, "device")) or run.device
    placed = [c for c in cells if text(c, "layout")]
    plain_cells = [c for c in cells if not text(c, "layout")]
    return Section(
        name,
        title,
        "What does it cost to read a session back when its blocks are scattered?",
        verdicts=tuple(_verdicts(bench, cells)),
        keys=tuple(_keys(bench, cells, source)),
        tables=(
            *_comparisons(bench),
            *_cells("Sessions read back", placed),
            *_cells("Plain reference cells", plain_cells),
            *_load(bench),
        ),
        figures=(
            *layout_plots.figures(cells, device),
            *request_plots.figures(cells, device),
            *fragment_plots.figures(slowdowns(bench), device),
            *load_plots.figures(bench, device),
        ),
        notes=tuple(_notes(bench)),
    )


def _verdicts(bench: dict[str, Any], cells: Cells) -> list[Verdict]:
    unsettled = sum(c.get("settled") is False for c in cells)
    found = worst(bench)
    if not cells:
        points = len(records(bench, "load"))
        return [Verdict("Load sweep", f"{points} POINTS", Level.GOOD, "measured")]
    if found is None:
        word, parts = f"{len(cells)} CELLS", ["measured"]
    else:
        word = f"{plain(number(found, 'slowdown.median') or 0)}x SLOWER"
        bounds = interval(dig(found, "slowdown")).text
        parts = [f"{label(found, slowdowns(bench))} against contiguous, {bounds}"]
    if unsettled:
        parts.append(f"{unsettled} of {len(cells)} cells did not settle")
    level = Level.CAUTION if unsettled else Level.GOOD
    subject = "Benchmark" if found is None else "Scattered layout, at worst"
    return [Verdict(subject, word, level, "; ".join(parts))]


def _keys(bench: dict[str, Any], cells: Cells, source: str) -> list[KeyNumber]:
    found = []
    compared = slowdowns(bench)
    for place, c in enumerate(records(bench, "comparisons")):
        if c in compared:
            bounds = (number(c, "slowdown.low"), number(c, "slowdown.high"))
            shown = cell(dig(c, "slowdown.median"), f"{source}.comparisons.{place}.slowdown.median")
            name = f"Slower than contiguous: {label(c, compared)}"
            headline, tile = 5 * (c is worst(bench)), "Slower when scattered, at worst"
            found.append(
                KeyNumber(name, shown, "x", Better.LOWER, *bounds, headline=headline, tile=tile)
            )
    for place, c in enumerate(records(bench, "cells")):
        if c in cells:
            path = f"{source}.cells.{place}.gbps"
            shown = cell(gbps(c), f"{path}.median" if number(c, "gbps.median") else path)
            bounds = (number(c, "gbps.low"), number(c, "gbps.high"))
            name = f"Bandwidth: {label(c, cells)}"
            found.append(KeyNumber(name, shown, "GB/s", Better.HIGHER, *bounds))
    return found


def _dimension(key: str) -> Column:
    return Column(DIMENSIONS[key], "tokens" if key == "context_tokens" else "", key in COUNTS)


def _cells(title: str, cells: Cells) -> list[Table]:
    keys = ["layout" if any(text(c, "layout") for c in cells) else "pattern"]
    keys += [key for key in varying(cells) if key not in keys]
    rows = tuple(
        (
            *(cell(c.get(key)) for key in keys),
            interval(dig(c, "gbps")),
            cell("no" if c.get("settled") is False else "yes"),
            cell(dig(c, "gbps.n")),
            percent(dig(c, "of_best_sequential.median")),
            cell(dig(c, "commands")),
            size(dig(c, "request_bytes")),
            cell(dig(c, "amplification")),
            duration(dig(c, "latency_us.p99"), scale=1e-6),
            cell(dig(c, "cpu_seconds_per_gb")),
        )
        for c in cells
    )
    columns = (
        *(_dimension(key) for key in keys),
        Column("median (95 % interval)", "GB/s"),
        Column("settled", numeric=False),
        Column("n"),
        Column("of best sequential"),
        Column("commands"),
        Column("mean request"),
        Column("read / wanted"),
        Column("p99"),
        Column("CPU", "s/GB"),
    )
    same = fixed(cells)
    note = f"The same in all: {same}." if same else ""
    return [Table(title, columns, rows, note)] if rows else []


def _comparisons(bench: dict[str, Any]) -> list[Table]:
    found = slowdowns(bench)
    keys = ["layout", *varying(found, but=("layout",))]
    rows = tuple(
        (
            *(cell(c.get(key)) for key in keys),
            interval(dig(c, "slowdown")),
            size(dig(c, "contiguous_request_bytes")),
            size(dig(c, "request_bytes")),
        )
        for c in found
    )
    columns = (
        *(_dimension(key) for key in keys),
        Column("times slower (95 % interval)"),
        Column("mean request, contiguous"),
        Column("mean request, this layout"),
    )
    note = (
        "Time to read the same session back, over the session-contiguous layout's, in pairs. "
        "Published, Llama-3.1-70B to first token, both by GPUDirect: 1.0 at 16K tokens, 1.8 at 64K."
    )
    return [Table("Against the contiguous layout", columns, rows, note)] if rows else []


def _load(bench: dict[str, Any]) -> list[Table]:
    rows = tuple(
        (
            cell(dig(point, "layout")),
            cell(dig(point, "on_deadline")),
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
        Column("at the deadline", numeric=False),
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
    skipped = by_reason((text(c, "id") or "a cell", _why(c)) for c in records(bench, "skipped"))
    notes += [f"not measured: {what}: {reason}" for what, reason in skipped]
    missing = dig(bench, "not_measured")
    if isinstance(missing, dict):
        notes += [f"not measured: {what}: {why}" for what, why in missing.items()]
    notes += [rule for rule in (text(bench, "settle_rule"), text(bench, "precondition")) if rule]
    return notes


def _why(skipped: dict[str, Any]) -> str:
    reason, needed = text(skipped, "reason"), size(dig(skipped, "needed_bytes"))
    return (reason or "no reason given") + (
        f" (needs {needed.text})" if needed.exact is not None else ""
    )
