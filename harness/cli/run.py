"""``harness run``: the whole path on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import output
from harness.cli.output import JsonFlag

if TYPE_CHECKING:
    from harness.run.path import StepDone


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("run")(run)


def run(
    plan: Annotated[
        str, typer.Option(help="What to do: a name in workloads/run, or a YAML file.")
    ] = "default",
    results: Annotated[Path, typer.Option(help="Folder of run folders.")] = Path("results"),
    as_json: JsonFlag = False,
) -> None:
    """The whole path: store, capture, replay, wear, layouts, calibration, report.

    Runs a modelled KV store on a loop device of its own under the eBPF probe, replays what was
    captured, computes the wear of a 1 TB / 0.3 DWPD drive, reads sessions back from two layouts,
    and leaves trace, calibration.json and report.html in a new run folder. About three minutes,
    2 GiB of disk, 3 GiB of memory. Needs root for the loop device and the probe.

    Exits 1 if a measurement failed (events lost, data read back wrong).

    Example: harness run --results results
    """
    from functools import partial

    from harness.run.path import run_path
    from harness.run.plan import load_plan

    bar = partial(output.progress_bar, enabled=not as_json)
    announce = (lambda step: None) if as_json else _announce
    done = run_path(load_plan(plan), Path(plan).stem, results, bar, announce)
    if as_json:
        from dataclasses import asdict

        output.print_json({**asdict(done), "folder": str(done.folder)})
    else:
        _summary(done.folder)
    if done.failures:
        raise typer.Exit(1)


def _announce(step: StepDone) -> None:
    output.console().print(
        f"[bold]{step.title:<22}[/bold] {step.said}  [dim]{step.duration_s:.0f} s[/dim]",
        soft_wrap=True,
    )


def _summary(folder: Path) -> None:
    from harness.report.console import print_summary
    from harness.report.run import open_run
    from harness.report.sections import build

    console = output.console()
    console.print()
    run = open_run(folder)
    print_summary(run, build(run), console)
    console.print(f"\nreport: {folder / 'report.html'}", soft_wrap=True)
