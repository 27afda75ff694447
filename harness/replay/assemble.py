"""Puts what a session found into the form that is printed, kept and compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.core.ops import Op
from harness.core.units import format_duration
from harness.device.guard import Target
from harness.device.info import BlockStat
from harness.replay.collect import Collector, by_operation
from harness.replay.fidelity import Evidence, judge, thresholds
from harness.replay.result import block_layer
from harness.replay.session import Session, by_letter
from harness.replay.survey import Survey
from harness.replay.window import Control, Meter
from harness.trace.parquet import Trace

_MOVING = [Op.READ, Op.WRITE]
_STALL_WORTH_A_NOTE_NS = 10_000_000


def assemble(
    session: Session,
    trace: Trace,
    target: Target,
    found: Survey,
    moved: BlockStat | None,
) -> dict[str, Any]:
    """Everything that a replay's ``--json`` holds, the counters aside."""
    collector, planner, rig = session.collector, session.planner, session.rig
    seen = None
    if moved is not None:
        seen = block_layer(moved, by_letter(collector.commands), by_letter(collector.bytes))
    evidence = _evidence(session, found, seen)
    verdict, reasons = judge(evidence)
    return {
        "fidelity": _fidelity(session, found, evidence, verdict, reasons),
        "requests": int(collector.requests.sum()),
        "bytes": int(collector.bytes[_MOVING].sum()),
        "errors": int(collector.failed.sum()),
        "errors_by_kind": dict(collector.errors),
        "operations": _operations(collector),
        "latency_ns": by_operation(collector.latency, bins=True),
        "recorded_latency_ns": by_operation(collector.recorded_latency, bins=False),
        "trace": str(trace.path),
        "device": target.info.as_dict(),
        "options": session.options.as_dict(),
        "passes": planner.passes,
        "split_requests": planner.splits,
        "commands": planner.commands,
        "block_layer": seen,
        "verification": _verification(session),
        "engine": {
            "name": "uring",
            "started_ns": int(rig.control[Control.START_NS]),
            "queues": len(rig.lanes),
            "depth": session.sizing.depth,
            "batch": rig.lanes[0].batch,
            "priority": rig.priority,
            "huge_pages": rig.huge,
            "asynchronous_discards": rig.lanes[0].ring_discard,
            "deepest": rig.meter(Meter.PEAK),
            "no_room": rig.meter(Meter.EAGAIN),
            "blocking": rig.meter(Meter.BLOCKING),
            "system_calls": rig.meter(Meter.ENTERS),
            "lone_call_ns": rig.meter(Meter.LONE_CALLS_NS) / max(rig.meter(Meter.LONE_CALLS), 1),
            "starved_s": rig.meter(Meter.STARVED_NS) / 1e9,
            "held_up": {
                "count": rig.meter(Meter.STALLS),
                "longest_s": _longest_stall(session) / 1e9,
                "total_s": rig.meter(Meter.STALLED_NS) / 1e9,
            },
        },
        "interrupted": session.ending.interrupted,
        "stopped_by": session.ending.problem,
        "in_flight_at_end": session.ending.in_flight,
        "notes": _notes(session, found, seen),
    }


def _evidence(session: Session, found: Survey, seen: dict[str, Any] | None) -> Evidence:
    c, options = session.collector, session.options
    asked_bytes = session.planner.bytes_moving
    complete = session.planner.finished
    scheduled = options.mode != "flat-out"
    first = c.first_issue or 0
    problems = [session.ending.problem] if session.ending.problem else []
    if session.scan is not None and session.scan.unread_bytes:
        problems.append(f"{session.scan.unread_bytes} bytes could not be read back")
    return Evidence(
        order_matters=options.mode != "closed-loop" and options.queues == 1,
        order_kept=_order_kept(c),
        requests_asked=session.planner.requests if complete else session.planner.total_requests,
        requests_done=int(c.requests.sum()),
        bytes_asked=asked_bytes if complete else None,
        bytes_done=int(c.bytes[_MOVING].sum()),
        bytes_seen=sum(seen["seen"][letter]["bytes"] for letter in "RW") if seen else None,
        errors=int(c.failed.sum()),
        wrong_sectors=_wrong_sectors(session),
        duration_ns=c.last_done - first,
        lag_p99=c.lag.quantile(0.99) if scheduled else None,
        lag_floor_p99=c.floor.lag.quantile(0.99) if scheduled else None,
        end_drift=_end_drift(c) if options.mode == "timed" else None,
        end_lag_floor=c.floor.last,
        longest_backlog=c.floor.longest_backlog if scheduled else 0,
        longest_stall=_longest_stall(session),
        problems=tuple(problems),
    )


