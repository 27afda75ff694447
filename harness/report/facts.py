"""Verdicts and key numbers as plain data, for ``--json``."""

from __future__ import annotations

from typing import Any

from harness.report.compare import change
from harness.report.model import KeyNumber, Section


def facts(sections: list[Section]) -> dict[str, Any]:
    """``verdicts`` and ``numbers`` of a run; ``key`` says where a number stands in its files."""
    return {
        "verdicts": [
            {"subject": v.subject, "verdict": v.word, "level": v.level.value, "detail": v.detail}
            for s in sections
            for v in s.verdicts
        ],
        "numbers": [
            {"label": k.label, "key": k.cell.key, "value": k.cell.exact, "unit": k.unit}
            for s in sections
            for k in s.keys
        ],
        "caveats": [note for s in sections for note in s.notes],
    }


def changes(sections_a: list[Section], sections_b: list[Section]) -> dict[str, Any]:
    """``numbers``: each key number of either run, with ratio and judgement where both have it."""
    a, b = ({k.label: k for s in side for k in s.keys} for side in (sections_a, sections_b))
    return {"numbers": [_change(label, a.get(label), b.get(label)) for label in {**a, **b}]}


def _change(label: str, a: KeyNumber | None, b: KeyNumber | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "label": label,
        "a": a.cell.exact if a else None,
        "b": b.cell.exact if b else None,
        "ratio": None,
        "judgement": "only in one run",
    }
    if a and b:
        ratio, judgement = change(a, b)
        found.update(ratio=ratio.exact, judgement=judgement.text)
    return found
