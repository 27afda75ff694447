"""``harness simulate compare`` and ``sweep``: many policies, many points."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import output
from harness.cli.output import JsonFlag
from harness.cli.simulate import (
    BudgetOption,
    CalibrationOption,
    CheckpointOption,
    ConstantsOption,
    DaysOption,
    DramOption,
    GpuPriceOption,
    HitOption,
    LanesOption,
    LimitOption,
    ModelOption,
    PathOption,
    PrefillOption,
    RateOption,
    ReplaysOption,
    ResultsOption,
    SchedulerOption,
    SeedOption,
    SsdOption,
    StructureOption,
    TraceArgument,
    Traffic,
    WarmupOption,
    corpus_of,
    drive_table,
    machine_of,
    narrow_table,
    parameters,
    point_of,
    show_sources,
    valid,
)
from harness.core.errors import MeasurementError, UsageError

if TYPE_CHECKING:
    from harness.simulator.evaluate import Answer


def register(group: typer.Typer) -> None:
    """Add the commands to the group ``simulate``."""
    group.command("compare")(compare)
    group.command("sweep")(sweep)
    group.command("figures")(figures)
    group.command("reproduce")(reproduce)


def compare(
    trace: TraceArgument,
    policy: Annotated[
        list[str],
        typer.Option("--policy", help="NAME or NAME:param=value,param=value; may be repeated."),
    ],
    layout: Annotated[
        list[str] | None, typer.Option("--layout", help="Store's layout; may be repeated.")
    ] = None,
    profile: Annotated[
        list[str] | None, typer.Option("--profile", "-p", help="Drive; may be repeated.")
    ] = None,
    model: ModelOption = "kimi-k3",
    dram: DramOption = "100GB",
    ssd: SsdOption = "1TB",
    lanes: LanesOption = None,
    seed: SeedOption = None,
    limit: LimitOption = None,
    checkpoint: CheckpointOption = "end",
    structure: StructureOption = None,
    on_ssd_hit: HitOption = "stay",
    replays: ReplaysOption = 1,
    warmup: WarmupOption = 0.0,
    calibration: CalibrationOption = None,
    constants: ConstantsOption = None,
    scheduler: SchedulerOption = "one-queue",
    path: PathOption = "staged",
    load: RateOption = None,
    prefill: PrefillOption = None,
    gpu_usd_per_hour: GpuPriceOption = None,
    days: DaysOption = None,
    budget: BudgetOption = 300.0,
    results: ResultsOption = Path("results"),
    as_json: JsonFlag = False,
) -> None:
    """Which policy, in which layout, on which drive? One table, and a page with plots.

    Every policy is played once, and its writes are put on every drive in every layout.

    Example: harness simulate compare claude-code.tar.zst --lanes 20 --policy lru --policy lru-k:k=2
    --policy gandalf:alpha=4 --layout lmcache-raw-block --layout session-contiguous
    --profile 1tb-0.3dwpd -c calibration.json
    """
    from harness.core.files import write_json
    from harness.core.runs import RunFolder
    from harness.core.units import parse_size
    from harness.report.page import render_run
    from harness.simulator.evaluate import evaluate
    from harness.simulator.loading.options import LoadOptions

    queues = valid(LoadOptions, scheduler=scheduler, path=path, requests_per_s=load)
    drives: list[str | None] = [*(profile or [])] or [None]
    machines = [
        machine_of(
            (calibration, constants), (drive, tuple(layout or ())), queues,
            (prefill, gpu_usd_per_hour), (days, budget),
        )
        for drive in drives
    ]  # fmt: skip
    traffic = Traffic(trace, lanes, seed, limit)
    corpus = corpus_of(traffic)
    points = [
        point_of(
            corpus, traffic, model, policy=name, parameters=settings, dram_bytes=parse_size(dram),
            ssd_bytes=parse_size(ssd), checkpoint=checkpoint, structure=structure,
            on_ssd_hit=on_ssd_hit, replays=replays, warmup=warmup,
        )
        for name, settings in map(named_policy, policy)
    ]  # fmt: skip
    config = {"points": [point.model_dump() for point in points], "profiles": profile}
    with RunFolder(results, "simulate", f"{corpus.name}-compare", config) as run:
        answers: list[Answer] = []
        with output.progress_bar("compare", enabled=not as_json) as progress:
            for machine in machines:
                answers += [evaluate(corpus, point, machine, progress) for point in points]
        record = {
            "answers": [answer.model_dump(mode="json") for answer in answers],
            "rows": [row.model_dump() for answer in answers for row in answer.rows],
            "run": str(run.final),
        }
        write_json(run.path / "simulate.json", record)
    render_run(run.final)
    if as_json:
        output.print_json(record)
        return
    console = output.console()
    console.print(_policy_table(answers[: len(points)]))
    rows = [row for answer in answers for row in answer.rows]
    if rows:
        console.print(drive_table(rows))
    show_sources(answers)
    console.print(f"report: {run.final / 'report.html'}", soft_wrap=True, markup=False)


def named_policy(text: str) -> tuple[str, dict[str, Any]]:
    """``gandalf:alpha=4,gate=same`` -> its name and parameters."""
    name, _, settings = text.partition(":")
    return name, parameters([part for part in settings.split(",") if part.strip()])


def sweep(
    grid: Annotated[
        str, typer.Argument(metavar="GRID", help="Grid of workloads/simulate, or a YAML file.")
    ],
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes on this machine.", show_default="one a core"),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(help="Play on the cluster of this Dask scheduler, tcp://host:8786."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Take over the records of this earlier run folder.")
    ] = None,
    results: ResultsOption = Path("results"),
    as_json: JsonFlag = False,
) -> None:
    """Play every point of a grid; records as Parquet, frontiers as a table.

    Points already recorded by the same code are not played again. Interrupted, the run folder
    keeps its records: give it to --resume.

    Example: harness simulate sweep claude-code.yaml --workers 2
    """
    from harness.core.runs import RunFolder
    from harness.simulator.sweep.frontier import frontier
    from harness.simulator.sweep.grid import jobs_of, load_grid
    from harness.simulator.sweep.play import play_all
    from harness.simulator.sweep.records import FOLDER, carry_over, read_records

    wanted = load_grid(grid)
    with RunFolder(
        results, "simulate-sweep", Path(grid).stem, {"grid": wanted.model_dump(mode="json")}
    ) as run:
        folder = run.path / FOLDER
        if resume is not None:
            run.add(resumed_from=resume.name, taken_over=carry_over(resume, folder))
        jobs = jobs_of(wanted)
        with output.progress_bar("sweep", enabled=not as_json) as progress:
            play_all(jobs, folder, workers=workers, dask=dask, progress=progress)
        records = read_records(folder)
        failed = [row for row in records.to_pylist() if row["error"] is not None]
        run.exit_code = int(bool(failed))
    best = frontier(records)
    if as_json:
        output.print_json({
            "points": records.num_rows, "failed": failed, "frontier": best,
            "records": str(run.final / FOLDER), "run": str(run.final),
        })  # fmt: skip
    else:
        console = output.console()
        console.print(_frontier_table(best))
        console.print(f"{records.num_rows} points, {len(failed)} failed")
        console.print(f"figures: harness simulate figures {run.final}", soft_wrap=True)
    if failed:
        raise MeasurementError(f"{len(failed)} of {len(jobs)} points failed: {failed[0]['error']}")


def _policy_table(answers: list[Answer]) -> Any:
    from harness.core.units import format_duration, format_size

    headings = ("miss", "behind\nno state", "F hits\non SSD", "written\nF", "written\nS", "load",
                "p99", "USD\n/1000")  # fmt: skip
    table = narrow_table("Policies", "policy", headings, 8)
    for one in answers:
        hits = one.hits["ssd"]["full"] + one.hits["dram"]["full"]
        table.add_row(
            one.label, f"{one.miss:.4f}", f"{one.stranded / max(one.references, 1):.4f}",
            f"{one.hits['ssd']['full'] / hits:.0%}" if hits else "-",
            format_size(one.written_bytes["full"]), format_size(one.written_bytes["state"]),
            format_duration(one.load_s["mean"]), format_duration(one.load_s["p99"]),
            f"{one.cost['total']:.2f}" if one.cost else "-",
        )  # fmt: skip
    return table


def _frontier_table(rows: list[dict[str, Any]]) -> Any:
    """What all points share stands in the title, so that the rest has room."""
    from harness.core.units import format_size

    settings = {
        "trace": [row["trace"] for row in rows],
        "model": [row["model"] for row in rows],
        "DRAM": [format_size(row["dram_bytes"]) for row in rows],
        "SSD": [format_size(row["ssd_bytes"]) for row in rows],
    }
    shared = [f"{name} {of[0]}" for name, of in settings.items() if len(set(of)) == 1]
    varied = {name: of for name, of in settings.items() if len(set(of)) > 1}
    title = "Miss ratio against bytes written: every point, nothing left out"
    table = narrow_table(
        "\n".join([title, *([", ".join(shared)] if shared else [])]),
        "policy", (*varied, "miss", "written", "frontier"), 12,
    )  # fmt: skip
    for at, row in enumerate(rows):
        knobs = json.loads(row["parameters"])
        label = " ".join([row["label"], *(f"{name} {value}" for name, value in knobs.items())])
        table.add_row(
            label, *(of[at] for of in varied.values()), f"{row['miss']:.4f}",
            format_size(row["written_bytes"]), "yes" if row["on_frontier"] else "",
        )  # fmt: skip
    return table


def figures(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run folder of a sweep (also a partial one).")
    ],
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", "-p", help="Drive, whose rated writes turn bytes into days and dollars."
        ),
    ] = None,
    gpu_usd_per_hour: GpuPriceOption = None,
    trace: Annotated[
        str | None,
        typer.Option(help="Trace of the sweep, to count how often its states are asked for."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="With --trace: the grid's limit, if it has one.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the pictures.", show_default="RUN/figures")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Draw a sweep as the published simulator's figures: pictures, and a page with them all.

    The records alone give figures 3, 5 and 7 to 13, as far as the grid varies what they show.
    --profile adds figure 2, and lives in place of bytes; with prices of drive and GPU there is
    figure 14, with --trace figure 6.

    Example: harness simulate figures results/20261130T120000Z-simulate-sweep-frontier
    --profile 1tb-0.3dwpd --gpu-usd-per-hour 2 --trace claude-code.tar.zst
    """
    from harness.core.profiles import load_profile
    from harness.report.simulate_figures import figures as drawable
    from harness.report.simulate_page import write_figures
    from harness.simulator.sweep.records import FOLDER, read_records

    rows = read_records(run / FOLDER).to_pylist()
    drawn = drawable(
        rows, load_profile(profile) if profile else None, gpu_usd_per_hour,
        uses_of_states(trace, limit, rows) if trace else None,
    )  # fmt: skip
    if not drawn:
        raise UsageError(f"the records of {run} allow no figure: they hold one point")
    folder = out or run / "figures"
    page = write_figures(drawn, folder, title=run.name)
    if as_json:
        output.print_json({
            "page": str(page), "figures": [
                {"file": f"{one.name}.svg", "title": one.title, "of": one.device, "note": one.note}
                for one in drawn
            ],
        })  # fmt: skip
        return
    for one in drawn:
        output.console().print(f"{one.name}.svg: {one.title}", markup=False)
    output.console().print(f"page: {page}", soft_wrap=True, markup=False)


