"""``harness replay``: drive a trace against a block device, and prove that it was on time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import output
from harness.cli.output import JsonFlag
from harness.cli.replay_choices import refuse_ignored, refuse_unused
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from harness.core.progress import Progress
    from harness.device.guard import Target
    from harness.replay.options import ReplayOptions
    from harness.replay.result import ReplayResult


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("replay")(replay)


def replay(
    ctx: typer.Context,
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="Trace file (Parquet).")],
    device: Annotated[
        str | None, typer.Option("--device", "-d", help="Block device to replay on.")
    ] = None,
    destroy: Annotated[
        str | None,
        typer.Option(help="The device's serial, WWID, backing file or size: it is overwritten."),
    ] = None,
    loop: Annotated[
        str | None, typer.Option(help="Replay on a loop device of its own, of this size.")
    ] = None,
    loop_dir: Annotated[
        Path | None, typer.Option(help="Where the loop device's file goes.", show_default="results")
    ] = None,
    femu: Annotated[
        str | None,
        typer.Option(help="Replay in a guest, on FEMU's drive of this profile (name or path)."),
    ] = None,
    ssh: Annotated[
        str | None,
        typer.Option(help="user@host[:port] that has --device, such as your own FEMU guest."),
    ] = None,
    scale: Annotated[
        str, typer.Option(help="With --femu: the drive at this size, such as 1/64.")
    ] = "1",
    keep: Annotated[
        str, typer.Option(help="With --scale: line-size or line-count stays that of the drive.")
    ] = "line-size",
    fills: Annotated[
        int, typer.Option(help="With --femu or --ssh: sequential fills before the replay.")
    ] = 0,
    mode: Annotated[
        str | None,
        typer.Option(
            help="timed, flat-out, or closed-loop (think times, dependencies).",
            show_default="timed; flat-out with --femu",
        ),
    ] = None,
    speed: Annotated[float, typer.Option(help="2: recorded times pass twice as fast.")] = 1.0,
    depth: Annotated[
        int | None, typer.Option(help="Requests in flight at most.", show_default="the queue's")
    ] = None,
    repeat: Annotated[int, typer.Option(help="Replay the trace so often.")] = 1,
    until: Annotated[
        str | None, typer.Option(help="Repeat until so much is written, such as 2TB.")
    ] = None,
    queues: Annotated[int, typer.Option(help="Threads and rings that share the requests.")] = 1,
    discard: Annotated[
        bool, typer.Option("--discard/--no-discard", help="Replay discards and write-zeroes.")
    ] = True,
    zero: Annotated[
        bool, typer.Option("--zero", help="Write zeros; drives may not store them at all.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check reads, and everything written afterwards.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the written content.")] = 1,
    stall_limit: Annotated[
        float, typer.Option(help="Give up when a request takes so many seconds.")
    ] = 30.0,
    realtime: Annotated[
        bool, typer.Option("--realtime/--no-realtime", help="Real-time priority for the engine.")
    ] = True,
    engine: Annotated[str, typer.Option(help="uring, or fio for comparison.")] = "uring",
    witness: Annotated[
        bool, typer.Option("--witness", help="Trace the replay and compare issue times.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 on LATE too.")] = False,
    results: Annotated[Path, typer.Option("--results", help="Folder for run folders.")] = Path(
        "results"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Replay a block trace: each request at its recorded time, in its recorded order.

    The verdict is FAITHFUL, LATE (all done, time missed) or WRONG; WRONG exits 1. Everything
    that the trace writes to is overwritten, so the device is named twice (--device, --destroy).
    Needs root to see who else uses the device and to set its queue.

    With --femu a guest is started whose NVMe drive is FEMU's (HARNESS_FEMU names its QEMU), and
    the drive's own counters give the write amplification. Without FEMU stock QEMU's drive stands
    in, and the output says that no WAF was measured. Root: the guest sees this host's files.

    Example: harness replay kv.parquet --device /dev/nvme0n1 --destroy S4EWNX0R123456

    Example: harness replay kv.parquet --ssh root@femu-vm --device /dev/nvme0n1 --destroy vSSD0

    Example: harness replay kv.parquet --femu 1tb-0.3dwpd --scale 1/64 --fills 2
    """
    if ssh is not None:
        refuse_unused(ctx, "--ssh")
        from harness.cli.replay_guest import run_remotely

        if not device or not destroy or femu or loop or mode not in (None, "flat-out"):
            raise UsageError("--ssh replays flat out and needs --device D and --destroy ID")
        run_remotely(trace, (ssh, device, destroy), (fills, discard), results, strict, as_json)
        return
    if femu is not None:
        refuse_unused(ctx, "--femu")
        from harness.cli.replay_guest import GuestWish, run_in_guest

        if device or loop or mode not in (None, "flat-out", "timed"):
            raise UsageError(
                "--femu replays flat-out or timed on a drive of its own: no --device or --loop"
            )
        wish = GuestWish(femu, scale, keep, fills, discard, mode == "timed")
        run_in_guest(trace, wish, results, strict, as_json)
        return
    from harness.core.units import parse_size
    from harness.replay.options import ReplayOptions

    options = ReplayOptions(
        mode=mode or "timed",
        speed=speed,
        depth=depth,
        repeat=repeat,
        until_bytes=None if until is None else parse_size(until),
        queues=queues,
        discard=discard,
        zero=zero,
        verify=verify,
        seed=seed,
        stall_limit_s=stall_limit,
        realtime=realtime,
        engine=engine,
    )
    if (device is None) == (loop is None):
        raise UsageError("say where: --device D --destroy ID, --loop SIZE, or --femu PROFILE")
    refuse_ignored(ctx, options, on_loop=loop is not None)
    place = _Place(device, destroy, loop, loop_dir or results)
    with output.progress_bar("replaying", enabled=not as_json) as progress:
        details = _in_folder(trace, place, options, results, (witness, strict), progress)
    if as_json:
        output.print_json(details)
    else:
        _print(details)
    if unfaithful(details, strict):
        raise typer.Exit(1)


