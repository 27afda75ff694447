"""What a report is made of, before anybody decides how it looks.

A section turns the JSON of one command into these; the HTML page, the console summary and the
comparison all print the same objects, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Level(Enum):
    """How a verdict should be taken. Shown as a word and a sign, never by colour alone."""

    GOOD = "good"
    CAUTION = "caution"
    BAD = "bad"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Verdict:
    """One judgement: ``subject`` is what was judged, ``word`` the verdict as the part spells it."""

    subject: str
    word: str
    level: Level
    detail: str = ""


@dataclass(frozen=True)
class Cell:
    """A value as people read it, with the exact number behind it.

    ``key`` is the dotted path of the number in its JSON file, such as ``wear.waf.steady``; ``link``
    is where the page of what the text names lies, relative to this one.
    """

    text: str
    exact: float | int | None = None
    key: str = ""
    link: str = ""


@dataclass(frozen=True)
class Column:
    """A table column; ``unit`` is printed in its heading, numbers are aligned right."""

    label: str
    unit: str = ""
    numeric: bool = True

    @property
    def heading(self) -> str:
        """Label and unit in one text."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True)
class Table:
    """Rows of cells, as many in each as there are columns."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A plot that is drawn only when a page needs it.

    ``draw`` fills the axes it is given. ``unit`` says what both axes measure, ``device`` what
    was measured; the page adds the run.
    """

    name: str
    title: str
    unit: str
    device: str
    draw: Callable[[Axes], None]
    note: str = ""
    height_in: float = 3.3


class Better(Enum):
    """Which direction of a key number is an improvement."""

    LOWER = -1
    NEITHER = 0
    HIGHER = 1


@dataclass(frozen=True)
class KeyNumber:
    """A number for the top of the page, for comparisons and for tests.

    ``low`` and ``high`` bound it where an interval was measured. ``headline`` above 0 puts it on
    top of the page, the smallest first, under the name
    ``tile`` (its label if that is empty).
    """

    label: str
    cell: Cell
    unit: str = ""
    better: Better = Better.NEITHER
    low: float | None = None
    high: float | None = None
    headline: int = 0
    tile: str = ""


@dataclass(frozen=True)
class Section:
    """One part of the report. ``absent`` is the reason why there is nothing to show."""

    name: str
    title: str
    question: str = ""
    verdicts: tuple[Verdict, ...] = ()
    keys: tuple[KeyNumber, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = field(default=())
    absent: str = ""
