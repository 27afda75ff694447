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
from harness.device.guest.ops import OP_LIST_DTYPE, drive_ops
from harness.device.guest.plan import GuestPlan
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
    trace = open_trace(trace_path)
    size = plan.drive.size_bytes
    listed = trace_ops(trace, size, discard=discard)
    with Guest(
        [plan.drive], binary=plan.binary, console=console, memory_bytes=memory_bytes
    ) as guest:
        for number in range(fills):
            progress(number, fills, "filling the drive")
            _send(guest, fill_ops(size), progress, "filling the drive")
        before = read_counters(guest.device, guest.runner)
        sent = _send(guest, listed.ops, progress, "replaying")
        after = read_counters(guest.device, guest.runner)
        facts = guest.facts()
    change = delta(before, after)
    return {
        "fidelity": _fidelity(listed, sent, change.write_commands, change.read_commands),
        "requests": listed.requests,
        "bytes": sent["read"] + sent["write"],
        "errors": 0,
        "commands": sent["commands"],
        "split_requests": listed.split_requests,
        "left_out": listed.left_out,
        "fills": fills,
        "waf": change.waf,
        "why_no_waf": change.why_no_waf,
        "counters": {"before": before.to_json(), "after": after.to_json()},
        "change": change.to_json(),
        "trace": str(trace.path),
        "guest": facts,
        **plan.to_json(),
    }


def _send(guest: Guest, ops: np.ndarray, progress: Progress, note: str) -> dict[str, Any]:
    total = {"read": 0, "write": 0, "discard": 0, "commands": 0, "in_order": 0, "duration_s": 0.0}
    for first in range(0, len(ops), CHUNK_OPS):
        progress(first, len(ops), note)
        done = drive_ops(guest, ops[first : first + CHUNK_OPS], timeout_s=3600.0)
        for key in ("commands", "in_order", "duration_s"):
            total[key] += done[key]
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


def _fidelity(
    listed: TraceOps, sent: dict[str, Any], writes: int | None, reads: int | None
) -> dict[str, Any]:
    """FAITHFUL: every byte, in order (the guest's kernel saw it), and the drive counted the same
    commands. Times are not replayed in a guest, so lag and drift are null."""
    ops = listed.ops
    asked = {op: int((ops["op"] == op).sum()) for op in (Op.READ, Op.WRITE)}
    order = sent["in_order"] / sent["commands"] if sent["commands"] else None
    reasons = []
    if order is not None and order != 1:
        reasons.append(f"{sent['commands'] - sent['in_order']} commands were not issued in order")
    for op, counted, name in ((Op.WRITE, writes, "write"), (Op.READ, reads, "read")):
        # Reading id and logs is no I/O; anything else that read the drive would show here.
        if counted is not None and counted != asked[op]:
            reasons.append(f"the drive counted {counted} {name} commands, {asked[op]} were sent")
        done = int(ops["length"][ops["op"] == op].sum())
        if sent[name] != done:
            raise MeasurementError(f"{sent[name]} of {done} {name} bytes were done")
    return {
        "verdict": "WRONG" if reasons else "FAITHFUL",
        "reasons": reasons,
        "mode": "flat-out",
        "order_kept": order,
        "duration_s": sent["duration_s"],
        "end_drift_ns": None,
        "lag_ns": None,
    }
