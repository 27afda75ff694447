"""The verdict: each criterion on both sides of its limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.replay.fidelity import FAITHFUL, LATE, WRONG, Evidence, judge

MS = 1_000_000
GOOD = Evidence(
    order_matters=True,
    order_kept=1.0,
    requests_asked=100,
    requests_done=100,
    bytes_asked=4096,
    bytes_done=4096,
    bytes_seen=4096,
    errors=0,
    wrong_sectors=0,
    duration_ns=20_000 * MS,
    lag_p99=MS,
    lag_floor_p99=0,
    end_drift=3 * MS,
)


def test_all_at_their_limits_is_faithful() -> None:
    assert judge(GOOD) == (FAITHFUL, [])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"order_kept": 0.9999}, "order kept for 99.9900%"),
        ({"errors": 1}, "1 requests failed"),
        ({"requests_done": 99}, "99 of 100 requests"),
        ({"bytes_done": 4095}, "4095 of 4096 bytes"),
        ({"bytes_seen": 4095}, "the block layer saw 4095"),
        ({"wrong_sectors": 1}, "1 sectors do not hold"),
        ({"problems": ("interrupted",)}, "interrupted"),
    ],
)
def test_what_makes_a_replay_wrong(change: dict[str, object], reason: str) -> None:
    verdict, reasons = judge(replace(GOOD, **change, lag_p99=10**12))  # type: ignore[arg-type]
    assert verdict == WRONG
    assert len(reasons) == 1
    assert reason in reasons[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"lag_p99": MS + 1}, "p99 lag"),
        ({"end_drift": 3 * MS + 1}, "end drift"),
        ({"end_drift": -3 * MS - 1}, "end drift"),
        ({"longest_backlog": 200 * MS + 1}, "cannot carry the trace"),
        ({"longest_stall": 100 * MS + 1}, "the replayer itself was held up for 100 ms"),
    ],
)
def test_what_makes_a_replay_late(change: dict[str, int], reason: str) -> None:
    verdict, reasons = judge(replace(GOOD, **change))  # type: ignore[arg-type]
    assert verdict == LATE
    assert len(reasons) == 1
    assert reason in reasons[0]


def test_lag_that_the_device_forces_is_no_lateness() -> None:
    assert judge(replace(GOOD, lag_p99=14 * MS, lag_floor_p99=13 * MS))[0] == FAITHFUL
    assert judge(replace(GOOD, lag_p99=14 * MS + 1, lag_floor_p99=13 * MS))[0] == LATE
    assert judge(replace(GOOD, end_drift=8 * MS, end_lag_floor=5 * MS))[0] == FAITHFUL


def test_flat_out_and_closed_loops_have_no_schedule_or_order_to_keep() -> None:
    flat = replace(GOOD, lag_p99=None, end_drift=None, longest_backlog=10**12, longest_stall=10**12)
    assert judge(flat)[0] == FAITHFUL
    assert judge(replace(GOOD, order_matters=False, order_kept=0.5))[0] == FAITHFUL
