"""``harness simulate loads``: flat placement against staged tiers as the load rises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import output
from harness.cli.output import JsonFlag
from harness.cli.simulate import (
    CalibrationOption,
    CheckpointOption,
    ConstantsOption,
    DramOption,
    LanesOption,
    LimitOption,
    ModelOption,
    PrefillOption,
    ResultsOption,
    SeedOption,
    SsdOption,
    TraceArgument,
    Traffic,
    corpus_of,
    machine_of,
    narrow_table,
    point_of,
    valid,
)

if TYPE_CHECKING:
    from harness.simulator.evaluate import Machine
    from harness.simulator.loading.options import LoadOptions
    from harness.simulator.loading.rates import Rates
    from harness.simulator.loading.rising import Risen
    from harness.simulator.loading.work import Work

LOADS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""FlatCake's range, requests a second."""


def register(group: typer.Typer) -> None:
    """Add the command to the group ``simulate``."""
    group.command("loads")(loads)


def loads(
    trace: TraceArgument,
    load: Annotated[
        list[float] | None,
        typer.Option("--load", help="Requests a second; may be repeated.", show_default=str(LOADS)),
    ] = None,
    model: ModelOption = "kimi-k3",
    dram: DramOption = "100GB",
    ssd: SsdOption = "1TB",
    lanes: LanesOption = None,
    seed: SeedOption = None,
    limit: LimitOption = None,
    checkpoint: CheckpointOption = "end",
    gpus: Annotated[int, typer.Option(min=1, help="Servers that prefill.")] = 1,
    gpu_room: Annotated[
        str | None, typer.Option(help="GPU memory for what two queues have prefetched.")
    ] = None,
    staging: Annotated[str, typer.Option(help="Buffer in DRAM of the staged tiers.")] = "10GB",
    deadline: Annotated[
        float | None, typer.Option(help="Seconds until a staged restore is cancelled.")
    ] = None,
    calibration: CalibrationOption = None,
    constants: ConstantsOption = None,
    prefill: PrefillOption = None,
    results: ResultsOption = Path("results"),
    as_json: JsonFlag = False,
) -> None:
    """Who breaks first as the load rises: flat placement, or tiers that stage through DRAM?

    FlatCake's comparison: its placement with two queues and with one, read directly to the GPU,
    against a Mooncake store whose restores are cancelled when the staging buffer is full. Each is
    played once; the same requests then come at each load. A figure each of what is delivered, of
    times to first token, and of prefetches.

    Example: harness simulate loads claude-code.tar.zst --lanes 20 --limit 10000 --constants seed
    --load 0.1 --load 0.5 --load 1
    """
    from harness.core.files import write_json
    from harness.core.runs import RunFolder
    from harness.core.units import parse_size
    from harness.report.simulate_loads import figures
    from harness.report.simulate_page import write_figures
    from harness.simulator.loading.options import LoadOptions
    from harness.simulator.loading.rising import risen, servers
    from harness.simulator.loading.work import work_of
    from harness.simulator.run import simulate

    shared = valid(LoadOptions, gpus=gpus, gpu_bytes=gpu_room, staging_bytes=staging,
                   deadline_s=deadline)  # fmt: skip
    machine = machine_of(
        (calibration, constants), (None, ()), shared, (prefill, None), (None, None)
    )
    traffic = Traffic(trace, lanes, seed, limit)
    corpus = corpus_of(traffic)
    compared = servers(shared)
    points = {
        server.policy: point_of(
            corpus, traffic, model, policy=server.policy, parameters={}, structure=None,
            dram_bytes=parse_size(dram), ssd_bytes=parse_size(ssd), checkpoint=checkpoint,
        )
        for server in compared
    }  # fmt: skip
    config = {"points": [point.model_dump() for point in points.values()], "loads": load or LOADS}
    with RunFolder(results, "simulate-loads", corpus.name, config) as run:
        works = {}
        with output.progress_bar("loads", enabled=not as_json) as progress:
            for policy, point in points.items():
                played = simulate(
                    corpus, point,
                    progress=lambda done, total, name=policy: progress(done, total, name),  # type: ignore[misc]
                )  # fmt: skip
                works[policy] = work_of(played.requests, played.sizes)
        found = [
            risen(server, works[server.policy], rates_of(machine, works[server.policy]),
                  load or LOADS)
            for server in compared
        ]  # fmt: skip
        of = f"{corpus.name}, {len(corpus.time_s)} requests, {model}, DRAM {dram}, SSD {ssd}"
        limits = f"staging buffer {staging}, " + (
            f"deadline {deadline:g} s" if deadline else "no deadline"
        )
        record: dict[str, Any] = {
            "of": of, "staged": f"Staged tiers: {limits}.",
            "servers": [one.model_dump(mode="json") for one in found], "run": str(run.final),
        }  # fmt: skip
        write_json(run.path / "loads.json", record)
        write_figures(figures(record), run.path / "figures", title=of)
    if as_json:
        output.print_json(record)
        return
    output.console().print(_table(found))
    page = run.final / "figures" / "figures.html"
    output.console().print(f"page: {page}", soft_wrap=True, markup=False)


def rates_of(machine: Machine, work: Work) -> Callable[[LoadOptions], Rates]:
    """The machine's rates for a run under other queues: a direct path needs another hop."""
    from dataclasses import replace

    from harness.simulator.evaluate import rates_for

    return lambda options: rates_for(work, replace(machine, load=options), None, None)


def _table(found: list[Risen]) -> Any:
    from harness.core.units import format_duration

    headings = ("requests\na second", "cache\nhas", "deli-\nvered", "can-\ncelled", "first\ntoken",
                "p99", "prefetch")  # fmt: skip
    table = narrow_table("As the load rises", "server", headings, 16)
    for one in found:
        for at in one.loads:
            table.add_row(
                one.server, f"{at.requests_per_s:.3g}", f"{at.ceiling:.1%}", f"{at.delivered:.1%}",
                str(at.cancelled), format_duration(at.ttft_s.mean), format_duration(at.ttft_s.p99),
                format_duration(at.prefetch_s.mean) if at.prefetch_s else "-",
            )  # fmt: skip
    return table
