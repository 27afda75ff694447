"""The block trace: what reached the device, and whether all of it was seen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.core.ops import SECTOR_BYTES, Op
from harness.report import plots, trace_plots
from harness.report.bins import TraceBins
from harness.report.model import (
    Cell,
    Column,
    Figure,
    KeyNumber,
    Level,
    Section,
    Table,
    Verdict,
)
from harness.report.run import Run
from harness.report.values import cell, dig, nanoseconds, number, percent, size, strings, text
from harness.trace.schema import TraceMeta

_LEVELS = {"LOSSLESS": Level.GOOD, "LOSSY": Level.BAD, "UNKNOWN": Level.CAUTION}
_QUANTILES = np.array([0.5, 0.9, 0.99, 0.999, 1.0])
_TOP_SIZES = 8


def section(run: Run) -> Section:
    """The section of ``run``'s trace and of the capture that made it."""
    name, title = "trace", "Block trace"
    capture, bins, meta = run.get("capture"), run.bins, run.trace_meta
    if capture is None and bins is None:
        return Section(name, title, absent=run.why_absent("capture"))
    tables: list[Table] = []
    figures: tuple[Figure, ...] = ()
    keys = list(_capture_keys(capture))
    if bins is not None and bins.rows:
        tables = [_operations(bins), _sizes(bins), *_latency(bins), *_classes(bins)]
        figures = trace_plots.figures(bins, run.device)
        keys += _trace_keys(bins)
    tables += [*_witness(capture), *_seen(capture)]
    return Section(
        name,
        title,
        "What did the store send to the device, and was all of it seen?",
        verdicts=tuple(_verdicts(capture, meta)),
        keys=tuple(keys),
        tables=tuple(tables),
        figures=figures,
        notes=tuple(_notes(capture, bins, meta)),
    )


def _sectors(count: float) -> Cell:
    return size(count * SECTOR_BYTES)


def _verdicts(capture: dict | None, meta: TraceMeta | None) -> list[Verdict]:
    word = text(capture, "verdict") or (meta.verdict if meta else None)
    if word is None:
        return []
    lost = number(capture, "lost")
    lost = meta.events_lost if lost is None and meta else lost
    requests = number(capture, "requests")
    parts = [] if requests is None else [f"{cell(requests).text} requests"]
    parts += [] if lost is None else [f"{cell(lost).text} issues lost"]
    completions = number(capture, "completions_lost")
    parts += [] if completions is None else [f"{cell(completions).text} completions lost"]
    return [Verdict("Capture", word, _LEVELS.get(word, Level.UNKNOWN), ", ".join(parts))]


def _capture_keys(capture: dict | None) -> list[KeyNumber]:
    names = {
        "requests": "Requests captured",
        "events": "Events seen",
        "lost": "Issues lost",
        "completions_lost": "Completions lost",
    }
    return [
        KeyNumber(
            label, cell(dig(capture, key), f"capture.{key}"), headline=9 * (key == "requests")
        )
        for key, label in names.items()
        if number(capture, key) is not None
    ]


def _trace_keys(bins: TraceBins) -> list[KeyNumber]:
    return [
        KeyNumber(
            f"Bytes {plots.OP_NAMES[op]}" if op != Op.READ else "Bytes read",
            size(float(bins.size_bytes[op]), f"trace.bytes.{op.name.lower()}"),
        )
        for op in (Op.READ, Op.WRITE, Op.DISCARD)
        if bins.requests[op]
    ]


def _operations(bins: TraceBins) -> Table:
    total = bins.size_bytes.sum() or 1.0
    rows = []
    for op in (o for o in plots.OP_NAMES if bins.requests[o]):
        requests, moved = int(bins.requests[op]), float(bins.size_bytes[op])
        rows.append(
            (
                Cell(plots.OP_NAMES[op]),
                cell(requests, f"trace.requests.{op.name.lower()}"),
                size(moved),
                percent(moved / total),
                size(moved / requests),
            )
        )
    columns = (
        Column("operation", numeric=False),
        Column("requests"),
        Column("bytes"),
        Column("share of bytes"),
        Column("mean size"),
    )
    return Table("Operations", columns, tuple(rows))