def uses_of_states(
    trace: str, limit: int | None, rows: list[dict[str, Any]]
) -> dict[str, dict[str, list[int]]]:
    """How often each state of a trace of the sweep is asked for, by id and kind of checkpoint."""
    from harness.simulator.bounds import state_uses
    from harness.simulator.corpus import load_corpus
    from harness.simulator.point import trace_id

    lanes, seed = rows[0]["lanes"], rows[0]["seed"]
    corpus = load_corpus(trace, lanes=lanes, seed=seed, limit=limit)
    known, found = {row["trace"] for row in rows}, trace_id(corpus.name, corpus.content_hash)
    if found not in known:
        raise UsageError(
            f"{trace} is not what the sweep played, {', '.join(sorted(known))}",
            fix="give the trace of the grid, and its limit if it has one",
        )
    kinds = sorted({row["checkpoint"] for row in rows})
    return {found: {kind: state_uses(corpus, kind).tolist() for kind in kinds}}


def reproduce(
    paper: Annotated[
        str,
        typer.Argument(metavar="PAPER", help="trace-a, claude-code-062126, or a YAML like those."),
    ],
    file: Annotated[str, typer.Option("--file", help="The trace, which you have to supply.")],
    only: Annotated[str | None, typer.Option(help="Only targets of this policy.")] = None,
    seed: SeedOption = None,
    limit: LimitOption = None,
    results: ResultsOption = Path("results"),
    as_json: JsonFlag = False,
) -> None:
    """Our digits beside the paper's, under every reading of what its text leaves open.

    The traces are not published, so you bring them; on another trace the digits are others.

    Example: harness simulate reproduce trace-a --file trace-a.jsonl --only lru
    """
    from harness.core.files import write_json
    from harness.core.runs import RunFolder
    from harness.simulator.corpus import load_corpus
    from harness.simulator.reproduce import load_paper
    from harness.simulator.reproduce import reproduce as play

    wanted = load_paper(paper)
    corpus = load_corpus(file, lanes=wanted.lanes, seed=seed, limit=limit)
    if corpus.block_tokens != wanted.block_tokens:
        raise UsageError(
            f"{file} has blocks of {corpus.block_tokens} tokens, the paper's trace has"
            f" {wanted.block_tokens}: its digits cannot be compared"
        )
    with RunFolder(
        results, "simulate-reproduce", Path(paper).stem, {"paper": wanted.model_dump(mode="json")}
    ) as run:
        with output.progress_bar("reproduce", enabled=not as_json) as progress:
            readings = play(wanted, corpus, seed=seed, only=only, progress=progress)
        record = {
            "trace": corpus.name, "readings": [one.model_dump() for one in readings],
            "run": str(run.final),
        }  # fmt: skip
        write_json(run.path / "reproduce.json", record)
    if as_json:
        output.print_json(record)
    else:
        output.console().print(_readings_table(readings))


def _readings_table(readings: list[Any]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table("target", "reading", "ours / the paper's", "error", title="Ours and the paper's")
    for one in readings:
        choices = ", ".join(f"{k.split('.')[-1]} {v}" for k, v in one.choices.items())
        pairs = "\n".join(
            f"{name}: {one.ours[name]:.4g} / {theirs:.4g}" for name, theirs in one.theirs.items()
        )
        shown = "-" if one.error is None else f"{one.error:.3f}"
        table.add_row(
            escape(one.label), escape(choices) or "-", escape(pairs),
            f"[green]{shown}, best[/]" if one.best else shown,
        )  # fmt: skip
    return table
