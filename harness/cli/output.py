"""What commands print: JSON for machines, rich tables for people, one line for an error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.core.progress import Progress, quiet

if TYPE_CHECKING:
    from rich.console import Console

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to stdout.")]


def console() -> Console:
    """The console for people: stdout, plain when that is not a terminal."""
    from rich.console import Console

    return Console(highlight=False)


def print_json(data: Any) -> None:
    """``data`` as JSON on stdout; NaN is a bug and raises."""
    json.dump(data, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


@contextmanager
def progress_bar(label: str, *, enabled: bool = True) -> Iterator[Progress]:
    """A ``Progress`` that draws a bar on stderr when that is a terminal, else says nothing."""
    if not (enabled and sys.stderr.isatty()):
        yield quiet
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    bar = RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}% {task.fields[note]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(label, total=None, note="")

        def report(done: float, total: float | None, note: str = "") -> None:
            bar.update(task, completed=done, total=total, note=note)

        yield report
