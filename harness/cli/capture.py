"""``harness capture``: trace what reaches a block device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli import output
from harness.cli.output import JsonFlag
from harness.core.errors import MeasurementError, UsageError


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("capture")(capture)


def capture(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- CMD...]", help="Trace while this runs.")
    ] = None,
    device: Annotated[
        list[str] | None, typer.Option("--device", help="Block device or partition; repeatable.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Trace file; by default in a new run folder.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.0, help="Trace for so long.")
    ] = None,
    pid: Annotated[
        list[int] | None,
        typer.Option("--pid", help="Only this process and its children; repeatable."),
    ] = None,
    cgroup: Annotated[
        str | None, typer.Option("--cgroup", help="Only this cgroup v2 folder and those below.")
    ] = None,
    ops: Annotated[
        str, typer.Option("--ops", help="Only these operations, letters of RWDFZN.")
    ] = "",
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="USER@HOST", help="Trace a device there, over SSH."),
    ] = None,
    bios: Annotated[
        bool, typer.Option("--bios", help="Also bios, before splitting, in OUT.bios.parquet.")
    ] = False,
    ring_mib: Annotated[
        float, typer.Option("--ring-mib", help="Kernel buffer between probe and reader.")
    ] = 32.0,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            help="Embedded store: a name in workloads/stores, a YAML file, or lmcache, the real.",
        ),
    ] = None,
    requests: Annotated[
        str | None,
        typer.Option("--requests", help="Its traffic: a name in workloads/requests, or a trace."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the embedded store's traffic.")] = 1,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 on the verdict UNKNOWN too.")
    ] = False,
    results: Annotated[Path, typer.Option("--results", help="Folder for run folders.")] = Path(
        "results"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Trace what reaches a block device, and say whether anything was missed.

    Traces the life of a command, or with --pid, --cgroup or --seconds what is running already;
    without any of them it goes on until Ctrl-C. With no --device it traces the embedded KV store
    on a loop device of its own; --store lmcache runs the real LMCache there, for a minute or
    --seconds, checks each payload that comes back, and leaves its log of keys beside the trace.

    Loading the probe needs root: run as root, or as a user whom sudo asks for no password; then
    the probe alone runs as root. The command always runs as whoever runs harness (under sudo
    that is root), and here, also with --host.

    Exits 1 if the verdict is LOSSY (UNKNOWN too with --strict) or the command failed.

    Example: harness capture --device /dev/nvme0n1 --out kv.parquet -- python serve.py
    """
    from harness.capture.command import check_command
    from harness.capture.job import CaptureJob, capture_in_folder, capture_to
    from harness.capture.options import TraceOptions

    if command and seconds is not None:
        raise UsageError("--seconds and a command exclude each other: the command sets the time")
    if not device and (command or pid or cgroup or ops or host or bios):
        raise UsageError("no device to trace", fix="name one: --device /dev/nvme0n1")
    if device and (store or requests):
        raise UsageError(
            "--store and --requests run an embedded store on a loop device of its own",
            fix="on a device of yours: harness capture --device D -- harness emit --device D …",
        )
    if command:
        check_command(command)
    options = (
        TraceOptions(tuple(device), ops, tuple(pid or ()), cgroup, bios, ring_mib=ring_mib)
        if device
        else None
    )
    job = CaptureJob(
        options, tuple(command or ()), seconds, seed, host, store, requests, strict, as_json
    )
    with output.progress_bar("capturing", enabled=not command) as progress:
        traced = (
            capture_to(job, out, progress) if out else capture_in_folder(job, results, progress)
        )
    if as_json:
        output.print_json(traced.details)
    else:
        _print(traced.details)
    if traced.stopped is not None:
        raise traced.stopped
    if traced.status:
        raise MeasurementError(f"the traced command failed: exit status {traced.status}")
    if not traced.details["complete"]:
        raise MeasurementError("the probe died; the trace holds what came before that")
    if traced.failed(strict):
        raise typer.Exit(1)


_STYLES = {"LOSSLESS": "green", "LOSSY": "red", "UNKNOWN": "yellow"}


def _print(details: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from harness.core.units import format_size

    console = output.console()
    verdict = details["verdict"]
    shown = f"LOSSY({details['lost']})" if verdict == "LOSSY" else verdict
    console.print(
        f"[bold {_STYLES[verdict]}]{shown}[/]: {details['requests']:,} requests in "
        f"{details['duration_s']:.1f} s, {details['completions_lost']} completions lost"
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("op", "requests", "bytes"):
        table.add_column(heading, justify="left" if heading == "op" else "right")
    for letter, sums in details["operations"].items():
        table.add_row(letter, f"{sums['requests']:,}", format_size(sums["bytes"]))
    if details["operations"]:
        console.print(table)
    for note in details["notes"]:
        console.print(f"note: {escape(note)}", soft_wrap=True)
    deferred = details.get("deferred", {})
    if deferred.get("peak_bytes"):
        console.print(
            f"up to {format_size(deferred['peak_bytes'])} of records waited for a busy machine; "
            f"the trace was whole {deferred['seconds_after_end']:.1f} s after the end"
        )
    console.print(f"trace: {escape(details['trace'])}", soft_wrap=True)
    if "store" in details:
        _print_store(details)


def _print_store(details: dict[str, Any]) -> None:
    """What a real store did, and how to compare it with its model."""
    from harness.core.units import format_size

    console = output.console()
    store, report = details["store"], details["store"]["store_report"]
    done = [f"{store['requests']} requests at 1/{report['scale_factor']} of their length"]
    if "chunks_hit" in report:  # vLLM's server does not tell
        done.append(f"{report['chunks_hit']} of {report['chunks_wanted']} chunks hit")
        done.append(f"{report['evicted']} evicted")
    done.append(f"{format_size(store['bytes_verified'])} read back as stored")
    if per_token := store["bytes_written_per_new_token"]:
        done.append(f"{per_token:,.0f} B written a new token")
    console.print(f"{store['store']}: {', '.join(done)}", soft_wrap=True)
    trace = Path(details["trace"])
    console.print(f"its log and set-up: {trace.parent / trace.stem}-store/", soft_wrap=True)
