"""``harness wear``: what does this trace, or this store, do to that drive?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import output
from harness.cli.output import JsonFlag
from harness.core.errors import MeasurementError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.profiles import DeviceProfile
    from harness.core.progress import Progress
    from harness.endurance.inputs import Input
    from harness.endurance.wear import Options


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("wear")(wear)


def wear(
    ctx: typer.Context,
    source: Annotated[
        Path | None,
        typer.Argument(metavar="INPUT", help="Op list (offset,length,op) or block trace."),
    ] = None,
    profile: Annotated[
        str, typer.Option("--profile", "-p", help="Drive of femu/devices, or a YAML file.")
    ] = "1tb-0.3dwpd",
    policy: Annotated[
        list[str] | None,
        typer.Option(help="femu, femu-stock, femu-late or drive; several are compared."),
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="Re-emit this store of workloads/stores at drive size.")
    ] = None,
    requests: Annotated[
        str, typer.Option(help="Traffic of workloads/requests, a YAML file, or a request trace.")
    ] = "chat",
    model: Annotated[
        str, typer.Option(help="Model of workloads/models, a YAML file, or a config.json.")
    ] = "llama-3.1-8b",
    seed: Annotated[int, typer.Option(min=0, help="Of the traffic.")] = 0,
    utilisation: Annotated[
        float, typer.Option(help="Size of the store as a share of the namespace.")
    ] = 1.0,
    precondition: Annotated[
        str | None,
        typer.Option(help="Sequential fills before, or none (default: 2; an op list: none)."),
    ] = None,
    loop: Annotated[
        bool, typer.Option("--loop", help="Repeat a trace until its WAF is steady.")
    ] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Repeat a trace so often.")] = 1,
    scale: Annotated[
        str | None, typer.Option(help="tile: a trace side by side, at phases of their own.")
    ] = None,
    phases: Annotated[int, typer.Option(min=1, help="Seeds of tile phases to measure.")] = 3,
    perturb: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Measure again under so many swapped orders: the band (a repeated trace: 2).",
        ),
    ] = None,
    writes_per_day: Annotated[
        list[str] | None, typer.Option(help="Host writes a day, such as 3TB; several are listed.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=1, help="Stop after so many seconds, steady or not.")
    ] = None,
    whole_life: Annotated[
        bool, typer.Option("--whole-life", help="Write the rated life, steady or not.")
    ] = False,
    save: Annotated[Path | None, typer.Option(help="Keep the drive's state in this file.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Kept state to start from; of a sweep, its .partial folder.")
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(help="Measure every point of a grid (workloads/wear, or YAML), on all cores."),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of run folders.")] = Path("results"),
    as_json: JsonFlag = False,
) -> None:
    """Write a trace or a store to the FTL model of a drive: WAF, erases, lifetimes.

    An op list gives counters at each SNAP, equal to FEMU's. A store is written on until its
    WAF is steady; a trace once, or repeated with --loop. Days need a rate of writing: the clock
    of the requests, or --writes-per-day.

    Example: harness wear --store lmcache-raw-block --requests chat --profile 1tb-0.3dwpd
    """
    from harness.cli import wear_choices as choices
    from harness.core.profiles import load_profile
    from harness.endurance.wear import Options

    if sweep is not None:
        choices.refuse_beside_sweep(ctx)
        _sweep(sweep, resume, results, as_json)
        return
    wish = choices.InputWish(
        source, store, requests, model, seed, utilisation, loop, repeats, scale
    )
    choices.refuse_ignored(ctx, wish, resume is not None)
    drives = choices.drives_of(load_profile(profile), policy or [])
    options = Options(
        fills=choices.fills_of(precondition),
        budget_s=budget,
        whole_life=whole_life,
        perturb=choices.perturbations_of(wish, perturb),
        phases=phases if scale == "tile" else 1,
        writes_per_day=choices.rates_of(writes_per_day or []),
        save=save,
        resume=resume,
    )
    if len(drives) > 1 and (save or resume):
        raise UsageError("--save and --resume keep one drive: give one --policy")
    variants = [choices.variant_of(wish, drive) for drive in drives]
    config = {
        "profile": profile, "policy": policy, "input": str(source) if source else store,
        "requests": requests if store else None, "model": model if store else None,
        "seed": seed, "utilisation": utilisation, "precondition": precondition, "loop": loop,
        "repeats": repeats, "scale": scale, "phases": options.phases, "perturb": options.perturb,
        "writes_per_day": writes_per_day, "budget_s": budget, "whole_life": whole_life,
        "save": str(save) if save else None, "resume": str(resume) if resume else None,
    }  # fmt: skip
    with output.progress_bar("wear", enabled=not as_json) as progress:
        result = _in_folder(variants, drives, options, results, config, progress)
    if as_json:
        output.print_json(result)
    else:
        _print(result)


def _in_folder(
    variants: list[Callable[[int], Input]],
    drives: list[DeviceProfile],
    options: Options,
    results: Path,
    config: dict[str, Any],
    progress: Progress,
) -> dict[str, Any]:
    """Measure within a run folder, one drive after the other."""
    from harness.core.files import write_json
    from harness.core.runs import RunFolder
    from harness.endurance.result import to_json
    from harness.endurance.wear import wear as measure
    from harness.report.page import render_run

    budget = options.budget_s
    if budget is not None:
        options = replace(options, budget_s=budget / len(drives))
    with RunFolder(results, "wear", drives[0].name or "drive", config) as run:
        found = [
            to_json(measure(variant, drive, options, progress))
            for variant, drive in zip(variants, drives, strict=True)
        ]
        result = {**found[0], "run": str(run.final)}
        if len(found) > 1:
            result["points"] = found
        write_json(run.path / "wear.json", result)
    render_run(run.final)
    return result


def _sweep(name: str, resume: Path | None, results: Path, as_json: bool) -> None:
    from rich.markup import escape

    from harness.core.files import write_json
    from harness.core.runs import RunFolder
    from harness.endurance.sweep import carry_over, load_grid, run_sweep
    from harness.endurance.sweep_plot import draw_sweep, failures, sweep_table
    from harness.report.page import render_run

    grid = load_grid(name)
    config = {"grid": grid.model_dump(mode="json")}
    with RunFolder(results, "wear-sweep", Path(name).stem, config) as run:
        if resume is not None:
            carry_over(resume, run.path, grid)
            run.add(resumed_from=resume.name)
        with output.progress_bar("sweep", enabled=not as_json) as progress:
            points = run_sweep(grid, run.path, progress)
        result = {"source": "ftl-model", "grid": config["grid"], "points": points}
        write_json(run.path / "wear.json", result)
        drawn = draw_sweep(points, run.path / "sweep.svg")
        failed = sum("error" in point for point in points)
        run.exit_code = int(failed > 0)
    render_run(run.final)
    if as_json:
        output.print_json({**result, "run": str(run.final)})
    else:
        console = output.console()
        console.print(sweep_table(points))
        for failure in failures(points):
            console.print(f"failed: {escape(failure)}", soft_wrap=True)
        if drawn:
            console.print(f"plot: {run.final / 'sweep.svg'}", soft_wrap=True)
        console.print(f"report: {run.final / 'report.html'}", soft_wrap=True)
        console.print(f"run folder: {run.final}", soft_wrap=True)
    if failed:
        raise MeasurementError(f"{failed} of {len(points)} points failed")


def _print(result: dict[str, Any]) -> None:
    from rich.markup import escape

    from harness.endurance import tables

    console = output.console()
    if result["input_kind"] != "store":
        console.print(tables.snapshot_table(result))
    console.print(tables.waf_table(result))
    for table in (tables.class_table(result), tables.lifetime_table(result)):
        if table is not None:
            console.print(table)
    if "points" in result:
        console.print(tables.comparison_table(result["points"]))
    console.print(f"[bold]{escape(tables.headline(result))}[/]")
    for note in result["notes"]:
        console.print(f"note: {escape(note)}", soft_wrap=True)
    console.print(f"run folder: {escape(result['run'])}", soft_wrap=True)
