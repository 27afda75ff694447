"""``harness stores``: the modelled stores, their traces, read plans and fidelity."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import output
from harness.cli import trace as trace_group
from harness.cli.output import JsonFlag
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from harness.stores.slot_view import SlotLayout, SlotView
    from harness.trace.schema import DeviceMeta

StoreOption = Annotated[str, typer.Option(help="Store of workloads/stores, or a YAML file.")]
ModelOption = Annotated[
    str, typer.Option(help="Model of workloads/models, a YAML file, or a config.json.")
]
RequestsOption = Annotated[
    str, typer.Option(help="Traffic of workloads/requests, a YAML file, or a request trace.")
]
CapacityOption = Annotated[str, typer.Option(help="Size of the device.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Of synthetic traffic.")]
LanesOption = Annotated[
    int | None, typer.Option(min=1, help="Play recorded sessions, so many at once.")
]
BlockOption = Annotated[
    int | None, typer.Option(min=1, help="Tokens a block, where the format leaves it open.")
]


def register(app: typer.Typer) -> None:
    """Add the group to ``app``, and ``trace annotate`` to its group."""
    group = typer.Typer(no_args_is_help=True, help="KV stores as I/O: models of them, and checks.")
    group.command("list")(list_)
    group.command("trace")(trace)
    group.command("plan")(plan)
    group.command("compare")(compare)
    app.add_typer(group, name="stores")
    trace_group.group.command("annotate")(annotate)


def list_(as_json: JsonFlag = False) -> None:
    """List the stores, models and traffic that can be named.

    Example: harness stores list
    """
    from harness.stores.models import describe, load_model
    from harness.stores.names import workload_names
    from harness.stores.registry import load_store_spec
    from harness.stores.requests.load import describe_traffic

    stores = {name: load_store_spec(name).description for name in workload_names("stores")}
    traffic = {name: describe_traffic(name) for name in workload_names("requests")}
    models = [{"file": name, **describe(load_model(name))} for name in workload_names("models")]
    if as_json:
        output.print_json({"stores": stores, "requests": traffic, "models": models})
        return
    console = output.console()
    for title, entries in (("Stores", stores), ("Traffic", traffic)):
        console.print(_pairs(title, list(entries.items())))
    rows = [
        (
            str(model["file"]),
            f"{model['kv_bytes_per_token']:,.0f} B a token, {model['state_bytes']:,} B of state",
        )
        for model in models
    ]
    console.print(_pairs("Models", rows))


def trace(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The trace to write (Parquet).")],
    store: StoreOption = "lmcache-raw-block",
    requests: RequestsOption = "chat",
    model: ModelOption = "llama-3.1-8b",
    capacity: CapacityOption = "8GiB",
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many requests.")] = None,
    written: Annotated[
        str | None, typer.Option(help="Stop after so many bytes written, such as 40GiB.")
    ] = None,
    max_sectors_kb: Annotated[
        int, typer.Option(min=4, help="The device's largest request, KiB.")
    ] = 1280,
    max_segments: Annotated[int, typer.Option(min=1, help="Its largest number of segments.")] = 128,
    scattered: Annotated[
        bool,
        typer.Option("--scattered", help="Buffers in scattered pages: cut by --max-segments too."),
    ] = False,
    lanes: LanesOption = None,
    block_tokens: BlockOption = None,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Write a modelled store's I/O as a block trace, without a device.

    Calls are cut into the requests that the device's limits make of them.

    Example: harness stores trace t.parquet --store lmcache-raw-block --written 40GiB
    """
    from harness.core.units import parse_size
    from harness.stores.model_trace import DeviceLimits, write_model_trace
    from harness.stores.registry import make_store
    from harness.stores.requests.load import open_requests

    made = make_store(store, parse_size(capacity), model)
    with output.progress_bar("serving") as progress:
        rows = write_model_trace(
            made,
            open_requests(requests, seed=seed, lanes=lanes, block_tokens=block_tokens),
            out,
            limits=DeviceLimits(max_sectors_kb, max_segments),
            limit=limit,
            written_bytes=parse_size(written) if written else None,
            scattered=scattered or None,
            progress=progress,
        )
    data = {"trace": str(out), "requests": rows, "seed": seed, "store_report": made.report()}
    if as_json:
        output.print_json(data)
        return
    console = output.console()
    console.print(f"{rows:,} requests in {out}")
    if failed := made.report().get("failed_puts"):
        console.print(f"note: {failed:,} puts failed: the store was full", soft_wrap=True)


