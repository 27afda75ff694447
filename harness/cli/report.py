"""``harness report``: the page of a run, its summary on the terminal, two runs compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import output
from harness.cli.output import JsonFlag
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from harness.report import Run


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("report")(report)


def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN]...", help="Run folder; default the newest one."),
    ] = None,
    html: Annotated[
        bool, typer.Option("--html", help="Write only the page, print nothing but its path.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Two runs side by side, on one page.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where the comparison goes.", show_default=False)
    ] = None,
    results: Annotated[Path, typer.Option("--results", help="Folder with the run folders.")] = Path(
        "results"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Make the page of a run and print the same as tables.

    The page is one file, report.html in the run folder, that needs no network. With
    [bold]--compare[/bold] A B one page shows both runs and what changed.

    Example: harness report results/20261129T101500.000000Z-run-demo

    Example: harness report --compare RUN-A RUN-B --out difference.html
    """
    given = runs or []
    if compare:
        _compare(given, out, as_json)
        return
    if out is not None:
        raise UsageError("--out goes with --compare; the page of a run is its report.html")
    if len(given) > 1:
        raise UsageError(f"one run, not {len(given)}", fix="to compare two: --compare A B")
    _one(given[0] if given else _newest(results), html, as_json)


def _newest(results: Path) -> Path:
    from harness.core.runs import newest_run

    found = newest_run(results)
    if found is None:
        raise UsageError(f"no finished run in {results}", fix="make one with: harness run")
    return found


def _one(path: Path, html: bool, as_json: bool) -> None:
    from harness.report import build, open_run, print_details, write_page
    from harness.report.facts import facts

    with output.progress_bar("report") as progress:
        run = open_run(path, progress)
        target = write_page(run)
    if as_json:
        output.print_json({"run": run.name, "page": str(target), **facts(build(run))})
    elif html:
        typer.echo(target)
    else:
        console = output.console()
        print_details(run, build(run), console)
        console.print(f"\npage: {target}", soft_wrap=True)


def _compare(given: list[Path], out: Path | None, as_json: bool) -> None:
    from harness.core.files import write_text
    from harness.report import build, open_run
    from harness.report.compare import compare_page, number_table
    from harness.report.console import print_table
    from harness.report.facts import changes

    if len(given) != 2:
        raise UsageError(f"--compare takes two runs, not {len(given)}")
    with output.progress_bar("compare") as progress:
        runs = [open_run(path, progress) for path in given]
        built = [build(run) for run in runs]
        target = out or _beside(runs)
        write_text(target, compare_page(runs, built))
    if as_json:
        output.print_json({"page": str(target), "runs": [r.name for r in runs], **changes(*built)})
        return
    console = output.console()
    print_table(number_table(*built), console)
    console.print(f"\npage: {target}", soft_wrap=True)


def _beside(runs: list[Run]) -> Path:
    return runs[1].path.parent / f"compare-{runs[0].name}-{runs[1].name}.html"
