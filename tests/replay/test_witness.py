"""Matching a capture of a replay with its trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.core.ops import Op
from harness.replay.options import ReplayOptions
from harness.replay.witness import compare

from .traces import MIB, write_trace

COUNT = 30_000


def both(tmp_path: Path, order: np.ndarray, late_ns: np.ndarray) -> dict[str, object]:
    """``order`` of the trace's requests in the capture, and how late each was."""
    number = np.arange(COUNT)
    ts_ns, offset = number * 1000, number * 7919 % 16384 * 4096
    trace = write_trace(tmp_path / "trace", ts_ns=ts_ns, op=number % 2, offset=offset, length=4096)
    seen_at = np.maximum.accumulate((ts_ns + late_ns)[order])
    seen = write_trace(
        tmp_path / "seen",
        ts_ns=seen_at - seen_at[0],
        op=(number % 2)[order],
        offset=offset[order],
        length=4096,
    )
    return compare(trace, seen, ReplayOptions(), 64 * MIB)


def test_a_perfect_replay_matches_perfectly(tmp_path: Path) -> None:
    found = both(tmp_path, np.arange(COUNT), np.full(COUNT, 5000))
    assert found["matched"] == COUNT
    assert found["order_kept"] == 1.0
    assert found["lag_ns"]["max"] == 0  # type: ignore[index]
    assert found["end_drift_ns"] == 0
    assert found["gaps_ks"] == 0.0
    assert found["depth_ks"] is None  # no latencies here


def test_shapes_are_compared(tmp_path: Path) -> None:
    """Requests 10 us apart take 15 us in the recording and 25 us in the replay: depth 2, then 3."""
    number = np.arange(1000)
    paths = []
    for name, latency in (("trace", 15_000), ("seen", 25_000)):
        path = write_trace(
            tmp_path / name, ts_ns=number * 10_000, op=Op.READ, offset=number * 4096,
            length=4096, latency_ns=np.full(1000, latency, np.int64),
        )  # fmt: skip
        paths.append(path)
    found = compare(paths[0], paths[1], ReplayOptions(), 64 * MIB)
    assert found["gaps_ks"] == 0.0
    assert found["depth_ks"] == 0.998  # all but the first two
    assert compare(paths[0], paths[0], ReplayOptions(), 64 * MIB)["depth_ks"] == 0.0


def test_passes_until_enough_is_written_are_expected(tmp_path: Path) -> None:
    paths = []
    for name, number in (("trace", np.arange(10)), ("seen", np.arange(25))):
        paths.append(
            write_trace(
                tmp_path / name, ts_ns=number * 1000, op=1, offset=number % 10 * 4096, length=4096
            )
        )
    found = compare(paths[0], paths[1], ReplayOptions(until_bytes=25 * 4096), 64 * MIB)
    assert found["requests"] == found["matched"] == 25
    assert found["others"] == 0
    assert found["lag_ns"]["max"] == 0


def test_lag_counts_from_the_most_punctual_request(tmp_path: Path) -> None:
    late = np.zeros(COUNT, np.int64)
    late[COUNT // 2 :] = 400_000
    found = both(tmp_path, np.arange(COUNT), late)
    assert found["lag_ns"]["max"] == 400_000  # type: ignore[index]
    assert found["lag_ns"]["p50"] <= 400_000  # type: ignore[index]
    assert found["end_drift_ns"] == 400_000


def test_overtaken_requests_are_counted(tmp_path: Path) -> None:
    order = np.arange(COUNT)
    order[[100, 101]] = order[[101, 100]]
    order[20_000:20_010] = order[20_000:20_010][::-1]
    found = both(tmp_path, order, np.zeros(COUNT, np.int64))
    assert found["matched"] == COUNT
    assert found["order_kept"] == 1 - 10 / COUNT


def test_missing_and_foreign_requests_are_counted(tmp_path: Path) -> None:
    number = np.arange(1000)
    trace = write_trace(
        tmp_path / "trace", ts_ns=number * 1000, op=Op.WRITE, offset=number * 8192, length=8192
    )
    kept = np.setdiff1d(number, [10, 500])
    at = np.concatenate((kept * 1000, [500, 700_000]))
    offset = np.concatenate((kept * 8192, [60 * MIB, 61 * MIB]))
    order = np.argsort(at, kind="stable")
    seen = write_trace(
        tmp_path / "seen", ts_ns=at[order], op=Op.WRITE, offset=offset[order], length=8192
    )
    found = compare(trace, seen, ReplayOptions(), 64 * MIB)
    assert found["requests"] == 1000
    assert found["matched"] == 998
    assert found["unmatched"] == found["others"] == 2
    assert found["order_kept"] == 1.0


def test_with_a_common_clock_lag_counts_from_the_start(tmp_path: Path) -> None:
    number = np.arange(1000)
    trace = write_trace(
        tmp_path / "trace", ts_ns=number * 1000, op=Op.READ, offset=number * 4096, length=4096
    )
    seen = write_trace(
        tmp_path / "seen", ts_ns=number * 1000, op=Op.READ, offset=number * 4096, length=4096,
        clock_zero_ns=5_000_700,
    )  # fmt: skip
    found = compare(trace, seen, ReplayOptions(), 64 * MIB, started_ns=5_000_000)
    assert found["end_drift_ns"] == 700
    assert found["lag_ns"]["max"] == 700
