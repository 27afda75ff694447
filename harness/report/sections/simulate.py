"""A simulated cache: what its policies miss and write, and what drive and user get of it."""

from __future__ import annotations

from typing import Any

from harness.report import simulate_plots
from harness.report.model import Better, Cell, Column, KeyNumber, Section, Table
from harness.report.run import Run
from harness.report.values import (
    cell,
    days,
    decimal_bytes,
    dig,
    duration,
    number,
    percent,
    records,
    strings,
    text,
)

NAME, TITLE = "simulate", "Cache policies"


def section(run: Run) -> Section:
    """The section of ``simulate.json``: one answer, or several compared."""
    data = run.get("simulate")
    if data is None:
        return Section(NAME, TITLE, absent=run.why_absent("simulate"))
    answers = records(data, "answers") or [data]
    tables = [_policies(answers)]
    rows = [row for answer in answers for row in records(answer, "rows")]
    if rows:
        tables.append(_drives(rows))
    return Section(
        NAME,
        TITLE,
        "Which policy, in which layout, on which drive?",
        keys=_keys(answers[0]) if len(answers) == 1 else (),
        tables=tuple(tables),
        figures=tuple(simulate_plots.figures(answers, rows)),
        notes=tuple(_notes(answers)),
    )


def _policies(answers: list[dict[str, Any]]) -> Table:
    seen: dict[str, tuple[Cell, ...]] = {}
    for one in answers:
        hits = [number(one, f"hits.{tier}.full") or 0 for tier in ("dram", "ssd")]
        seen.setdefault(
            str(dig(one, "point")),
            (
                Cell(_label(one)),
                cell(dig(one, "miss"), digits=4),
                percent(_share(dig(one, "stranded"), dig(one, "references"))),
                percent(_share(hits[1], sum(hits))),
                decimal_bytes(dig(one, "written_bytes.full")),
                decimal_bytes(dig(one, "written_bytes.state")),
                duration(dig(one, "load_s.mean")),
                duration(dig(one, "load_s.p99")),
                cell(dig(one, "cost.total")),
            ),
        )
    columns = (
        Column("policy", numeric=False),
        Column("miss ratio"),
        Column("behind no state"),
        Column("chunk hits from SSD"),
        Column("chunks written"),
        Column("states written"),
        Column("load, mean"),
        Column("load, p99"),
        Column("1000 requests", "USD"),
    )
    note = "Miss ratio: full-attention chunks of all prompts that were recomputed."
    return Table("Policies", columns, tuple(seen.values()), note)


def _drives(rows: list[dict[str, Any]]) -> Table:
    shown = tuple(
        (
            Cell(text(row, "policy") or "–"),
            Cell(text(row, "layout") or "–"),
            Cell(text(row, "drive") or "–"),
            cell(dig(row, "miss"), digits=4),
            decimal_bytes(dig(row, "device_bytes")),
            cell(dig(row, "waf")),
            Cell(text(row, "waf_kind") or "–"),
            cell(dig(row, "required_dwpd")),
            days(dig(row, "waf1_days")),
            days(dig(row, "paper_days")),
            duration(dig(row, "load_mean_s")),
            cell(dig(row, "cost_usd")),
        )
        for row in rows
    )
    columns = (
        Column("policy", numeric=False),
        Column("layout", numeric=False),
        Column("drive", numeric=False),
        Column("miss ratio"),
        Column("written to the drive"),
        Column("WAF"),
        Column("WAF is", numeric=False),
        Column("needed", "DWPD"),
        Column("life at WAF 1"),
        Column("life"),
        Column("load, mean"),
        Column("1000 requests", "USD"),
    )
    note = (
        "WAF: steady, or that of the run once where it did not become steady; life: the drive's"
        " rated writes over the writes times WAF, null without a steady WAF."
    )
    return Table("Policy x layout x drive", columns, shown, note)


def _keys(one: dict[str, Any]) -> tuple[KeyNumber, ...]:
    lower = Better.LOWER
    found = (
        ("miss ratio", cell(dig(one, "miss"), "simulate.miss", 4), 1),
        ("WAF", cell(dig(one, "waf"), "simulate.waf"), 2),
        ("mean load", duration(dig(one, "load_s.mean"), "simulate.load_s.mean"), 3),
    )
    return tuple(
        KeyNumber(label, shown, better=lower, headline=rank)
        for label, shown, rank in found
        if shown.exact is not None
    )


def _notes(answers: list[dict[str, Any]]) -> list[str]:
    first = answers[0]
    found = dig(first, "constants")
    sources = found.items() if isinstance(found, dict) else ()
    said = ", ".join(f"{name}: {source}" for name, source in sources)
    lanes = number(first, "point.lanes")
    by_structure: dict[str, list[str]] = {}
    for one in answers:
        policies = by_structure.setdefault(text(one, "point.structure") or "unknown", [])
        policies.append(text(one, "label") or "–")
    structures = [
        f"{name} ({', '.join(dict.fromkeys(who))})" if len(by_structure) > 1 else name
        for name, who in by_structure.items()
    ]
    setting = (
        f"Trace {text(first, 'trace')}, lanes {lanes or 'as recorded'}, "
        f"model {text(first, 'point.model')}, "
        f"DRAM {decimal_bytes(dig(first, 'point.dram_bytes')).text}, "
        f"SSD {decimal_bytes(dig(first, 'point.ssd_bytes')).text}, "
        f"checkpoints {text(first, 'point.checkpoint')}, structure {', '.join(structures)}."
    )
    absent = [reason for one in answers for reason in strings(one, "absent")]
    return [setting, *([f"Constants: {said}."] if said else []), *dict.fromkeys(absent)]


def _label(one: dict[str, Any]) -> str:
    found = dig(one, "point.parameters")
    settings = found.items() if isinstance(found, dict) else ()
    named = ", ".join(f"{name} {value}" for name, value in settings)
    label = text(one, "label") or "–"
    return f"{label} ({named})" if named else label


def _share(part: Any, whole: Any) -> float | None:
    over, under = number(part), number(whole)
    return over / under if over is not None and under else None
