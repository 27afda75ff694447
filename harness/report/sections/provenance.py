"""Provenance: where every figure comes from, and what should be held against it."""

from __future__ import annotations

from typing import Any

from harness.report.model import Cell, Column, Level, Section, Table, Verdict
from harness.report.run import Run
from harness.report.values import ABSENT, cell, dig, duration, records, size, strings, text

_CAVEATS = ("caveats", "stand_ins", "late", "lost", "warnings", "notes")


def section(run: Run) -> Section:
    """The section of ``run.json`` and of everything that was skipped or stood in for."""
    tables = [_facts(run), *_config(run)]
    meta = run.trace_meta
    if meta is not None and meta.device is not None:
        tables.append(_pairs("Traced device", meta.device.model_dump(exclude_none=True)))
    return Section(
        "provenance",
        "Provenance and caveats",
        "Where do the figures come from, and what should be held against them?",
        verdicts=tuple(_verdict(run)),
        tables=tuple(tables),
        notes=tuple(caveats(run)),
    )


def _verdict(run: Run) -> list[Verdict]:
    failures = strings(run.record, "failures")
    return [Verdict("This run", "FAILED", Level.BAD, "; ".join(failures))] if failures else []


def caveats(run: Run) -> list[str]:
    """What was lost, late, skipped or stood in for, as the run's own record says it."""
    found = [note for part in _CAVEATS for note in strings(run.record, part)]
    for part in ("skipped", "not_done"):
        value = dig(run.record, part)
        if isinstance(value, dict):
            found += [f"skipped: {key}: {reason}" for key, reason in value.items()]
        found += [f"skipped: {item}" for item in strings(value)]
        found += [
            f"skipped: {text(item, 'step') or text(item, 'name')}: {text(item, 'reason')}"
            for item in records(value)
        ]
    found += strings(run.get("calibration"), "provenance.stand_ins")
    found += run.problems
    return list(dict.fromkeys(found))


def _facts(run: Run) -> Table:
    record, host = run.record, dig(run.record, "host") or {}
    line = dig(record, "command_line")
    wanted = [
        ("run", Cell(run.name)),
        ("command", Cell(" ".join(map(str, line))) if isinstance(line, list) else ABSENT),
        ("started (UTC)", cell(dig(record, "started"))),
        ("duration", duration(dig(record, "duration_s"))),
        ("exit code", cell(dig(record, "exit_code"))),
        ("host", cell(dig(host, "host"))),
        ("kernel", cell(dig(host, "kernel"))),
        ("CPU", cell(dig(host, "cpu"))),
        ("CPUs", cell(dig(host, "cpus"))),
        ("memory", size(dig(host, "memory_bytes"))),
        ("Python", cell(dig(host, "python"))),
        ("fio", cell(dig(record, "fio_version") or dig(host, "fio"))),
        ("harness", cell(dig(host, "harness_version"))),
        ("commit", cell(dig(host, "harness_commit"))),
        ("device", Cell(run.device)),
    ]
    rows = tuple((Cell(label), shown) for label, shown in wanted if shown is not ABSENT)
    return Table("This run", _PAIR, rows)


def _config(run: Run) -> list[Table]:
    config = dig(run.record, "config")
    if not isinstance(config, dict) or not config:
        return []
    given = {key: value for key, value in _flat(config).items() if value is not None}
    return [_pairs("Configuration, defaults included", given)]


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            found.update(_flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found


_PAIR = (Column("fact", numeric=False), Column("value", numeric=False))


def _pairs(title: str, data: dict[str, Any]) -> Table:
    rows = []
    for key, value in data.items():
        if key.endswith("_bytes"):
            shown = size(value)
        elif isinstance(value, list):
            shown = Cell(", ".join(map(str, value)) or "none")
        else:
            shown = cell(value)
        rows.append((Cell(key.replace("_", " ")), shown))
    return Table(title, _PAIR, tuple(rows))
