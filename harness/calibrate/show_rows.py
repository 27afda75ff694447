"""Tables that stay readable however much was measured."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

MOST_ROWS = 24


def fill(table: Table, rows: Sequence[tuple[str, ...]]) -> Table:
    """``table`` with the first rows, and a word on where the others are."""
    for row in rows[:MOST_ROWS]:
        table.add_row(*row)
    if len(rows) > MOST_ROWS:
        table.caption = f"{len(rows) - MOST_ROWS} more rows: show FILE --html PAGE, or --as csv"
    return table
