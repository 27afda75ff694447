"""Replay a block trace on a guest's drive, and say what the drive counted meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import MeasurementError
from harness.core.ops import Op
from harness.core.progress import Progress, quiet
from harness.device.counter_reader import read_counters
from harness.device.counters import delta
from harness.device.guest.machine import Guest
from harness.device.guest.ops import OP_LIST_DTYPE, OpsMachine, drive_ops
from harness.device.guest.plan import GuestPlan
from harness.device.guest.remote import RemoteDrive
from harness.device.guest.trace_ops import TraceOps, trace_ops
from harness.trace.parquet import open_trace

CHUNK_OPS = 200_000
"""Operations sent at a time; between chunks the drive is drained, which changes no counter."""

_FILL_BYTES = 256 << 10


def replay_in_guest(
    plan: GuestPlan,
    trace_path: Path,
    *,
    fills: int = 0,
    discard: bool = True,
    console: Path | None = None,
    memory_bytes: int = 1536 << 20,
    progress: Progress = quiet,
) -> dict[str, Any]:
    """Send the trace flat out, in its order, to the drive of ``plan`` in a fresh guest.

    ``fills``: sequential fills of the namespace before (a WAF means little on an empty drive);
    the counters are read after them. Returns what ``harness replay --femu --json`` holds.

    Raises
    ------
    UsageError
        The trace does not fit the drive.
    MachineError, GuestError
        The guest cannot be started, or died; with cause and cure.
    """
    size = plan.drive.size_bytes
    listed = trace_ops(open_trace(trace_path), size, discard=discard)
    with Guest(
        [plan.drive], binary=plan.binary, console=console, memory_bytes=memory_bytes
    ) as guest:
        result = replay_on(guest, size, listed, fills=fills, progress=progress)
        facts = guest.facts()
    return {**result, "trace": str(trace_path), "guest": facts, **plan.to_json()}


def replay_remotely(
    machine: RemoteDrive,
    trace_path: Path,
    *,
    fills: int = 0,
    discard: bool = True,
    progress: Progress = quiet,
) -> dict[str, Any]:
    """The same on a drive of a user's own machine; its counters say whether that is FEMU's."""
    size = int(machine.run(["blockdev", "--getsize64", machine.device]).text)
    listed = trace_ops(open_trace(trace_path), size, discard=discard)
    result = replay_on(machine, size, listed, fills=fills, progress=progress)
    controller = result["counters"]["after"]["drive"]["controller"]
    model = controller["model"] if controller else "no NVMe drive"
    where = {"device": machine.device, "size_bytes": size, "model": model}
    return {
        **result, "trace": str(trace_path), "remote": where, "emulator": model, "notes": [],
    }  # fmt: skip


def replay_on(
    machine: OpsMachine,
    size_bytes: int,
    listed: TraceOps,
    *,
    fills: int = 0,
    progress: Progress = quiet,
) -> dict[str, Any]:
    """Fill the machine's drive, read counters, send ``listed``, read counters again."""
    for _ in range(fills):
        _send(machine, fill_ops(size_bytes), progress, "filling the drive")
    before = read_counters(machine.device, machine.runner)
    sent = _send(machine, listed.ops, progress, "replaying")
    after = read_counters(machine.device, machine.runner)
    change = delta(before, after)
    return {
        "fidelity": _fidelity(listed, sent, change.write_commands),
        "requests": listed.requests,
        "bytes": sent["read"] + sent["write"],
        "errors": 0,
        "commands": sent["commands"],
        "split_requests": listed.split_requests,
        "left_out": listed.left_out,
        "fills": fills,
        "waf": change.waf,
        "why_no_waf": change.why_no_waf,
        "counters": {
            "before": {"drive": before.to_json()},
            "after": {"drive": after.to_json()},
        },
        "change": change.to_json(),
    }


def _send(machine: OpsMachine, ops: np.ndarray, progress: Progress, note: str) -> dict[str, Any]:
    total: dict[str, Any] = {
        "read": 0,
        "write": 0,
        "discard": 0,
        "commands": 0,
        "in_order": 0,
        "duration_s": 0.0,
    }
    for first in range(0, len(ops), CHUNK_OPS):
        progress(first, len(ops), note)
        done = drive_ops(machine, ops[first : first + CHUNK_OPS], timeout_s=3600.0)
        for key in ("commands", "duration_s"):
            total[key] += done[key]
        unseen = done["in_order"] is None or total["in_order"] is None
        total["in_order"] = None if unseen else total["in_order"] + done["in_order"]
        for key, size in done["bytes"].items():
            total[key] += size
    return total


def fill_ops(size_bytes: int) -> np.ndarray:
    """One sequential fill of a drive of ``size_bytes``, as an op list."""
    offset = np.arange(0, size_bytes, _FILL_BYTES, dtype=np.uint64)
    ops = np.empty(len(offset), OP_LIST_DTYPE)
    ops["offset"], ops["op"] = offset, Op.WRITE
    ops["length"] = np.minimum(np.uint64(_FILL_BYTES), np.uint64(size_bytes) - offset)
    return ops


def _fidelity(listed: TraceOps, sent: dict[str, Any], writes: int | None) -> dict[str, Any]:
    """FAITHFUL: every byte, in order (the kernel there saw it), and the drive counted the same
    write commands; reads are not compared, as the guard itself reads the drive to see that it is
    empty. Times are not replayed here, so lag and drift are null."""
    ops = listed.ops
    seen = sent["in_order"]
    order = seen / sent["commands"] if sent["commands"] and seen is not None else None
    reasons = []
    if order is not None and order != 1:
        reasons.append(f"{sent['commands'] - seen} commands were not issued in order")
    asked = int((ops["op"] == Op.WRITE).sum())
    if writes is not None and writes != asked:
        reasons.append(f"the drive counted {writes} write commands, {asked} were sent")
    for op, name in ((Op.READ, "read"), (Op.WRITE, "write")):
        wanted = int(ops["length"][ops["op"] == op].sum())
        if sent[name] != wanted:
            raise MeasurementError(f"{sent[name]} of {wanted} {name} bytes were done")
    return {
        "verdict": "WRONG" if reasons else "FAITHFUL",
        "reasons": reasons,
        "mode": "flat-out",
        "order_kept": order,
        "duration_s": sent["duration_s"],
        "end_drift_ns": None,
        "lag_ns": None,
    }
