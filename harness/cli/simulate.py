"""``harness simulate``: cache tiers under a policy, with measured constants and true wear."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from harness.cli import output
from harness.cli.output import JsonFlag
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from harness.simulator.corpus import Corpus
    from harness.simulator.evaluate import Answer, Machine
    from harness.simulator.point import Point


class _TraceFirst(TyperGroup):
    """``harness simulate TRACE …`` is ``harness simulate run TRACE …``."""

    default = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args.insert(0, self.default)
        rest: list[str] = super().parse_args(ctx, args)
        return rest


group = typer.Typer(
    cls=_TraceFirst,
    no_args_is_help=True,
    help="A DRAM + SSD cache under a policy: misses, wear, loads. `simulate TRACE` plays one.",
)


def register(app: typer.Typer) -> None:
    """Add the group to ``app``; the commands about many runs are in ``simulate_many``."""
    from harness.cli import simulate_loads, simulate_many

    group.command("run")(run)
    group.command("policies")(policies)
    simulate_many.register(group)
    simulate_loads.register(group)
    app.add_typer(group, name="simulate")


TraceArgument = Annotated[
    str,
    typer.Argument(
        metavar="TRACE", help="Request trace, or traffic of workloads/requests with --limit."
    ),
]
ModelOption = Annotated[str, typer.Option("--model", "-m", help="Model of workloads/models.")]
DramOption = Annotated[str, typer.Option("--dram", help="Size of the DRAM tier.")]
SsdOption = Annotated[str, typer.Option("--ssd", help="Size of the SSD tier; 0: none.")]
LanesOption = Annotated[
    int | None, typer.Option(min=1, help="Recorded sessions that live at once (Claude Code: 20).")
]
SeedOption = Annotated[
    int | None, typer.Option(help="Orders recorded sessions at random; makes synthetic traffic.")
]
LimitOption = Annotated[int | None, typer.Option(min=1, help="First requests only.")]
CheckpointOption = Annotated[
    str, typer.Option(help="States are made at: end, round, branch, every:M or all-turns.")
]
StructureOption = Annotated[
    str | None,
    typer.Option(
        help="leaf: residency stays closed under prefixes; free: any object may go.",
        show_default="what suits the policy",
    ),
]
HitOption = Annotated[str, typer.Option(help="An object hit on the SSD: stay, copy or move.")]
ReplaysOption = Annotated[int, typer.Option(min=1, help="Passes with fresh keys, cache warm.")]
WarmupOption = Annotated[
    float, typer.Option(min=0.0, max=0.99, help="Share of the requests not counted.")
]
ConstantsOption = Annotated[
    str | None,
    typer.Option(
        help="calibration (the file's alone), filled (published where it has none) or seed"
        " (published).",
        show_default="calibration, if there is a file",
    ),
]
CalibrationOption = Annotated[
    Path | None, typer.Option("--calibration", "-c", help="Calibration file: bandwidths, WAF.")
]
ProfileOption = Annotated[
    str | None, typer.Option("--profile", "-p", help="Drive of femu/devices that is worn.")
]
SchedulerOption = Annotated[
    str, typer.Option(help="one-queue, two-queues, or prefetch (staged, cancelled when late).")
]
PathOption = Annotated[str, typer.Option("--path", help="SSD to GPU: staged or direct.")]
RateOption = Annotated[
    float | None,
    typer.Option("--load", help="Requests a second.", show_default="the trace's clock"),
]
PrefillOption = Annotated[
    float | None, typer.Option(help="Prefill, tokens a second.", show_default="the published 60000")
]
GpuPriceOption = Annotated[
    float | None, typer.Option(help="Price of the GPU; with the drive's it gives the cost.")
]
DaysOption = Annotated[
    float | None,
    typer.Option("--days", min=0.0, help="Days that one pass stands for, in place of its clock."),
]
BudgetOption = Annotated[
    float, typer.Option(help="Seconds for each wear measurement; not steady then is said.")
]
ResultsOption = Annotated[Path, typer.Option("--results", help="Folder for run folders.")]


class Traffic(NamedTuple):
    """The trace and how it is played."""

    trace: str
    lanes: int | None
    seed: int | None
    limit: int | None


def run(
    trace: TraceArgument,
    model: ModelOption = "kimi-k3",
    policy: Annotated[
        str, typer.Option("--policy", help="Name (see `simulate policies`) or file of hooks.")
    ] = "lru",
    param: Annotated[
        list[str] | None,
        typer.Option("--param", help="Parameter of the policy, NAME=VALUE; may be repeated."),
    ] = None,
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
    last_token: Annotated[
        bool, typer.Option("--last-token", help="One token of every prompt is always computed.")
    ] = False,
    calibration: CalibrationOption = None,
    constants: ConstantsOption = None,
    profile: ProfileOption = None,
    layout: Annotated[
        list[str] | None,
        typer.Option("--layout", help="Store in whose layout the SSD is written; may be repeated."),
    ] = None,
    scheduler: SchedulerOption = "one-queue",
    path: PathOption = "staged",
    gpus: Annotated[int, typer.Option(min=1, help="Servers that prefill.")] = 1,
    layers: Annotated[
        int, typer.Option(min=0, help="Layers of a two-layer window; 0: hops do not overlap.")
    ] = 0,
    load: RateOption = None,
    gpu_room: Annotated[
        str | None, typer.Option(help="With two-queues: GPU memory for what is prefetched.")
    ] = None,
    staging: Annotated[
        str | None, typer.Option(help="With prefetch: size of the staging buffer.")
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(help="With prefetch: seconds until a restore is cancelled.")
    ] = None,
    prefill: PrefillOption = None,
    gpu_usd_per_hour: GpuPriceOption = None,
    days: DaysOption = None,
    budget: BudgetOption = 300.0,
    results: ResultsOption = Path("results"),
    as_json: JsonFlag = False,
) -> None:
    """Play a request trace over DRAM and SSD under one policy, and say what follows.

    Misses, bytes written, and with a drive and a layout the WAF and lifetimes of those very
    writes; loads and costs with the constants of a calibration file. What is not known is said.

    Example: harness simulate conversation.jsonl --policy gandalf --param alpha=4 --constants seed

    Example: harness simulate run claude-code.tar.zst --lanes 20 --policy lru -c calibration.json
    --profile 1tb-0.3dwpd --layout lmcache-raw-block --layout session-contiguous
    """
    from harness.core.files import write_json
    from harness.core.runs import RunFolder
    from harness.core.units import parse_size
    from harness.simulator.evaluate import evaluate
    from harness.simulator.loading.options import LoadOptions

    queues = valid(
        LoadOptions, scheduler=scheduler, path=path, gpus=gpus, layers=layers,
        gpu_bytes=gpu_room, staging_bytes=staging, deadline_s=deadline, requests_per_s=load,
    )  # fmt: skip
    machine = machine_of(
        (calibration, constants), (profile, tuple(layout or ())), queues,
        (prefill, gpu_usd_per_hour), (days, budget),
    )  # fmt: skip
    traffic = Traffic(trace, lanes, seed, limit)
    corpus = corpus_of(traffic)
    point = point_of(
        corpus, traffic, model, policy=policy, parameters=parameters(param),
        dram_bytes=parse_size(dram), ssd_bytes=parse_size(ssd), checkpoint=checkpoint,
        structure=structure, on_ssd_hit=on_ssd_hit, replays=replays, warmup=warmup,
        last_token=last_token,
    )  # fmt: skip
    with RunFolder(results, "simulate", f"{corpus.name}-{policy}", point.model_dump()) as folder:
        with output.progress_bar("simulate", enabled=not as_json) as progress:
            answer = evaluate(corpus, point, machine, progress)
        record = {**answer.model_dump(mode="json"), "run": str(folder.final)}
        write_json(folder.path / "simulate.json", record)
    if as_json:
        output.print_json(record)
    else:
        show(answer)
        output.console().print(f"run folder: {record['run']}", soft_wrap=True)


def policies(as_json: JsonFlag = False) -> None:
    """List the policies with their parameters and defaults.

    Example: harness simulate policies
    """
    from rich.table import Table

    from harness.simulator.catalogue import catalogue

    known = catalogue()
    if as_json:
        output.print_json(known)
        return
    table = Table("policy", "what it does", "parameters", title="Policies")
    for name, entry in known.items():
        settings = ", ".join(f"{key}={value}" for key, value in entry["parameters"].items())
        table.add_row(name, entry["description"], settings)
    output.console().print(table)


def parameters(given: list[str] | None) -> dict[str, Any]:
    """``alpha=4`` -> {"alpha": 4}: values as YAML reads them; UsageError without ``=``."""
    import yaml

    found: dict[str, Any] = {}
    for text in given or []:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"--param {text!r}: expected NAME=VALUE, such as alpha=4")
        found[name.strip().replace("-", "_")] = yaml.safe_load(value)
    return found


def valid(model: Any, **values: Any) -> Any:
    """A strict model of options; UsageError names the option that is wrong."""
    from harness.core.config import validate

    return validate({k: v for k, v in values.items() if v is not None}, model, "options")


def corpus_of(traffic: Traffic) -> Corpus:
    """The trace as a prefix tree, from the cache if it was read before."""
    from harness.simulator.corpus import load_corpus

    return load_corpus(traffic.trace, lanes=traffic.lanes, seed=traffic.seed, limit=traffic.limit)


def point_of(corpus: Corpus, traffic: Traffic, model: str, **facts: Any) -> Point:
    """The point of a corpus; UsageError names what is wrong."""
    from harness.core.config import validate
    from harness.simulator.point import Point, trace_id
    from harness.simulator.policies import find_policy

    if facts["structure"] is None:
        facts["structure"] = find_policy(facts["policy"], facts["parameters"]).usual_structure
    return validate(
        {
            "trace": trace_id(corpus.name, corpus.content_hash),
            "lanes": traffic.lanes,
            "seed": traffic.seed,
            "model": model,
            "block_tokens": corpus.block_tokens,
            **facts,
        },
        Point,
        "options",
    )


def machine_of(
    figures: tuple[Path | None, str | None],
    drive: tuple[str | None, tuple[str, ...]],
    queues: Any,
    prices: tuple[float | None, float | None],
    wearing: tuple[float | None, float | None],
) -> Machine:
    """(calibration, constants), (profile, layouts), queues, (prefill, GPU price), (days of a pass,
    seconds for a wear) as a machine."""
    from harness.calibrate.reader import load
    from harness.core.profiles import load_profile
    from harness.simulator.evaluate import Machine
    from harness.simulator.wearing.wear import How

    path, constants = figures
    constants = constants or "calibration"
    if constants not in ("calibration", "filled", "seed"):
        raise UsageError(f"--constants is calibration, filled or seed, not {constants!r}")
    days, budget = wearing
    return Machine(
        constants=constants,  # type: ignore[arg-type]
        calibration=load(path) if path and constants != "seed" else None,
        profile=load_profile(drive[0]) if drive[0] else None,
        layouts=drive[1],
        load=queues,
        prefill=prices[0],
        gpu_usd_per_hour=prices[1],
        how=How(
            duration_s=days * 86400 if days else None,
            budget_s=budget,
        ),
    )


def show(answer: Answer) -> None:
    """The answer for a person."""
    from rich.markup import escape
    from rich.table import Table

    from harness.core.units import format_duration, format_size

    console = output.console()
    table = Table("", "value", show_header=False, title=escape(f"{answer.label} on {answer.trace}"))
    table.add_row("miss ratio (chunks)", f"{answer.miss:.4f}")
    table.add_row("behind no state", f"{answer.stranded / max(answer.references, 1):.4f}")
    table.add_row("requests, chunks", f"{answer.requests}, {answer.references}")
    written = answer.written_bytes
    table.add_row("written: full attention", format_size(written["full"]))
    table.add_row("written: states", format_size(written["state"]))
    for tier, hits in answer.hits.items():
        table.add_row(f"hits in {tier.upper()}", f"{hits['full']} chunks, {hits['state']} states")
    table.add_row("load, mean", format_duration(answer.load_s["mean"]))
    table.add_row("load, p99", format_duration(answer.load_s["p99"]))
    if answer.tuned:
        value, requests = answer.tuned["value"], answer.tuned["requests"]
        table.add_row("tuned", f"to {value:g} after {requests:.0f} requests")
    if answer.cost:
        table.add_row("cost of 1000 requests", f"{answer.cost['total']:.2f} USD")
    console.print(table)
    if answer.rows:
        console.print(drive_table(list(answer.rows)))
    show_sources([answer])


def show_sources(answers: list[Answer]) -> None:
    """Where the constants come from, and why figures are absent, each reason once."""
    console = output.console()
    sources = ", ".join(f"{name} {source}" for name, source in answers[0].constants.items())
    console.print(f"constants: {sources}", soft_wrap=True, markup=False)
    for reason in dict.fromkeys(reason for answer in answers for reason in answer.absent):
        console.print(f"note: {reason}", soft_wrap=True, markup=False)


def drive_table(rows: list[Any]) -> Any:
    """Rows of policy x layout x drive as a rich table, narrow enough for 80 columns."""
    from harness.core.units import format_duration, format_size

    headings = ("to drive", "WAF", "DWPD", "life,\nWAF 1", "life", "load", "USD\n/1000")
    table = narrow_table("Policy x layout x drive", "policy, layout,\ndrive", headings, 20)
    for row in rows:
        table.add_row(
            f"{row.policy}, {row.layout}, {row.drive}", format_size(row.device_bytes),
            f"{_number(row.waf, '.2f')}\n{row.waf_kind}" if row.waf is not None else "-",
            _number(row.required_dwpd, ".2f"), _days(row.waf1_days), _days(row.paper_days),
            "-" if row.load_mean_s is None else format_duration(row.load_mean_s),
            _number(row.cost_usd, ".2f"),
        )  # fmt: skip
    return table


def narrow_table(title: str, first: str, headings: tuple[str, ...], width: int) -> Any:
    """A table whose numbers are never cut: its first column of ``width`` is the one that wraps."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(first, min_width=width)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _days(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} d"