def unfaithful(details: dict[str, Any], strict: bool) -> bool:
    """Whether the exit code is 1: WRONG, and LATE too where that counts."""
    verdict = details["fidelity"]["verdict"]
    return verdict == "WRONG" or (strict and verdict == "LATE")


class _Place:
    """The device to replay on: one that is named twice, or a loop device of our own."""

    def __init__(
        self, device: str | None, destroy: str | None, loop: str | None, folder: Path
    ) -> None:
        self._device, self._destroy, self._loop, self._folder = device, destroy, loop, folder

    def as_dict(self) -> dict[str, str | None]:
        return {"device": self._device, "loop": self._loop}

    def open(self, stack: Any) -> Target:
        from harness.core.units import parse_size
        from harness.device.guard import open_guarded
        from harness.device.loop import LoopDevice

        if self._device is not None:
            opened: Target = stack.enter_context(open_guarded(self._device, destroy=self._destroy))
            return opened
        assert self._loop is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        made = stack.enter_context(LoopDevice(parse_size(self._loop), self._folder))
        own: Target = stack.enter_context(open_guarded(made.path, own=True))
        return own


def _in_folder(
    trace: Path,
    place: _Place,
    options: ReplayOptions,
    results: Path,
    judging: tuple[bool, bool],
    progress: Progress,
) -> dict[str, Any]:
    """Replay within a run folder; after Ctrl-C it stays ``.partial``, with what was done.

    ``judging``: whether the probe is a witness, and whether LATE fails too.
    """
    witness, strict = judging
    from contextlib import ExitStack

    from harness.core.files import write_json
    from harness.core.runs import RunFolder
    from harness.replay.result import ReplayInterrupted
    from harness.trace.parquet import open_trace

    open_trace(trace)  # refuse a foreign file before there is a folder
    config = {"trace": str(trace), **place.as_dict(), **options.as_dict()}
    with ExitStack() as stack:
        target = place.open(stack)
        run = stack.enter_context(RunFolder(results, "replay", trace.stem, config))
        try:
            if witness:
                details = _witnessed(trace, target, options, run.path, progress)
            else:
                details = _plain(trace, target, options, progress).details
        except ReplayInterrupted as interruption:
            write_json(run.path / "replay.json", interruption.result.details)
            run.add(fidelity=interruption.result.fidelity)
            raise
        details = {**details, "run": str(run.final)}
        write_json(run.path / "replay.json", details)
        run.add(fidelity=details["fidelity"], device=details["device"])
        run.exit_code = int(unfaithful(details, strict))
    return details


def _plain(trace: Path, target: Target, options: ReplayOptions, progress: Progress) -> ReplayResult:
    from harness.replay.run import replay as run_replay

    return run_replay(trace, target, options, progress=progress)


def _witnessed(
    trace: Path, target: Target, options: ReplayOptions, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Replay under the probe, then compare what both saw."""
    from harness.capture.session import Capture
    from harness.replay.witness import compare

    seen = folder / "witness.parquet"
    with Capture(target.path, seen, command=f"replay of {trace.name}"):
        result = _plain(trace, target, options, progress)
    started_ns = result.details["engine"].get("started_ns")
    found = compare(trace, seen, options, target.size_bytes, started_ns)
    return {**result.details, "witness": found}


_STYLES = {"FAITHFUL": "green", "LATE": "yellow", "WRONG": "red"}


def _print(details: dict[str, Any]) -> None:
    from rich.markup import escape

    from harness.replay.tables import summary_table

    console = output.console()
    fidelity = details["fidelity"]
    verdict = fidelity["verdict"]
    console.print(f"[bold {_STYLES[verdict]}]{verdict}[/]")
    for reason in fidelity["reasons"]:
        console.print(f"  {escape(reason)}")
    console.print(summary_table(details))
    for note in details["notes"]:
        console.print(f"note: {escape(note)}", soft_wrap=True)
    console.print(f"run folder: {escape(details['run'])}", soft_wrap=True)