def _sizes(bins: TraceBins) -> Table:
    found = [
        (count, length, op)
        for op in (Op.READ, Op.WRITE, Op.DISCARD)
        for length, count in bins.sizes(op).items()
    ]
    found.sort(key=lambda item: (-item[0] * item[1], item[1]))
    total = sum(count * length for count, length, _ in found) or 1
    rows = tuple(
        (
            Cell(plots.OP_NAMES[op]),
            size(length),
            cell(count),
            percent(count * length / total),
        )
        for count, length, op in found[:_TOP_SIZES]
    )
    hidden = len(found) - len(rows)
    note = f"{hidden} more sizes are not listed." if hidden > 0 else ""
    columns = (
        Column("operation", numeric=False),
        Column("request size"),
        Column("requests"),
        Column("share of bytes"),
    )
    return Table("Request sizes that carry most bytes", columns, rows, note)


def _latency(bins: TraceBins) -> list[Table]:
    rows = []
    for op in (o for o in plots.OP_NAMES if bins.latency_counts[o].any()):
        values = bins.latency_ns(op, _QUANTILES)
        rows.append((Cell(plots.OP_NAMES[op]), *(nanoseconds(float(v)) for v in values)))
    if not rows:
        return []
    columns = (
        Column("operation", numeric=False),
        *(Column(label) for label in ("p50", "p90", "p99", "p99.9", "max")),
    )
    note = "Issue to completion at the block layer, from bins 2.2 % wide."
    return [Table("Latency", columns, tuple(rows), note)]


def _classes(bins: TraceBins) -> list[Table]:
    if not bins.classes:
        return []
    total = sum(moved for _, moved in bins.classes.values()) or 1.0
    ordered = sorted(bins.classes.items(), key=lambda item: -item[1][1])
    rows = tuple(
        (Cell(name), cell(count), size(moved), percent(moved / total))
        for name, (count, moved) in ordered
    )
    columns = (
        Column("object class", numeric=False),
        Column("requests"),
        Column("bytes"),
        Column("share of bytes"),
    )
    return [Table("Which objects the requests belong to", columns, rows)]


_WITNESSED: dict[str, tuple[str, Callable[[float], Cell]]] = {
    "reads": ("read requests", cell),
    "read_sectors": ("bytes read", _sectors),
    "write_sectors": ("bytes written", _sectors),
    "discards": ("discards", cell),
    "discard_sectors": ("bytes discarded", _sectors),
    "flushes": ("flushes", cell),
}
_SEEN = {
    "splits": "requests split by the kernel",
    "bio_merges": "bios merged",
    "request_merges": "requests merged",
    "requeues": "requeues",
}


def _witness(capture: dict | None) -> list[Table]:
    """The device's own counters beside what the trace holds."""
    rows = []
    for device, found in _objects(capture, "witness"):
        for key, (label, form) in _WITNESSED.items():
            counts = dig(found, f"counts.{key}")
            kernel, low, high = (number(counts, p) for p in ("kernel", "trace_low", "trace_high"))
            if kernel is None or low is None or high is None or not (kernel or high):
                continue
            traced = form(low) if low == high else Cell(f"{form(low).text}–{form(high).text}", low)
            agree = cell(low <= kernel <= high)
            rows.append((Cell(device), Cell(label), form(kernel), traced, agree))
    columns = (
        Column("device", numeric=False),
        Column("counted", numeric=False),
        Column("by the kernel"),
        Column("in the trace"),
        Column("equal", numeric=False),
    )
    note = "The kernel's counters (/sys/block/*/stat) over the same time are the witness."
    return [Table("Was everything seen?", columns, tuple(rows), note)] if rows else []


def _seen(capture: dict | None) -> list[Table]:
    rows = tuple(
        (Cell(device), *(cell(dig(found, key)) for key in _SEEN))
        for device, found in _objects(capture, "devices")
        if any(number(found, key) is not None for key in _SEEN)
    )
    columns = (Column("device", numeric=False), *(Column(label) for label in _SEEN.values()))
    return [Table("What the block layer did to requests", columns, rows)] if rows else []


def _objects(data: dict | None, path: str) -> list[tuple[str, dict]]:
    found = dig(data, path)
    items = found.items() if isinstance(found, dict) else ()
    return [(str(name), value) for name, value in items if isinstance(value, dict)]


def _notes(capture: dict | None, bins: TraceBins | None, meta: TraceMeta | None) -> list[str]:
    notes = strings(capture, "notes") + strings(capture, "warnings")
    if meta:
        notes += [note for note in meta.notes if note not in notes]
        notes += [f"transformed: {step}" for step in meta.history]
    if bins is not None and bins.completions_missing:
        count = cell(bins.completions_missing).text
        notes.append(f"{count} requests have no completion; their latency is not known.")
    if bins is not None and bins.errors:
        notes.append(f"{cell(bins.errors).text} requests ended in an error.")
    return notes
