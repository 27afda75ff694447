"""``harness calibrate``: the calibration file, made, checked, compared and explained."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.output import JsonFlag, console, print_json

app = typer.Typer(no_args_is_help=True, help="Make, check, compare and explain calibration files.")


class View(StrEnum):
    """Forms in which a file can be shown."""

    TEXT = "text"
    YAML = "yaml"
    CSV = "csv"


def register(root: typer.Typer) -> None:
    """Add the group to the command tree."""
    root.add_typer(app, name="calibrate")


@app.command()
def export(
    runs: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", help="Run folder; may be repeated.", show_default="the newest bench or run"
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the file goes.")] = Path(
        "calibration.json"
    ),
    results: Annotated[Path, typer.Option(help="Folder of run folders.")] = Path("results"),
    as_json: JsonFlag = False,
) -> None:
    """Join run folders into one calibration file.

    Example: harness calibrate export --from results/RUN --out calibration.json
    """
    from harness.calibrate.export import export as make
    from harness.calibrate.files import write
    from harness.calibrate.show import explain
    from harness.core.errors import UsageError
    from harness.core.runs import newest_run

    chosen = list(runs or [])
    if not chosen:
        newest = newest_run(results, "run") or newest_run(results, "bench")
        if newest is None:
            raise UsageError(f"no finished run in {results}", fix="name one: --from RUN")
        chosen = [newest]
    file = make(chosen)
    write(out, file)
    if as_json:
        print_json(file.model_dump(mode="json"))
        return
    for part in explain(file):
        console().print(part)
    console().print(f"written: {out}")


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="A calibration file.")],
    max_age_days: Annotated[
        int | None, typer.Option(min=1, help="Older measurements make the file invalid.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Is the file valid, and does it make sense? Exit 1 if not.

    Example: harness calibrate check calibration.json
    """
    from harness.calibrate.check import check as judge

    found = judge(path, max_age_days=max_age_days)
    if as_json:
        print_json(found.as_json())
    else:
        out = console()
        for problem in found.problems:
            out.print(f"problem: {problem.path}: {problem.message}", markup=False)
        for warning in found.warnings:
            out.print(f"warning: {warning.path}: {warning.message}", markup=False)
        out.print("valid" if found.valid else "NOT VALID")
    if not found.valid:
        raise typer.Exit(1)


@app.command()
def diff(
    first: Annotated[Path, typer.Argument(help="A calibration file.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
    every: Annotated[bool, typer.Option("--all", help="Also what agrees.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """What changed between two files beyond their intervals.

    Example: harness calibrate diff last-week.json calibration.json
    """
    from rich.table import Table

    from harness.calibrate.diff import diff as compare
    from harness.calibrate.files import read

    found = compare(read(first).file, read(second).file)
    if as_json:
        print_json({"differences": [difference.as_json() for difference in found]})
        return
    table = Table(title=f"{first} -> {second}")
    table.add_column("what", overflow="fold")
    for name in ("first", "second", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for item in found:
        if every or item.verdict != "same":
            table.add_row(
                item.what,
                "-" if item.first is None else f"{item.first:.3g}",
                "-" if item.second is None else f"{item.second:.3g}",
                "-" if item.change is None else f"{item.change:+.1%}",
                item.verdict,
            )
    console().print(table)
    same = sum(item.verdict == "same" for item in found)
    console().print(f"{same} of {len(found)} figures agree within their intervals")


@app.command()
def show(
    path: Annotated[Path, typer.Argument(help="A calibration file.")],
    view: Annotated[View, typer.Option("--as", help="Form.")] = View.TEXT,
    table: Annotated[
        str, typer.Option(help="Table for --as csv: bandwidth, waf, endurance, ... .")
    ] = "bandwidth",
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page with the fits, their residuals and all tables here."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Explain a file to a person, or print it as YAML or one of its tables as CSV.

    Example: harness calibrate show calibration.json --as csv --table waf

    Example: harness calibrate show calibration.json --html calibration.html
    """
    from harness.calibrate.files import read
    from harness.calibrate.show import explain
    from harness.calibrate.views import CSV_TABLES, to_csv, to_yaml
    from harness.core.errors import UsageError

    file = read(path).file
    if html is not None:
        from harness.report.calibration_page import write_calibration_page

        write_calibration_page(file.model_dump(mode="json"), path.name, html)
        if not as_json:
            console().print(f"page: {html}", soft_wrap=True)
            return
    if as_json:
        print_json(file.model_dump(mode="json"))
    elif view is View.YAML:
        typer.echo(to_yaml(file), nl=False)
    elif view is View.CSV:
        if table not in CSV_TABLES:
            raise UsageError(f"no table {table!r}; tables: {', '.join(CSV_TABLES)}")
        typer.echo(to_csv(file, table), nl=False)
    else:
        for part in explain(file):
            console().print(part)


@app.command()
def schema(as_json: JsonFlag = False) -> None:
    """Print the JSON Schema of the calibration file.

    Example: harness calibrate schema > calibration.schema.json
    """
    from harness.calibrate.files import json_schema

    print_json(json_schema())
