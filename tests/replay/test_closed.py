"""Closed loops on a real loop device: dependencies and think times are kept, whatever the speed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import UsageError

from .conftest import Own
from .test_device import run
from .traces import write_then_read, write_trace

pytestmark = pytest.mark.root


def test_closed_loop_reads_wait_for_their_writes(own: Own, tmp_path: Path) -> None:
    """At a speed that no device keeps up with, every read still finds its write complete."""
    path = write_then_read(tmp_path / "t", 400)
    result = run(path, own, mode="closed-loop", speed=1000.0, verify=True)
    assert result.verdict != "WRONG", result.fidelity["reasons"]
    reads = result.details["verification"]["reads"]
    assert reads["checked_bytes"] == 400 * 65536
    assert reads["being_written_bytes"] == reads["never_written_bytes"] == 0


def test_a_closed_loop_keeps_think_times(own: Own, tmp_path: Path) -> None:
    """One session, one at a time: 50 requests with 10 ms of thinking take at least 490 ms."""
    path = write_trace(
        tmp_path / "t",
        ts_ns=np.arange(50) * 30_000_000,
        op=0,
        offset=0,
        length=4096,
        latency_ns=np.full(50, 20_000_000, np.int64),
        session=np.full(50, 5, np.uint32),
    )
    result = run(path, own, mode="closed-loop")
    assert result.verdict != "WRONG"
    assert 0.49 <= result.fidelity["duration_s"] < 1.2  # recorded: 1.49 s on a slow device
    assert result.fidelity["depth"]["replayed"]["max"] == 1


def test_a_closed_loop_without_latencies_is_refused(own: Own, tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t", ts_ns=[0], op=0, offset=0, length=4096)
    with pytest.raises(UsageError, match="has no latencies"):
        run(path, own, mode="closed-loop")
