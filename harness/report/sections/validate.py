"""The ladder of trust: which figures agree with what they are checked against."""

from __future__ import annotations

from typing import Any

from harness.report.model import Better, Cell, Column, KeyNumber, Level, Section, Table, Verdict
from harness.report.run import Run
from harness.report.values import cell, number, plain, records, text

_LEVELS = {"AGREES": Level.GOOD, "DIFFERS": Level.BAD, "NOT RUN": Level.UNKNOWN}
_MEASURED_RUNGS = (2, 4)
"""These measure an error and a claim; that they differ is a result, not a failure."""


def section(run: Run) -> Section:
    """The section of ``validate.json``."""
    name, title = "validate", "Ladder of trust"
    rungs = records(run.get("validate"), "rungs")
    if not rungs:
        return Section(name, title, absent=run.why_absent("validate"))
    return Section(
        name,
        title,
        "How far can the figures be trusted?",
        verdicts=(_verdict(rungs),),
        keys=tuple(_keys(rungs)),
        tables=(_table(rungs),),
        notes=tuple(
            f"rung {cell(r.get('rung')).text}, {r.get('compared')}: {note}"
            for r in rungs
            if (note := text(r, "note"))
        ),
    )


def _verdict(rungs: list[dict[str, Any]]) -> Verdict:
    words = [str(r.get("verdict")) for r in rungs]
    counts = ", ".join(f"{words.count(word)} {word}" for word in _LEVELS if word in words)
    failed = any(
        r.get("verdict") == "DIFFERS" and r.get("rung") not in _MEASURED_RUNGS for r in rungs
    )
    if failed:
        return Verdict("Ladder of trust", "DIFFERS", Level.BAD, counts)
    if "DIFFERS" in words:
        return Verdict("Ladder of trust", "DIFFERS", Level.CAUTION, counts)
    word = "AGREES" if "AGREES" in words else "NOT RUN"
    return Verdict("Ladder of trust", word, _LEVELS[word], counts)


def _keys(rungs: list[dict[str, Any]]) -> list[KeyNumber]:
    agree = sum(r.get("verdict") == "AGREES" for r in rungs)
    found = [KeyNumber("Comparisons that agree", Cell(str(agree), agree), better=Better.HIGHER)]
    for place, r in enumerate(rungs):
        measured = number(r, "measured")
        if measured is not None:
            key = f"validate.rungs.{place}.measured"
            found.append(
                KeyNumber(f"Rung {r.get('rung')}: {r.get('compared')}", cell(measured, key))
            )
    return found


def _table(rungs: list[dict[str, Any]]) -> Table:
    columns = (
        Column("rung"),
        Column("compared", numeric=False),
        Column("expected", numeric=False),
        Column("measured", numeric=False),
        Column("verdict", numeric=False),
    )
    rows = tuple(
        (
            cell(r.get("rung")),
            cell(r.get("compared")),
            Cell(_shown(r.get("expected"))),
            Cell(_shown(r.get("measured"))),
            cell(r.get("verdict")),
        )
        for r in rungs
    )
    return Table("Comparisons", columns, rows)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_shown(item)}" for key, item in value.items())
    found = number(value)
    return plain(found, 4) if found is not None else str(value)