def _fidelity(
    session: Session, found: Survey, evidence: Evidence, verdict: str, reasons: list[str]
) -> dict[str, Any]:
    c, options = session.collector, session.options
    empty = dict.fromkeys(("p50", "p90", "p99", "p999", "max", "mean", "n"))
    scheduled, timed = options.mode != "flat-out", options.mode == "timed"
    return {
        "verdict": verdict,
        "reasons": reasons,
        "order_kept": evidence.order_kept,
        "duration_s": evidence.duration_ns / 1e9,
        "recorded_duration_s": c.recorded_ns / 1e9,
        "end_drift_ns": evidence.end_drift,
        "lag_ns": c.lag.summary() if scheduled else empty,
        "lag_floor_ns": c.floor.lag.summary() if scheduled else empty,
        "longest_backlog_ns": c.floor.longest_backlog if scheduled else None,
        "end_lag_floor_ns": c.floor.last if scheduled else None,
        **thresholds(evidence),
        "requests": {"asked": evidence.requests_asked, "done": evidence.requests_done},
        "bytes": {"asked": evidence.bytes_asked, "done": evidence.bytes_done},
        "depth": _depth(session, found),
        "gaps_ks": c.shape.gap_distance(c.recorded_shape) if timed else None,
        "gaps_ks_unavoidable": c.ideal_shape.gap_distance(c.recorded_shape) if timed else None,
    }


def _depth(session: Session, found: Survey) -> dict[str, Any]:
    """Depth at issue, ours and the recording's; comparable where latencies were recorded."""
    c = session.collector
    comparable = c.unknown_latencies <= 0.01 * max(int(c.requests.sum()), 1)
    distance = unavoidable = None
    if comparable and session.options.mode == "timed" and session.options.speed == 1:
        distance = c.shape.depth_distance(c.recorded_shape)
        unavoidable = c.ideal_shape.depth_distance(c.recorded_shape)
    recorded = c.recorded_shape.summary() if comparable else None
    return {
        "replayed": {**c.shape.summary(), "counts": c.shape.counts()},
        "recorded": {**recorded, "counts": c.recorded_shape.counts()} if recorded else None,
        "ks": distance,
        "ks_unavoidable": unavoidable,
    }


def _longest_stall(session: Session) -> int:
    return max(int(meter[Meter.LONGEST_STALL_NS]) for meter in session.rig.meters)


def _order_kept(c: Collector) -> float:
    commands = int(c.commands.sum())
    return 1 - c.overtaken / commands if commands else 1.0


def _end_drift(c: Collector) -> int | None:
    if c.first_issue is None:
        return None
    return c.last_issue - c.last_due  # both on the schedule's clock: a late first shifts nothing


def _operations(c: Collector) -> dict[str, dict[str, int]]:
    letters = by_letter(c.requests)
    tables: dict[str, np.ndarray] = {"bytes": c.bytes, "commands": c.commands, "failed": c.failed}
    return {
        letter: {
            "requests": n,
            **{name: int(t["RWDFZN".index(letter)]) for name, t in tables.items()},
        }
        for letter, n in letters.items()
    }


def _wrong_sectors(session: Session) -> int:
    during = session.rig.meter(Meter.WRONG)
    return during + (session.scan.wrong_sectors if session.scan else 0)


def _verification(session: Session) -> dict[str, Any] | None:
    if not session.options.verify:
        return None
    unit = session.rig.lanes[0].unit_bytes
    return {
        "reads": {
            "checked_bytes": session.rig.meter(Meter.CHECKED) * unit,
            "never_written_bytes": session.rig.meter(Meter.UNKNOWN) * unit,
            "being_written_bytes": session.rig.meter(Meter.RACING) * unit,
            "wrong_sectors": session.rig.meter(Meter.WRONG),
        },
        "scan": session.scan.as_dict() if session.scan else None,
    }


def _notes(session: Session, found: Survey, seen: dict[str, Any] | None) -> list[str]:
    notes = []
    if session.sizing.note:
        notes.append(session.sizing.note)
    if found.left_out:
        notes.append(
            f"{found.left_out} rows of the trace are not replayed (other, empty, discards)"
        )
    if found.devices > 1:
        notes.append(f"the trace holds {found.devices} devices; all were replayed onto one")
    if session.planner.splits:
        limit = session.limits.moving_bytes
        notes.append(f"{session.planner.splits} requests above {limit} bytes were issued in parts")
    if not session.rig.huge:
        notes.append("buffers lie on ordinary pages: the kernel gave no huge pages")
    if session.options.queues > 1:
        notes.append("order holds within each queue; between queues only time keeps it")
    if session.options.zero:
        notes.append("zeros were written: drives that compress or deduplicate them write less")
    if session.rig.meter(Meter.BLOCKING):
        blocked = session.rig.meter(Meter.BLOCKING)
        notes.append(f"{blocked} commands went through kernel workers, their place uncertain")
    held_up = _longest_stall(session)
    if held_up > _STALL_WORTH_A_NOTE_NS:
        longest = format_duration(held_up / 1e9)
        notes.append(
            f"the replayer itself was held up, for {longest} at most: not the device's time"
        )
    if seen and seen["merges"]:
        notes.append(f"the block layer merged {seen['merges']} commands")
    if seen and seen["kernel_splits"]:
        notes.append(f"the kernel split commands into {seen['kernel_splits']} more requests")
    if found.requests[Op.FLUSH] or found.requests[Op.WRITE_ZEROES]:
        notes.append("flushes and write-zeroes are issued by a kernel worker, a little later")
    if session.rig.refused:
        notes.append(f"no real-time priority was permitted ({session.rig.priority})")
    return notes
