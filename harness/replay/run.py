"""Replay a trace on a device, and say how faithful that was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.core.errors import UsageError
from harness.core.progress import Progress, quiet
from harness.device.counter_reader import read_counters
from harness.device.guard import Target
from harness.device.info import BlockStat, device_info, is_present, parent_disk, read_stat
from harness.device.queue import queue_settings
from harness.replay.assemble import assemble
from harness.replay.fio import run_fio
from harness.replay.fio_result import assemble_fio
from harness.replay.options import ReplayOptions
from harness.replay.plan import largest_commands, limits_of, refuse_impossible
from harness.replay.result import ReplayInterrupted, ReplayResult
from harness.replay.rig import size_up
from harness.replay.session import Session
from harness.replay.survey import Survey, survey
from harness.trace.parquet import Trace, open_trace


def replay(
    trace_path: str | Path,
    target: Target,
    options: ReplayOptions | None = None,
    *,
    mode: str = "timed",
    speed: float = 1.0,
    depth: int | None = None,
    progress: Progress = quiet,
) -> ReplayResult:
    """Drive the trace at ``trace_path`` against ``target``, opened by the device guard.

    ``options`` say everything; without them ``mode``, ``speed`` and ``depth`` do.

    Raises
    ------
    UsageError
        The trace does not fit the device, or the options make no sense for it.
    MachineError
        No io_uring, no permission for the queue's settings, no memory for buffers.
    ReplayInterrupted
        SIGINT or SIGTERM; its ``result`` is what was done until then.
    """
    options = options or ReplayOptions(mode=mode, speed=speed, depth=depth)
    if target.read_only:
        raise UsageError(f"{target.path} is open for reading only")
    trace = open_trace(trace_path)
    found = check(trace, target, options)
    engine = _by_fio if options.engine == "fio" else _by_ring
    with queue_settings(parent_disk(target.name)) as settings:
        # Without a scheduler a queue holds fewer requests than it did with one.
        settled = replace(target.info, nr_requests=device_info(target.path).nr_requests)
        target = replace(target, info=settled)
        before = _counters(target)
        details = engine(trace, target, found, options, progress)
        after = _counters(target)
    details["counters"] = {"before": _plain(before), "after": _plain(after)}
    details["queue_settings_before"] = settings
    result = _result(details)
    if result.details["interrupted"]:
        raise ReplayInterrupted(result)
    return result


def check(trace: Trace, target: Target, options: ReplayOptions) -> Survey:
    """Everything that can be refused before the first write."""
    if options.mode != "flat-out" and not trace.meta.has_clock:
        raise UsageError(
            f"{trace.path} has no times, only an order", fix="replay it with --mode flat-out"
        )
    found = survey(trace, target.size_bytes, target.logical_block, discard=options.discard)
    impossible = refuse_impossible(found, target.info)
    if impossible:
        raise UsageError(impossible, fix="leave discards out: --no-discard")
    return found


def _by_ring(
    trace: Trace, target: Target, found: Survey, options: ReplayOptions, progress: Progress
) -> dict[str, Any]:
    session = Session(trace, target, found, options, progress)
    before = read_stat(target.name)
    session.run()
    moved = read_stat(target.name).since(before) if is_present(target.name) else None
    session.read_back()
    return assemble(session, trace, target, found, moved)


def _by_fio(
    trace: Trace, target: Target, found: Survey, options: ReplayOptions, progress: Progress
) -> dict[str, Any]:
    reads, writes = largest_commands(found, limits_of(target.info, huge_pages=True))
    depth = size_up(options, target.info, reads, writes).depth
    run = run_fio(trace, target, found, options, depth, progress)
    return assemble_fio(run, trace, target, found, options)


def _result(details: dict[str, Any]) -> ReplayResult:
    return ReplayResult(
        verdict=details["fidelity"]["verdict"],
        requests=details["requests"],
        bytes=details["bytes"],
        errors=details["errors"],
        details=details,
    )


def _counters(target: Target) -> dict[str, Any]:
    """The block layer's counters of the device, and the drive's own where it is NVMe."""
    if not is_present(target.name):
        return {"block": None, "drive": None}
    drive = read_counters(target.path).to_json() if target.name.startswith("nvme") else None
    return {"block": read_stat(target.name), "drive": drive}


def _plain(counters: dict[str, Any]) -> dict[str, Any]:
    block = counters["block"]
    return {**counters, "block": block.as_dict() if isinstance(block, BlockStat) else None}
