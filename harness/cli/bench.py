"""``harness bench``: what does it cost to read a session's KV back?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.output import JsonFlag, console, print_json, progress_bar

if TYPE_CHECKING:
    from harness.bench.outlook import Outlook
    from harness.bench.results import BenchResult
    from harness.core.runs import RunFolder

ResumeOption = Annotated[
    Path | None, typer.Option(help="Interrupted run folder (.partial) to continue.")
]
BudgetOption = Annotated[
    float | None, typer.Option(min=0, help="Seconds after which nothing is repeated any more.")
]
DryRunFlag = Annotated[
    bool, typer.Option("--dry-run", help="Only say what would be measured, and how long.")
]

app = typer.Typer(no_args_is_help=True, help="Layout and transport microbenchmarks.")


def register(root: typer.Typer) -> None:
    """Add the group to the command tree."""
    root.add_typer(app, name="bench")


@app.command()
def layout(
    grid: Annotated[
        str, typer.Option("--grid", "-g", help="Grid by name (workloads/bench) or YAML path.")
    ] = "quick",
    device: Annotated[
        str | None,
        typer.Option("--device", "-d", help="Block device; a loop device of its own if left out."),
    ] = None,
    destroy: Annotated[
        str | None,
        typer.Option(help="The device's serial, WWID, backing file or size: it is overwritten."),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option(help="Where the loop device's file goes.", show_default="results")
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of run folders.")] = Path("results"),
    resume: ResumeOption = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="Size of the loop device, such as 8GiB: what does not fit is skipped and listed."
        ),
    ] = None,
    budget_s: BudgetOption = None,
    sample_seconds: Annotated[
        float | None, typer.Option(min=0.001, help="Length of a sample, for a shorter run.")
    ] = None,
    dry_run: DryRunFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Read sessions back layer-ordered contiguous and eviction-ordered scattered.

    Root is needed to make a loop device, and to make sure that nobody else uses the device.
    How long a grid takes is said before it starts; the grids for real drives finish in minutes
    with a smaller device, shorter samples and a time limit:
    harness bench layout --grid layouts --size 8GiB --sample-seconds 0.2 --budget-s 300

    Example: harness bench layout --grid quick
    """
    from harness.bench.grid import load_grid, scaled
    from harness.bench.journal import NAME
    from harness.bench.layout import bench_layout, bench_on_loop, loop_bytes
    from harness.bench.outlook import outlook
    from harness.bench.resume import carry_over
    from harness.core.files import write_json
    from harness.core.runs import RunFolder
    from harness.core.units import parse_size
    from harness.device.guard import open_guarded
    from harness.device.info import device_info

    wanted = scaled(
        load_grid(grid), size_bytes=parse_size(size) if size else None,
        sample_seconds=sample_seconds, budget_s=budget_s,
    )  # fmt: skip
    ahead = outlook(wanted, device_info(device).size_bytes if device else loop_bytes(wanted))
    if _only_outlook(ahead, dry_run=dry_run, as_json=as_json):
        return
    with RunFolder(results, "bench", wanted.name, wanted.model_dump(mode="json")) as run:
        journal = run.path / NAME
        if resume is not None:
            carry_over(resume, journal)
            run.add(resumed_from=resume.name)
        with (
            _kept_for_resuming(run),
            progress_bar("bench layout", enabled=not as_json) as progress,
        ):
            if device is None:
                found = bench_on_loop(
                    wanted, directory or results, progress=progress, journal=journal
                )
            else:
                with open_guarded(device, destroy=destroy) as target:
                    found = bench_layout(target, wanted, progress=progress, journal=journal)
        record = found.model_dump(mode="json")
        write_json(run.path / "bench.json", record)
        run.add(device=record["device"], shortened=found.shortened)
        run.exit_code = int(not (found.cells or found.load))
    _tell(run, found, record, as_json=as_json)


@app.command()
def gds(
    grid: Annotated[
        str, typer.Option("--grid", "-g", help="Grid with a gds part, by name or YAML path.")
    ] = "gds",
    device: Annotated[
        str | None, typer.Option("--device", "-d", help="Block device instead of a file.")
    ] = None,
    destroy: Annotated[
        str | None,
        typer.Option(help="The device's serial, WWID, backing file or size: it is overwritten."),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option(help="Where the file to read lies.", show_default="results")
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of run folders.")] = Path("results"),
    resume: ResumeOption = None,
    budget_s: BudgetOption = None,
    dry_run: DryRunFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Read sessions into GPU memory by GPUDirect Storage and its stand-ins, each one proven.

    Without a GPU the host's own reads are measured and the GPU's are listed as not measured.

    Example: harness bench gds --directory /mnt/nvme
    """
    from harness.bench.gds import gds_on_device, gds_on_file
    from harness.bench.grid import load_grid, scaled
    from harness.bench.journal import NAME
    from harness.bench.outlook import gds_outlook
    from harness.bench.resume import carry_over
    from harness.core.files import write_json
    from harness.core.runs import RunFolder

    wanted = scaled(load_grid(grid), budget_s=budget_s)
    if _only_outlook(gds_outlook(wanted), dry_run=dry_run, as_json=as_json):
        return
    with RunFolder(results, "bench-gds", wanted.name, wanted.model_dump(mode="json")) as run:
        journal = run.path / NAME
        if resume is not None:
            carry_over(resume, journal)
            run.add(resumed_from=resume.name)
        with _kept_for_resuming(run), progress_bar("bench gds", enabled=not as_json) as progress:
            if device is None:
                found = gds_on_file(
                    directory or results, wanted, progress=progress, journal=journal
                )
            else:
                found = gds_on_device(device, destroy, wanted, progress=progress, journal=journal)
        record = found.model_dump(mode="json")
        write_json(run.path / "gds.json", record)
        run.add(device=record["device"], not_measured=record["not_measured"])
        run.exit_code = int(not found.cells)
    _tell(run, found, record, as_json=as_json)


@contextmanager
def _kept_for_resuming(run: RunFolder) -> Iterator[None]:
    """A device or fio that fails ends a run; say how it goes on."""
    from harness.core.errors import MeasurementError

    try:
        yield
    except MeasurementError as error:
        raise MeasurementError(
            str(error), fix=f"what was measured is kept; continue with --resume {run.path}"
        ) from error


def _only_outlook(ahead: Outlook, *, dry_run: bool, as_json: bool) -> bool:
    """Say what lies ahead; whether that was all that was asked for."""
    if as_json and dry_run:
        print_json(asdict(ahead))
    elif not as_json:
        console().print(ahead.text(), soft_wrap=True)
    return dry_run


def _tell(run: RunFolder, found: BenchResult, record: dict[str, Any], *, as_json: bool) -> None:
    """Draw the report, print the result, and exit as the run did."""
    from harness.report.page import render_run

    page = render_run(run.final)
    if as_json:
        print_json({**record, "run": str(run.final)})
    else:
        _print(found)
        console().print(f"report: {page}")
    if run.exit_code:  # nothing at all could be measured
        raise typer.Exit(run.exit_code)


def _print(found: BenchResult) -> None:
    """Cells and comparisons for people."""
    from harness.bench.tables import cell_table, comparison_table, load_table, notes

    out = console()
    if found.cells:
        out.print(cell_table(found))
    if found.comparisons:
        out.print(comparison_table(found))
    if found.load:
        out.print(load_table(found))
    for line in notes(found):
        out.print(line)
