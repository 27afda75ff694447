"""``harness nightly run`` and ``install``: a night over all hosts, and how it comes by itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.output import JsonFlag, console, print_json
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from harness.nightly.inventory import Inventory

InventoryArgument = Annotated[
    Path, typer.Argument(metavar="INVENTORY", help="Hosts, drives and jobs (nightly.yaml).")
]
ResultsOption = Annotated[Path, typer.Option("--results", help="Folder for run folders.")]
RESULTS = Path("results")


def run(
    inventory: InventoryArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done and overwritten.")
    ] = False,
    results: ResultsOption = RESULTS,
    history: Annotated[
        Path | None,
        typer.Option("--history", help="Folder of the history.", show_default="RESULTS/history"),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run the jobs of an inventory on its hosts, fetch the results, report what got worse.

    Hosts work at once, the jobs of one host in turn. Where a host has not this same harness, it
    is sent. A drive is found by its serial, locked, checked against its limits, and overwritten.
    A job goes on when the connection breaks. What fails on one host is the failure of that job
    alone. Exits with 1 if a job failed or a figure regressed.

    Example: harness nightly run nightly.yaml --dry-run
    """
    from harness.nightly.inventory import load_inventory

    loaded = load_inventory(inventory)
    if dry_run:
        _dry_run(loaded, as_json)
        return
    data = _night(loaded, inventory, results, history or results / "history", as_json)
    if as_json:
        print_json(data)
    else:
        _print_night(data)
    if data["failed"] or data["report"]["verdict"] == "REGRESSED":
        raise typer.Exit(1)


def install(
    inventory: InventoryArgument,
    results: ResultsOption = RESULTS,
    shown: Annotated[
        bool, typer.Option("--print", help="Print the files; nothing is ever installed.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print systemd units, a crontab line and a GitHub Actions workflow for each night.

    Example: harness nightly install nightly.yaml --print
    """
    from harness.nightly import install as texts
    from harness.nightly.inventory import load_inventory

    if not (shown or as_json):
        raise UsageError("nothing is installed by this command", fix="give --print")
    window = load_inventory(inventory).window
    start = window.start if window else texts.DEFAULT_START
    command = [
        sys.executable, "-m", "harness", "nightly", "run",
        str(inventory.resolve()), f"--results={results.resolve()}",
    ]  # fmt: skip
    files = {
        "kvflash-nightly.service": texts.service(command),
        "kvflash-nightly.timer": texts.timer(start),
        "crontab": texts.crontab(command, start),
        ".github/workflows/nightly.yaml": texts.workflow(command, start),
    }
    if as_json:
        print_json(files)
        return
    for name, text in files.items():
        typer.echo(f"# {name}\n{text}")


def _dry_run(inventory: Inventory, as_json: bool) -> None:
    from harness.nightly.plan import plan

    tasks: list[dict[str, Any]] = [
        {
            "task": task.name,
            "host": task.host.name,
            "destination": task.host.destination,
            "overwrites": task.device.serial if task.device else None,
            "minutes": task.job.minutes,
            "commands": task.steps(
                task.host.harness or "harness",
                "RESULTS",
                f"<path of {task.device.serial}>" if task.device else None,
            ),
        }
        for found in plan(inventory).values()
        for task in found
    ]
    if as_json:
        print_json({"tasks": tasks})
        return
    for task in tasks:
        typer.echo(f"{task['task']}, on {task['destination']}, {task['minutes']:g} minutes at most")
        for command in task["commands"]:
            typer.echo(f"  {' '.join(command)}")
        if task["overwrites"]:
            typer.echo(f"  OVERWRITES the drive with serial {task['overwrites']}")


def _night(
    inventory: Inventory, path: Path, results: Path, history: Path, quiet: bool
) -> dict[str, Any]:
    from dataclasses import asdict

    from harness.core.files import write_json
    from harness.core.runs import RunFolder
    from harness.nightly.dashboard import write_dashboard
    from harness.nightly.facts import judgement_facts
    from harness.nightly.history import History
    from harness.nightly.hostnight import Places
    from harness.nightly.night import run_night
    from harness.nightly.regressions import Options, judge

    with RunFolder(results, "nightly", path.stem, inventory.model_dump(mode="json")) as folder:
        outcomes = run_night(inventory, Places(results, history, folder.path), _say(quiet))
        options = Options(
            tolerance=inventory.tolerances.default, by_metric=inventory.tolerances.metrics
        )
        nights, page = History(history).nights(), history / "dashboard.html"
        data = {
            "night": str(folder.final),
            "tasks": [asdict(outcome) for outcome in outcomes],
            "done": sum(outcome.state == "done" for outcome in outcomes),
            "failed": sum(outcome.state != "done" for outcome in outcomes),
            "report": judgement_facts(judge(nights, options)),
            "page": str(page),
        }
        write_dashboard(nights, options, page, results)
        write_json(folder.path / "nightly.json", data)
        folder.exit_code = int(bool(data["failed"]))
    return data


def _say(quiet: bool) -> Callable[[str, str], None]:
    """What hosts say, line by line with their name, on stderr."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False)

    def say(host: str, text: str) -> None:
        if quiet:
            return
        if console.is_terminal:
            console.print(Text.assemble((f"{host} ", "bold cyan"), text), soft_wrap=True)
        else:
            typer.echo(f"{host}: {text}", err=True)

    return say


def _print_night(data: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from harness.cli.nightly import print_judgement

    table = Table("task", "state", "minutes", "runs", "why")
    for task in data["tasks"]:
        table.add_row(
            escape(task["task"]),
            task["state"],
            f"{task['duration_s'] / 60:.1f}",
            str(len(task["runs"])),
            escape(task["why"]),
        )
    out = console()
    out.print(table)
    for task in data["tasks"]:
        for what, why in task["not_measured"].items():
            out.print(f"{task['task']}: not measured: {what}: {why}", markup=False)
    out.print(f"{data['done']} done, {data['failed']} not; logs in {data['night']}", markup=False)
    print_judgement(data["report"])
    out.print(f"page: {data['page']}", markup=False, soft_wrap=True)