def plan(
    store: StoreOption = "lmcache-raw-block",
    requests: RequestsOption = "chat",
    model: ModelOption = "llama-3.1-8b",
    capacity: CapacityOption = "64GiB",
    after: Annotated[
        int, typer.Option(min=1, help="Serve so many requests first: the store's age.")
    ] = 1000,
    sample: Annotated[int, typer.Option(min=1, help="Plan the reads of so many requests.")] = 100,
    gap: Annotated[str, typer.Option(help="Read through gaps smaller than this.")] = "64KiB",
    largest: Annotated[str, typer.Option(help="Largest command.")] = "128MiB",
    layered: Annotated[
        bool, typer.Option("--layered", help="Layer by layer, as a prefill needs it.")
    ] = False,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Plan the reads that restore a request's prefix, at any moment of a store's life.

    Ranges are sorted by offset, neighbours joined, small gaps read through.

    Example: harness stores plan --store mooncake-bucket --after 2000 --layered
    """
    from harness.core.units import parse_size
    from harness.stores.models import load_model
    from harness.stores.registry import make_store
    from harness.stores.requests.load import open_requests

    kv = load_model(model)
    made = make_store(store, parse_size(capacity), kv)
    data = _plans(
        made, open_requests(requests, seed=seed), kv, after, sample, parse_size(gap),
        parse_size(largest), layered,
    )  # fmt: skip
    if as_json:
        output.print_json(data)
        return
    from harness.core.units import format_size

    rows = [
        ("requests planned", str(data["requests"])),
        ("ranges", f"{data['ranges']:,.1f} a request"),
        ("commands", f"{data['commands']:,.1f} a request"),
        ("wanted", format_size(data["bytes_wanted"])),
        ("read", format_size(data["bytes_read"])),
        ("amplification", f"{data['amplification']:.4f}"),
    ]
    output.console().print(_pairs(f"{store}, after {after} requests", rows))


def _plans(
    store: Any, requests: Any, model: Any, after: int, sample: int, gap: int, largest: int,
    layered: bool,
) -> dict[str, Any]:  # fmt: skip
    """Means over the requests that hit anything."""
    from harness.bench.plans import by_layer, make_plan
    from harness.stores.requests.form import take

    served = planned = ranges = commands = wanted = read = 0
    for batch in take(requests.batches(), after + sample):
        for row in range(len(batch)):
            ops = store.serve_batch(batch.part(row, row + 1))
            served += 1
            mine = ops[ops["op"] == 0]
            if served <= after or not len(mine):
                continue
            cut = by_layer(mine, store.name, model, store.chunk_tokens)
            made = make_plan(
                cut, "layers" if layered else "whole", gap_bytes=gap, read_bytes=largest
            )
            planned += 1
            ranges += len(mine)
            commands += len(made)
            wanted += made.wanted_bytes
            read += made.read_bytes
    if planned == 0:
        raise UsageError("no request after that hit anything on the device: serve more first")
    return {
        "requests": planned,
        "ranges": ranges / planned,
        "commands": commands / planned,
        "bytes_wanted": wanted,
        "bytes_read": read,
        "amplification": read / wanted,
        "gap_bytes": gap,
        "layered": layered,
    }


def compare(
    modelled: Annotated[Path, typer.Argument(help="Trace of the modelled store.")],
    real: Annotated[Path, typer.Argument(help="Trace of the real one.")],
    slot_bytes: Annotated[
        str | None, typer.Option(help="Header and payload; else from --store and --model.")
    ] = None,
    data_start: Annotated[str | None, typer.Option(help="Where slot 0 begins.")] = None,
    store: StoreOption = "lmcache-captured",
    model: ModelOption = "llama-3.1-8b",
    as_json: JsonFlag = False,
) -> None:
    """Compare a modelled slot store with a real one, figure by figure.

    Exits 1 if they differ by more than the tolerances, which the table shows.

    Example: harness stores compare model.parquet main.csv.gz --model llama-3.1-8b
    """
    from harness.stores.compare import compare_views
    from harness.stores.model_trace import limits_of

    layout = _layout(slot_bytes, data_start, store, model)
    (one, _), (two, device) = (_view(path, layout) for path in (modelled, real))
    result = compare_views(one, two, limits_of(device))
    if as_json:
        output.print_json(result.as_json())
    else:
        _print_comparison(result.as_json())
    if result.verdict != "MATCHES":
        raise typer.Exit(1)


def _layout(slot_bytes: str | None, data_start: str | None, store: str, model: str) -> SlotLayout:
    from harness.core.units import parse_size
    from harness.stores.lmcache_raw_block import RawBlockStore
    from harness.stores.registry import make_store
    from harness.stores.slot_view import SlotLayout

    if (slot_bytes is None) != (data_start is None):
        raise UsageError("give both --slot-bytes and --data-start, or neither")
    if slot_bytes is not None and data_start is not None:
        return SlotLayout(parse_size(data_start), parse_size(slot_bytes))
    made = make_store(store, 1 << 40, model)
    if not isinstance(made, RawBlockStore):
        raise UsageError(f"{store} has no slots with headers; stores compare knows raw_block only")
    return SlotLayout(made.data_start, made.slot_bytes)


def _view(path: Path, layout: SlotLayout) -> tuple[SlotView, DeviceMeta | None]:
    from harness.stores.slot_view import view_slots
    from harness.trace.source import open_source

    columns = ("ts_ns", "op", "lba", "bytes", "latency_ns")
    source = open_source(path)
    try:
        return view_slots(source.batches(columns), layout), source.meta.device
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _print_comparison(data: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("", "figure", "modelled", "real", "tolerance"):
        table.add_column(heading, justify="left" if heading in ("", "figure") else "right")
    marks = {True: "[green]ok[/green]", False: "[red]differs[/red]", None: "-"}
    for check in data["checks"]:
        unit = " of it" if check["relative"] else ""
        table.add_row(
            marks[check["ok"]], check["name"], f"{check['modelled']:.4g}", f"{check['real']:.4g}",
            f"{check['tolerance']:g}{unit}",
        )  # fmt: skip
    console = output.console()
    console.print(table)
    for note in data["notes"]:
        console.print(f"note: {note}", soft_wrap=True)
    console.print(data["verdict"])


def annotate(
    trace_path: Annotated[Path, typer.Argument(metavar="TRACE", help="A captured trace.")],
    objects: Annotated[Path, typer.Argument(help="The store's log (emit --objects).")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The annotated trace to write.")],
    as_json: JsonFlag = False,
) -> None:
    """Say which object of the store each request of a trace moved.

    Joins by time and extent. Prints, by class of object, bytes, reads a written byte and bytes
    written for one that was read, the share of what was overwritten that was read before, and that
    of what was written that was never read.

    Example: harness trace annotate t.parquet objects.parquet annotated.parquet
    """
    from harness.stores.annotate import annotate as run

    result = run(trace_path, objects, out).as_json()
    if as_json:
        output.print_json({**result, "trace": str(out)})
        return
    _print_annotation(result)


def _print_annotation(data: dict[str, Any]) -> None:
    from rich.table import Table

    from harness.core.units import format_size

    console = output.console()
    console.print(
        f"{data['matched']:,} of {data['requests']:,} requests matched, {data['unmatched']:,} not"
    )
    table = Table(box=None, pad_edge=False)
    headings = (
        "class", "written", "read", "reads a byte", "writes a hit", "read before lost",
        "never read",
    )  # fmt: skip
    for heading in headings:
        first = heading == "class"
        table.add_column(heading, justify="left" if first else "right", no_wrap=first)
    for name, figures in data["by_class"].items():
        table.add_row(
            name,
            format_size(figures["written_bytes"]),
            format_size(figures["read_bytes"]),
            _share(figures["reads_per_written_byte"], "{:.2f}"),
            _share(figures["writes_per_hit"], "{:.2f}"),
            _share(figures["read_before_overwrite_share"], "{:.1%}"),
            _share(figures["never_read_share"], "{:.1%}"),
        )
    console.print(table)


def _share(value: float | None, pattern: str) -> str:
    return "-" if value is None else pattern.format(value)


def _pairs(title: str, rows: list[tuple[str, str]]) -> Any:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    return table
