"""The report on a terminal: the same verdicts, numbers and tables, without the plots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.progress import Progress, quiet
from harness.report.model import Cell, KeyNumber, Level, Section, Table, Verdict
from harness.report.page import heading, headlines
from harness.report.run import Run, open_run
from harness.report.sections import build
from harness.report.values import ABSENT

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

_COLOURS = {
    Level.GOOD: "green",
    Level.CAUTION: "yellow",
    Level.BAD: "red",
    Level.UNKNOWN: "magenta",
}


def print_run(path: Path, console: Console, progress: Progress = quiet) -> None:
    """Print everything that the page of the run at ``path`` says."""
    run = open_run(path, progress)
    print_details(run, build(run), console)


def print_summary(run: Run, sections: list[Section], console: Console) -> None:
    """The short form: verdicts, headline numbers, caveats."""
    console.print(f"[bold]{_escape(heading(run))}[/bold]  {_escape(run.device)}", soft_wrap=True)
    console.print(_verdicts([v for s in sections for v in s.verdicts]))
    console.print(_numbers(headlines(sections)))
    notes = [note for s in sections if s.name == "provenance" for note in s.notes]
    _print_notes(notes, console)


def print_details(run: Run, sections: list[Section], console: Console) -> None:
    """The long form: the summary, then every section's tables and notes."""
    print_summary(run, sections, console)
    for section in (s for s in sections if not s.absent):
        for table in section.tables:
            console.print(f"\n[bold]{section.title}: {_escape(table.title)}[/bold]")
            print_table(table, console)
        if section.name != "provenance":
            _print_notes(list(section.notes), console)
    for section in (s for s in sections if s.absent):
        console.print(f"\nNot in this run: {section.title}: {_escape(section.absent)}")


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _verdicts(verdicts: list[Verdict]) -> RichTable:
    table = _grid()
    for verdict in verdicts:
        colour = _COLOURS[verdict.level]
        table.add_row(
            verdict.subject,
            f"[{colour}]{_escape(verdict.word)}[/{colour}]",
            _escape(verdict.detail),
        )
    return table


def _numbers(keys: list[KeyNumber]) -> RichTable:
    table = _grid()
    for key in keys:
        table.add_row(
            key.tile or key.label, f"[bold]{_escape(key.cell.text)}[/bold] {key.unit}".rstrip()
        )
    return table


def _grid() -> RichTable:
    from rich.table import Table as RichTable

    return RichTable(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))


def print_table(table: Table, console: Console) -> None:
    """Print one table and its note, without its title; line by line where it is too wide."""
    shown = _table(table)
    roomy = console.options.update(width=10_000)
    if shown.__rich_measure__(console, roomy).maximum <= console.width:
        console.print(shown)
    else:
        for row in table.rows:
            console.print(f"• {_escape(_line(table, row))}")
    if table.note:
        console.print(f"[dim]{_escape(table.note)}[/dim]", soft_wrap=True)


def _table(table: Table) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable

    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in table.columns:
        shown.add_column(
            _escape(column.heading),
            justify="right" if column.numeric else "left",
        )
    for row in table.rows:
        shown.add_row(*(_escape(_text(cell)) for cell in row))
    return shown


def _line(table: Table, row: tuple[Cell, ...]) -> str:
    named = zip(table.columns[1:], row[1:], strict=True)
    parts = [f"{column.heading}: {_text(cell)}" for column, cell in named if cell is not ABSENT]
    return "; ".join([_text(row[0]), *parts])


def _text(cell: Cell) -> str:
    return cell.text.replace("\N{NO-BREAK SPACE}", " ")


def _print_notes(notes: list[str], console: Console) -> None:
    for note in notes:
        console.print(f"[yellow]note[/yellow]: {_escape(note)}", soft_wrap=True)
