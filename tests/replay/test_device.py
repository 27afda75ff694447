"""Replays on a real loop device: the work is done, in order, checked, and nothing is left."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.errors import UsageError
from harness.core.ops import Op
from harness.device.buffers import PayloadPool
from harness.device.info import read_stat
from harness.replay import rig as rig_module
from harness.replay.options import ReplayOptions
from harness.replay.result import ReplayResult
from harness.replay.run import replay
from harness.trace.schema import FLAG_FUA

from .conftest import Own
from .traces import MIB, letters, mixed_trace, write_trace

pytestmark = pytest.mark.root


def run(path: Path, own: Own, **choices: Any) -> ReplayResult:
    result = replay(path, own.target, ReplayOptions(**choices))
    json.dumps(result.to_dict(), allow_nan=False)
    return result


def assert_done(result: ReplayResult) -> None:
    """All was done in order; whether it was on time depends on who else uses the machine."""
    assert result.verdict in ("FAITHFUL", "LATE"), result.fidelity["reasons"]
    assert result.fidelity["order_kept"] == 1.0
    assert result.errors == 0
    done, asked = result.fidelity["bytes"]["done"], result.fidelity["bytes"]["asked"]
    assert done == asked == result.bytes


def test_timed_replay_does_the_work_on_time(own: Own, tmp_path: Path) -> None:
    path = mixed_trace(tmp_path / "t", 2000, seconds=1.0)
    result = run(path, own)
    assert_done(result)
    fidelity = result.fidelity
    assert fidelity["duration_s"] == pytest.approx(fidelity["recorded_duration_s"], rel=0.25)
    assert fidelity["lag_ns"]["n"] == 2000
    assert fidelity["lag_ns"]["p50"] < 50e6
    seen = result.details["block_layer"]
    assert seen["merges"] == seen["kernel_splits"] == 0
    assert seen["seen"]["R"]["requests"] + seen["seen"]["W"]["requests"] == 2000
    assert letters(result.details, "requests") == {
        "R": seen["seen"]["R"]["requests"], "W": seen["seen"]["W"]["requests"],
    }  # fmt: skip


def test_speed_shortens_time(own: Own, tmp_path: Path) -> None:
    path = mixed_trace(tmp_path / "t", 500, seconds=2.0)
    result = run(path, own, speed=4.0)
    assert_done(result)
    assert result.fidelity["duration_s"] < 1.0
    assert result.details["fidelity"]["recorded_duration_s"] == pytest.approx(0.5, rel=0.1)


def test_until_ends_in_the_middle_of_a_pass(own: Own, tmp_path: Path) -> None:
    """100 writes of a page 1 ms apart, until 250 pages: two passes and a half."""
    path = write_trace(
        tmp_path / "t", ts_ns=np.arange(100) * 1_000_000, op=1, offset=0, length=4096
    )
    result = run(path, own, until_bytes=250 * 4096)
    assert_done(result)
    assert result.requests == 250
    assert result.details["passes"] == 3
    assert result.fidelity["recorded_duration_s"] == pytest.approx(0.249)
    assert result.fidelity["duration_s"] == pytest.approx(0.249, abs=0.1)


def test_flat_out_keeps_depth_and_order(own: Own, tmp_path: Path) -> None:
    path = mixed_trace(tmp_path / "t", 3000, seconds=100.0)
    result = run(path, own, mode="flat-out", depth=5, repeat=2)
    assert_done(result)
    assert result.verdict == "FAITHFUL"
    assert result.requests == 6000
    assert result.fidelity["duration_s"] < 20
    assert result.details["engine"]["deepest"] == 5
    assert result.fidelity["lag_ns"]["p99"] is None


def test_what_was_written_is_what_the_device_holds(own: Own, tmp_path: Path) -> None:
    """Checked from outside: the file under the device against a pool made anew from the seed."""
    path = write_trace(
        tmp_path / "t", ts_ns=np.arange(64), op=Op.WRITE, offset=np.arange(64) * MIB, length=65536
    )
    result = run(path, own, mode="flat-out", seed=77)
    depth, size = result.details["engine"]["depth"], 65536
    pool = PayloadPool(depth, size, 77, block_bytes=4096)
    with open(f"/proc/self/fd/{own.loop.backing_fd}", "rb") as file:
        for number in range(64):
            file.seek(number * MIB)
            data = np.frombuffer(file.read(size), np.uint8)
            assert pool.wrong_sectors(data, number * MIB, number + 1) == 0
            assert not np.frombuffer(file.read(4096), np.uint8).any()


def test_verification_accepts_what_is_right(own: Own, tmp_path: Path) -> None:
    path = mixed_trace(tmp_path / "t", 4000, seconds=100.0)
    result = run(path, own, mode="flat-out", verify=True)
    assert_done(result)
    verified = result.details["verification"]
    assert verified["reads"]["wrong_sectors"] == verified["scan"]["wrong_sectors"] == 0
    assert verified["reads"]["checked_bytes"] > 10 * MIB
    assert verified["scan"]["checked_bytes"] > 50 * MIB
    assert verified["scan"]["unread_bytes"] == 0


@pytest.mark.parametrize("sector", [512, 4096])
def test_verification_finds_a_flipped_byte(
    own: Own, tmp_path: Path, sector: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte is changed behind the device's back between the last write and the scan."""
    from harness.replay.session import Session

    path = write_trace(
        tmp_path / "t", ts_ns=np.arange(100), op=1, offset=np.arange(100) * sector, length=sector
    )
    scanned = Session.read_back

    def spoiled(session: Session) -> None:
        with open(f"/proc/self/fd/{own.loop.backing_fd}", "r+b") as file:
            file.seek(50 * sector + 200)
            byte = file.read(1)[0]
            file.seek(50 * sector + 200)
            file.write(bytes([byte ^ 1]))
        scanned(session)

    monkeypatch.setattr(Session, "read_back", spoiled)
    result = run(path, own, mode="flat-out", verify=True)
    assert result.verdict == "WRONG"
    sectors = sector // 512
    assert result.details["verification"]["scan"]["wrong_sectors"] == sectors
    assert result.fidelity["reasons"] == [f"{sectors} sectors do not hold what was written"]


