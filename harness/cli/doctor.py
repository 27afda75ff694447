"""``harness doctor``: what this machine can do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import output
from harness.cli.output import JsonFlag
from harness.core.errors import MachineError

if TYPE_CHECKING:
    from rich.table import Table

    from harness.doctor import Finding


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("doctor")(doctor)


def doctor(
    results: Annotated[
        Path, typer.Option("--results", help="Folder whose free space is looked at.")
    ] = Path("results"),
    as_json: JsonFlag = False,
) -> None:
    """Say what this machine can do, what is missing, and how to install it.

    Exits 0 if everything that [bold]harness run[/bold] needs is there, else 3. Nothing is changed
    on the machine.

    Example: harness doctor --json
    """
    from harness.doctor import all_checks, run_checks

    with output.progress_bar("looking") as progress:
        findings = run_checks(all_checks(results), progress=progress)
    blocking = [found for found in findings if found.blocking]
    if as_json:
        output.print_json({"ok": not blocking, "checks": [found.as_json() for found in findings]})
    else:
        _print(findings, blocking)
    if blocking:
        raise typer.Exit(MachineError.exit_code)


def _print(findings: list[Finding], blocking: list[Finding]) -> None:
    console = output.console()
    console.print(_table(findings))
    lacking = [found for found in findings if not found.ok]
    if lacking:
        console.print("\nWhat is missing, and how to get it:")
    for found in lacking:
        console.print(f"  [bold]{found.check.name}[/bold]: {found.check.why}", soft_wrap=True)
        console.print("    fix: ", end="")
        console.print(found.fix, markup=False, soft_wrap=True)
    names = ", ".join(found.check.name for found in blocking)
    console.print(
        f"\n[red]harness run cannot work here[/red]: {names}"
        if blocking
        else "\n[green]harness run can work here.[/green]"
    )


def _table(findings: list[Finding]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("", "check", "seen", "used by"):
        table.add_column(heading)
    for found in findings:
        table.add_row(
            _mark(found),
            found.check.name,
            escape(found.outcome.detail),
            ", ".join(found.check.needed_by),
        )
    return table


def _mark(found: Finding) -> str:
    if found.blocking:
        return "[red]missing[/red]"
    if not found.ok:
        return "[yellow]absent[/yellow]"
    return "[yellow]warning[/yellow]" if found.outcome.warning else "[green]ok[/green]"
