"""``harness emit``: be a KV store on a real block device, or run a real one there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import output
from harness.cli.output import JsonFlag
from harness.cli.stores import BlockOption, LanesOption
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from harness.device.guard import Target
    from harness.stores.emission import Emission
    from harness.stores.emit import EmitResult


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("emit")(emit)


def emit(
    store: Annotated[
        str, typer.Option(help="Store of workloads/stores, or a YAML file.")
    ] = "lmcache-raw-block",
    requests: Annotated[
        str, typer.Option(help="Traffic of workloads/requests, a YAML file, or a request trace.")
    ] = "chat",
    model: Annotated[
        str, typer.Option(help="Model of workloads/models, a YAML file, or a config.json.")
    ] = "llama-3.1-8b-tp8",
    device: Annotated[Path | None, typer.Option(help="Block device to write to.")] = None,
    destroy: Annotated[
        str | None, typer.Option(help="The device's serial (or WWID, backing file, size), again.")
    ] = None,
    loop: Annotated[
        str | None, typer.Option(help="Instead of --device: a loop device of this size, our own.")
    ] = None,
    scratch: Annotated[Path, typer.Option(help="Folder for the loop device's data.")] = Path("."),
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many requests.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="Take no new request after so long.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the traffic and of the payloads.")] = 0,
    timed: Annotated[
        bool, typer.Option("--timed", help="Open loop: requests at the trace's own times.")
    ] = False,
    speed: Annotated[
        float, typer.Option(min=1e-3, help="With --timed: so many times as fast.")
    ] = 1.0,
    lanes: LanesOption = None,
    block_tokens: BlockOption = None,
    objects: Annotated[
        Path | None, typer.Option(help="Write which object each call moved (Parquet).")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Leave a run folder with all of it there.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Issue a KV store's I/O to a block device: stamped, every read verified.

    Runs as fast as the device lets the store's own workers, or with --timed at the trace's clock.
    I/O is direct, but for stores that are buffered themselves. The stores lmcache and lmcache-uring
    are the real LMCache (make lmcache installs it), vllm is vLLM with it (make vllm); for them the
    trace is scaled to the device.
    Exits 1 if anything read back is not what was written.

    Example: harness emit --store lmcache-raw-block --requests chat --loop 1536MiB --seconds 20
    """
    from harness.stores.emission import Emission
    from harness.stores.emit import Pace

    if speed != 1.0 and not timed:
        raise UsageError("--speed is of the trace's clock", fix="add --timed")
    wanted = Emission(
        store, requests, model, seed, limit, seconds, Pace(speed) if timed else None, lanes,
        block_tokens,
    )  # fmt: skip
    wanted.check()
    with _target(device, destroy, loop, scratch) as target:
        result, folder = _emit(wanted, target, objects, results)
    if as_json:
        output.print_json({**result.as_json(), "run": folder})
    else:
        _print(result)
        if folder:
            output.console().print(f"run: {folder}", soft_wrap=True)
    if not result.verified:
        raise typer.Exit(1)


def _emit(
    wanted: Emission, target: Target, objects: Path | None, results: Path | None
) -> tuple[EmitResult, str | None]:
    """The result, and the run folder if there is to be one."""
    from dataclasses import asdict, replace

    from harness.core.runs import RunFolder
    from harness.stores.emission import run_emission

    with output.progress_bar("emitting") as progress:
        if results is None:
            return run_emission(wanted, target, objects=objects, progress=progress), None
        with RunFolder(results, "emit", wanted.store, asdict(wanted)) as run:
            result = run_emission(
                wanted, target, folder=run.path, objects=objects, progress=progress
            )
            result = replace(result, objects=str(objects or run.final / "objects.parquet"))
            run.add(emit=result.as_json())
            run.exit_code = int(not result.verified)
    return result, str(run.final)


def _target(
    device: Path | None, destroy: str | None, loop: str | None, scratch: Path
) -> AbstractContextManager[Target]:
    from contextlib import contextmanager

    from harness.core.units import parse_size
    from harness.device.guard import open_guarded
    from harness.device.loop import LoopDevice

    if (device is None) == (loop is None):
        raise UsageError("give either --device (with --destroy) or --loop SIZE")
    if device is not None:
        return open_guarded(device, destroy=destroy)

    @contextmanager
    def own() -> Iterator[Target]:
        with (
            LoopDevice(parse_size(loop or ""), scratch) as made,
            open_guarded(made.path, own=True) as target,
        ):
            yield target

    return own()


def _print(result: EmitResult) -> None:
    from rich.table import Table

    from harness.core.units import format_duration, format_size

    data, report = result.as_json(), result.report
    table = Table(box=None, show_header=False, pad_edge=False)
    rate = data["bytes"] / max(result.duration_s, 1e-9)
    per_token = data["bytes_written_per_new_token"]
    for label, value in (
        ("store", f"{result.store} on {result.device}"),
        ("requests", f"{result.served} of {result.requests}, seed {result.seed}"),
        ("written", f"{format_size(data['bytes_written'])} in {report['writes']['ops']} calls"),
        ("read", f"{format_size(data['bytes_read'])} in {report['reads']['ops']} calls"),
        ("took", f"{format_duration(result.duration_s)}, {format_size(rate)}/s"),
        ("loop", _loop(result)),
        (
            "I/O",
            "buffered, as the store is: the page cache serves reads"
            if result.buffered
            else f"direct, at most {data['max_depth']} calls at once",
        ),
        ("hit", f"{report['chunks_hit']} of {report['chunks_wanted']} chunks"),
        ("evicted", f"{report['evicted']} in {report['evictions']} rounds"),
        ("failed puts", str(report["failed_puts"])),
        ("per new token", "no new token" if per_token is None else f"{per_token:.0f} B written"),
        ("verified", _verdict(result)),
    ):
        table.add_row(label, value)
    output.console().print(table)


def _loop(result: EmitResult) -> str:
    if result.pace is None:
        return "closed: the next request when the store takes it"
    return f"open, {result.pace.speed:g} times as fast; at most {result.behind_s:.3f} s behind"


def _verdict(result: EmitResult) -> str:
    from harness.core.units import format_size

    checked = format_size(result.issued.verified_bytes)
    if result.verified:
        return f"[green]{checked}, all as written[/green]"
    return f"[red]WRONG: {result.issued.wrong_sectors} sectors of {checked}[/red]"