def test_verification_finds_a_read_of_something_else(own: Own, tmp_path: Path) -> None:
    """A read while the device lies: its file was cut and grown again, so it reads zeros."""
    import os
    import threading

    number = np.arange(3000)
    path = write_trace(
        tmp_path / "t",
        ts_ns=number * 1_000_000,
        op=np.where(number < 100, Op.WRITE, Op.READ),
        offset=number % 100 * 4096,
        length=4096,
    )

    def lie() -> None:
        os.ftruncate(own.loop.backing_fd, 0)
        os.ftruncate(own.loop.backing_fd, own.loop.size_bytes)

    timer = threading.Timer(1.0, lie)
    timer.start()
    result = run(path, own, verify=True)
    timer.join()
    assert result.verdict == "WRONG"
    assert result.details["verification"]["reads"]["wrong_sectors"] > 100 * 8


def test_large_requests_are_split_by_us_and_counted(own: Own, tmp_path: Path) -> None:
    queue = Path(f"/sys/block/{own.loop.name}/queue/max_sectors_kb")
    before = queue.read_text()
    path = write_trace(
        tmp_path / "t",
        ts_ns=np.arange(20),
        op=1,
        offset=np.arange(20) * MIB,
        length=300 << 10,
    )
    queue.write_text("128")
    try:
        target = replace(own.target, info=replace(own.target.info, max_sectors_kb=128))
        result = replay(path, target, ReplayOptions(mode="flat-out", verify=True))
    finally:
        queue.write_text(before)
    assert_done(result)
    assert result.details["split_requests"] == 20
    assert result.details["commands"] == 60
    assert letters(result.details, "requests") == {"W": 20}
    assert letters(result.details, "commands") == {"W": 60}
    assert result.details["block_layer"]["kernel_splits"] == 0
    assert result.details["block_layer"]["seen"]["W"]["requests"] == 60


