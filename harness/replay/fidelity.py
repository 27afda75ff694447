"""The verdict on a replay: the recorded work, in the recorded order, at the recorded time?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.core.units import format_duration

FAITHFUL, LATE, WRONG = "FAITHFUL", "LATE", "WRONG"
LAG_ALLOWANCE_NS = 1_000_000
DRIFT_ALLOWANCE_NS = 1_000_000
DRIFT_SHARE = 1e-4
BACKLOG_ALLOWANCE_NS = 100_000_000
BACKLOG_SHARE = 0.01
"""A device that holds requests up for longer, without a break, cannot carry the trace."""
STALL_ALLOWANCE_NS = 100_000_000
"""A replayer that was held up itself for longer did not keep the times, whatever the quantiles."""


@dataclass(frozen=True)
class Evidence:
    """The numbers that decide. Times in ns; those of the schedule are None flat out.

    ``lag_floor_p99`` and ``end_lag_floor`` are what a perfect replayer would have had on this
    device (``floor``), and ``longest_backlog`` the longest time for which the device would
    have held it up without a break. ``longest_stall`` is the longest time for which the replayer
    itself was held up. ``problems`` are reasons of their own, such as a device that stalled.
    """

    order_matters: bool
    order_kept: float
    requests_asked: int | None
    requests_done: int
    bytes_asked: int | None
    bytes_done: int
    bytes_seen: int | None
    errors: int
    wrong_sectors: int
    duration_ns: int
    lag_p99: int | None = None
    lag_floor_p99: int | None = None
    end_drift: int | None = None
    end_lag_floor: int = 0
    longest_backlog: int = 0
    longest_stall: int = 0
    problems: tuple[str, ...] = field(default=())


def judge(evidence: Evidence) -> tuple[str, list[str]]:
    """The verdict, and the reasons for it (none when FAITHFUL)."""
    wrong = _wrong(evidence)
    if wrong:
        return WRONG, wrong
    late = _late(evidence)
    return (LATE, late) if late else (FAITHFUL, [])


def _wrong(e: Evidence) -> list[str]:
    reasons = list(e.problems)
    if e.order_matters and e.order_kept < 1:
        reasons.append(f"order kept for {e.order_kept:.4%} of the requests")
    if e.errors:
        reasons.append(f"{e.errors} requests failed")
    if e.requests_asked is not None and e.requests_done != e.requests_asked:
        reasons.append(f"{e.requests_done} of {e.requests_asked} requests done")
    if e.bytes_asked is not None and e.bytes_done != e.bytes_asked:
        reasons.append(f"{e.bytes_done} of {e.bytes_asked} bytes done")
    if e.bytes_seen is not None and e.bytes_seen < e.bytes_done:
        reasons.append(f"the block layer saw {e.bytes_seen} of {e.bytes_done} bytes")
    if e.wrong_sectors:
        reasons.append(f"{e.wrong_sectors} sectors do not hold what was written")
    return reasons


def _late(e: Evidence) -> list[str]:
    reasons = []
    carried = max(BACKLOG_ALLOWANCE_NS, int(BACKLOG_SHARE * e.duration_ns))
    if e.lag_p99 is not None and e.longest_backlog > carried:
        backlog = _time(e.longest_backlog)
        reasons.append(f"the device cannot carry the trace: a backlog lasted {backlog}")
    if e.lag_p99 is not None and e.longest_stall > STALL_ALLOWANCE_NS:
        stall = _time(e.longest_stall)
        reasons.append(f"the replayer itself was held up for {stall} (stopped, or no processor)")
    if e.lag_p99 is not None:
        allowed = (e.lag_floor_p99 or 0) + LAG_ALLOWANCE_NS
        if e.lag_p99 > allowed:
            reasons.append(f"p99 lag {_time(e.lag_p99)} exceeds {_time(allowed)} (floor + 1 ms)")
    if e.end_drift is not None:
        allowed = int(DRIFT_ALLOWANCE_NS + DRIFT_SHARE * e.duration_ns) + e.end_lag_floor
        if abs(e.end_drift) > allowed:
            reasons.append(f"end drift {_time(e.end_drift)} exceeds {_time(allowed)}")
    return reasons


def _time(value_ns: int) -> str:
    return format_duration(value_ns / 1e9)


def thresholds(evidence: Evidence) -> dict[str, Any]:
    """What the verdict compared with, for the result."""
    return {
        "lag_p99_allowed_ns": None
        if evidence.lag_p99 is None
        else (evidence.lag_floor_p99 or 0) + LAG_ALLOWANCE_NS,
        "end_drift_allowed_ns": None
        if evidence.end_drift is None
        else int(DRIFT_ALLOWANCE_NS + DRIFT_SHARE * evidence.duration_ns) + evidence.end_lag_floor,
    }
