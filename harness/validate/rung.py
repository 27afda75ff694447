"""One comparison of the ladder and its verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What a comparison found. NOT_RUN is never a pass: its note says what was missing."""

    AGREES = "AGREES"
    DIFFERS = "DIFFERS"
    NOT_RUN = "NOT RUN"


@dataclass(frozen=True)
class Rung:
    """One row of the ladder's table.

    ``expected`` and ``measured`` are plain data (numbers, text, mappings of those) in the same
    shape, so that a reader sees what is compared with what.
    """

    rung: int
    compared: str
    expected: Any
    measured: Any
    verdict: Verdict
    note: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "rung": self.rung,
            "compared": self.compared,
            "expected": self.expected,
            "measured": self.measured,
            "verdict": self.verdict.value,
            "note": self.note,
        }


def judged(rung: int, compared: str, expected: Any, measured: Any, note: str | None = None) -> Rung:
    """A row whose verdict is plain equality."""
    verdict = Verdict.AGREES if expected == measured else Verdict.DIFFERS
    return Rung(rung, compared, expected, measured, verdict, note)


def not_run(rung: int, compared: str, why: str) -> Rung:
    """A row that this machine cannot have, with the reason."""
    return Rung(rung, compared, None, None, Verdict.NOT_RUN, why)