def test_splits_by_the_kernel_are_seen(own: Own, tmp_path: Path) -> None:
    """The limit shrinks after it was looked up: the kernel refuses for a while, then splits."""
    queue = Path(f"/sys/block/{own.loop.name}/queue/max_sectors_kb")
    before = queue.read_text()
    path = write_trace(tmp_path / "t", ts_ns=np.arange(5), op=1, offset=0, length=256 << 10)
    queue.write_text("64")
    try:
        result = run(path, own, mode="flat-out")
    finally:
        queue.write_text(before)
    assert result.errors == 0
    assert result.bytes == 5 * 256 << 10
    assert result.details["split_requests"] == 0
    assert result.details["block_layer"]["kernel_splits"] == 5 * 3
    assert result.details["engine"]["blocking"] == 5
    assert any("the kernel split commands" in note for note in result.details["notes"])


@pytest.mark.parametrize("in_ring", [True, False])
def test_discards_flushes_and_zeroes_are_replayed(
    own: Own, tmp_path: Path, in_ring: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_ring:
        monkeypatch.setattr(rig_module, "has_ring_discard", lambda: False)
    elif not rig_module.has_ring_discard():
        pytest.skip("this kernel's io_uring has no discard")
    path = write_trace(
        tmp_path / "t",
        ts_ns=np.arange(6) * 20_000_000,
        op=[Op.WRITE, Op.WRITE, Op.DISCARD, Op.FLUSH, Op.WRITE_ZEROES, Op.READ],
        offset=[0, 8 * MIB, 0, 0, 8 * MIB, MIB],
        length=[MIB, MIB, MIB // 2, 0, MIB // 4, 4096],
    )
    before = read_stat(own.loop.name)
    result = run(path, own, verify=True)
    moved = read_stat(own.loop.name).since(before)
    assert_done(result)
    assert letters(result.details, "requests") == {"R": 1, "W": 2, "D": 1, "F": 1, "Z": 1}
    assert moved.discard_ios == 1
    assert moved.discard_sectors == MIB // 2 // 512
    assert moved.flush_ios >= 1
    with open(f"/proc/self/fd/{own.loop.backing_fd}", "rb") as file:
        data = np.frombuffer(file.read(9 * MIB), np.uint8).reshape(-1, MIB // 4)
    assert [bool(part.any()) for part in data[[0, 1, 2, 3, 32, 33]]] == [
        False, False, True, True, False, True,
    ]  # fmt: skip


def test_discards_are_left_out_if_so_wished(own: Own, tmp_path: Path) -> None:
    path = write_trace(
        tmp_path / "t", ts_ns=[0, 1], op=[Op.WRITE, Op.DISCARD], offset=0, length=4096
    )
    result = run(path, own, discard=False, verify=True)
    assert letters(result.details, "requests") == {"W": 1}
    assert result.details["verification"]["scan"]["checked_bytes"] == 4096


def test_a_device_without_discard_is_told_before_anything_is_written(
    own: Own, tmp_path: Path
) -> None:
    path = write_trace(
        tmp_path / "t", ts_ns=[0, 1], op=[Op.WRITE, Op.DISCARD], offset=0, length=4096
    )
    target = replace(own.target, info=replace(own.target.info, discard_max_bytes=0))
    with pytest.raises(UsageError, match="knows no discard, and the trace has 1") as caught:
        replay(path, target)
    assert caught.value.fix == "leave discards out: --no-discard"


def test_forced_unit_access_reaches_the_device(own: Own, tmp_path: Path) -> None:
    """A loop device has no FUA, so the block layer flushes after each such write."""
    flags = np.array([FLAG_FUA, 0, FLAG_FUA], np.uint16)
    path = write_trace(
        tmp_path / "t", ts_ns=[0, 10**7, 2 * 10**7], op=1, offset=0, length=4096, flags=flags
    )
    result = run(path, own)
    assert result.details["counters"]["after"]["block"]["flush_ios"] - (
        result.details["counters"]["before"]["block"]["flush_ios"]
    ) == 2  # fmt: skip


def test_zeros_say_what_they_falsify(own: Own, tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t", ts_ns=[0], op=1, offset=0, length=MIB)
    result = run(path, own, zero=True)
    assert any("zeros were written" in note for note in result.details["notes"])
    with open(f"/proc/self/fd/{own.loop.backing_fd}", "rb") as file:
        assert not any(file.read(MIB))


def test_depth_follows_the_queue_as_it_is(own: Own, tmp_path: Path) -> None:
    requests = Path(f"/sys/block/{own.loop.name}/queue/nr_requests")
    before = requests.read_text()
    path = mixed_trace(tmp_path / "t", 500, seconds=100.0)
    requests.write_text("16")
    try:
        result = run(path, own, mode="flat-out")
    finally:
        requests.write_text(before)
    assert_done(result)
    assert result.details["engine"]["depth"] == 12
    assert result.details["engine"]["no_room"] == 0


def test_several_queues_do_all_of_it(own: Own, tmp_path: Path) -> None:
    path = mixed_trace(tmp_path / "t", 4000, seconds=100.0)
    result = run(path, own, mode="flat-out", queues=2)
    assert result.verdict == "FAITHFUL"
    assert result.requests == 4000
    assert any("within each queue" in note for note in result.details["notes"])


def test_no_room_in_the_queue_is_met_again_and_again(
    own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue holds 4 requests where 128 were promised: EAGAIN, and all is done."""
    requests = Path(f"/sys/block/{own.loop.name}/queue/nr_requests")
    before = requests.read_text()
    path = mixed_trace(tmp_path / "t", 3000, seconds=100.0)
    monkeypatch.setattr("harness.replay.run.device_info", lambda path: own.target.info)
    requests.write_text("4")
    try:
        result = run(path, own, mode="flat-out", verify=True)
    finally:
        requests.write_text(before)
    assert result.details["engine"]["no_room"] > 0
    assert result.requests == 3000
    assert result.errors == 0
    assert result.fidelity["bytes"]["done"] == result.fidelity["bytes"]["asked"]
    assert result.details["verification"]["reads"]["wrong_sectors"] == 0
    assert result.details["verification"]["scan"]["wrong_sectors"] == 0


def test_a_trace_without_times_is_for_flat_out_alone(own: Own, tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t", ts_ns=[0, 1], op=1, offset=0, length=4096, clock=False)
    with pytest.raises(UsageError, match="no times, only an order"):
        run(path, own)
    assert_done(run(path, own, mode="flat-out"))


def test_a_trace_larger_than_the_window_streams(own: Own, tmp_path: Path) -> None:
    count = 700_000
    random = np.random.default_rng(3)
    path = write_trace(
        tmp_path / "t",
        ts_ns=np.arange(count),
        op=random.integers(0, 2, count),
        offset=random.integers(0, 64 * MIB // 4096, count) * 4096,
        length=4096,
    )
    result = run(path, own, mode="flat-out", verify=True)
    assert_done(result)
    assert result.requests == count
    assert result.details["verification"]["reads"]["wrong_sectors"] == 0


def test_latencies_are_kept_by_operation_and_size(own: Own, tmp_path: Path) -> None:
    path = mixed_trace(tmp_path / "t", 1000, seconds=0.5)
    result = run(path, own)
    for letter, count in letters(result.details, "requests").items():
        found = result.details["latency_ns"][letter]
        assert found["n"] == count
        assert 0 < found["p50"] <= found["p99"] <= found["max"]
        assert list(found["by_size"]) == ["<=4KiB", "<=16KiB", "<=64KiB", "<=256KiB"]
        for size in found["by_size"].values():
            assert sum(n for _, n in size["bins"]) == size["n"]
        recorded = result.details["recorded_latency_ns"][letter]
        assert recorded["n"] == count
        assert recorded["p50"] == pytest.approx(100_000, rel=0.02)
    assert result.fidelity["depth"]["recorded"]["max"] >= 1


def test_a_read_only_target_is_refused(own: Own, tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t", ts_ns=[0], op=0, offset=0, length=4096)
    with pytest.raises(UsageError, match="reading only"):
        replay(path, replace(own.target, read_only=True))
