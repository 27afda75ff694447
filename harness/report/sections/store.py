"""The store that made the I/O: what it was asked, what it wrote, whether it read it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.report.model import Better, Cell, Column, KeyNumber, Level, Section, Table, Verdict
from harness.report.run import Run, describe_device
from harness.report.values import (
    ABSENT,
    cell,
    dig,
    duration,
    number,
    percent,
    size,
    strings,
    text,
)

_FACTS: dict[str, tuple[str, Callable[[Any, str], Cell]]] = {
    "store": ("store", cell),
    "requests_from": ("requests from", cell),
    "seed": ("seed", cell),
    "requests": ("requests served", cell),
    "new_tokens": ("new tokens", cell),
    "duration_s": ("duration", duration),
    "ops": ("I/O calls", cell),
    "bytes_written": ("bytes written", size),
    "bytes_read": ("bytes read", size),
    "bytes_verified": ("bytes verified", size),
    "verify_errors": ("sectors with wrong data", cell),
    "bytes_written_per_new_token": ("bytes written a new token", size),
    "max_depth": ("calls in flight, at most", cell),
    "stopped_by": ("ended by", cell),
}
_KEYS = {
    "bytes_written": Better.LOWER,
    "bytes_read": Better.NEITHER,
    "verify_errors": Better.LOWER,
    "bytes_written_per_new_token": Better.LOWER,
}


def section(run: Run) -> Section:
    """The section of ``emit.json``."""
    name, title = "store", "Store"
    emit = run.get("emit")
    if emit is None:
        return Section(name, title, absent=run.why_absent("emit"))
    return Section(
        name,
        title,
        "Which store made the I/O, and was every payload it read back the one it wrote?",
        verdicts=tuple(_verdict(emit)),
        keys=tuple(_keys(emit)),
        tables=(_facts(emit), *_own_report(emit), *_classes(emit)),
        notes=tuple(n for part in ("notes", "caveats", "warnings") for n in strings(emit, part)),
    )


def _verdict(emit: dict[str, Any]) -> list[Verdict]:
    wrong = number(emit, "verify_errors")
    if wrong is None:
        return []
    read = size(dig(emit, "bytes_verified") or dig(emit, "bytes_read"))
    if wrong:
        detail = f"{cell(wrong).text} sectors are not what was written"
        return [Verdict("Payloads read back", "WRONG", Level.BAD, detail)]
    return [Verdict("Payloads read back", "VERIFIED", Level.GOOD, f"{read.text}, no wrong sector")]


def _keys(emit: dict[str, Any]) -> list[KeyNumber]:
    return [
        KeyNumber(f"Store: {_FACTS[key][0]}", _FACTS[key][1](emit[key], f"emit.{key}"), better=way)
        for key, way in _KEYS.items()
        if number(emit, key) is not None
    ]


def _facts(emit: dict[str, Any]) -> Table:
    rows = [
        (Cell(label), form(dig(emit, key), f"emit.{key}"))
        for key, (label, form) in _FACTS.items()
        if dig(emit, key) is not None
    ]
    device = describe_device(dig(emit, "device"))
    if device:
        rows.append((Cell("device"), Cell(device)))
    columns = (Column("fact", numeric=False), Column("value"))
    return Table("What the store did", columns, tuple(rows))


def _classes(emit: dict[str, Any]) -> list[Table]:
    rows = []
    for direction in ("writes", "reads", "discards"):
        total = number(emit, f"store_report.{direction}.bytes")
        found = dig(emit, f"store_report.{direction}.by_class")
        for name, sums in found.items() if isinstance(found, dict) else ():
            moved = number(sums, "bytes")
            share = moved / total if moved is not None and total else None
            rows.append(
                (Cell(direction), Cell(name), cell(dig(sums, "ops")), size(moved), percent(share))
            )
    columns = (
        Column("direction", numeric=False),
        Column("object class", numeric=False),
        Column("calls"),
        Column("bytes"),
        Column("share of the direction"),
    )
    return [Table("Calls by object class", columns, tuple(rows))] if rows else []


def _own_report(emit: dict[str, Any]) -> list[Table]:
    """Scalars that the store says of itself: hits, evictions, occupancy."""
    report = dig(emit, "store_report")
    rows = [
        (Cell(key.removesuffix("_bytes").replace("_", " ")), shown)
        for key, value in (report.items() if isinstance(report, dict) else ())
        if (shown := _shown(key, value)) is not ABSENT and text(emit, key) != value
    ]
    columns = (Column("fact", numeric=False), Column("value"))
    return [Table("What the store says of itself", columns, tuple(rows))] if rows else []


def _shown(key: str, value: Any) -> Cell:
    if key.endswith("_bytes") or key.startswith("bytes_"):
        return size(value)
    if key.endswith(("_share", "_rate", "_ratio")):
        return percent(value)
    return cell(value)
