"""Faults under a replay are counted and reported, end it with exit 1, and hang nothing."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from harness.core.ops import Op
from harness.device.guard import open_guarded
from harness.device.loop import LoopDevice
from harness.replay.options import ReplayOptions
from harness.replay.run import replay

from .conftest import Own
from .traces import MIB, mixed_trace, write_trace

pytestmark = pytest.mark.root


@contextmanager
def mounted(kind: str, source: str, place: Path, options: str = "rw") -> Iterator[Path]:
    """A file system on ``place``; taken away once nobody is busy with it any more."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", kind, "-o", options, source, str(place)], check=True)
    try:
        yield place
    finally:
        for _ in range(100):
            if subprocess.run(["umount", str(place)], capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
        else:
            raise AssertionError(f"{place} cannot be unmounted")


def test_read_errors_are_counted(own: Own, tmp_path: Path) -> None:
    """The file under the device is cut to half: reads beyond fail, those before do not."""
    path = write_trace(
        tmp_path / "t", ts_ns=np.arange(64), op=Op.READ, offset=np.arange(64) * MIB, length=4096
    )
    os.ftruncate(own.loop.backing_fd, 32 * MIB)
    result = replay(path, own.target, mode="flat-out")
    assert result.verdict == "WRONG"
    assert result.errors == 32
    assert result.details["errors_by_kind"] == {"EIO": 32}
    assert result.details["operations"]["R"] == {
        "requests": 64, "bytes": 32 * 4096, "commands": 64, "failed": 32,
    }  # fmt: skip
    assert "32 requests failed" in result.fidelity["reasons"]
    assert result.details["in_flight_at_end"] == 0


def test_write_errors_are_counted(tmp_path: Path) -> None:
    """A sparse file of 64 MiB on a file system of 16 MiB: about three quarters do not fit."""
    path = write_trace(
        tmp_path / "t", ts_ns=np.arange(64), op=Op.WRITE, offset=np.arange(64) * MIB, length=MIB
    )
    with (
        mounted("tmpfs", "tmpfs", tmp_path / "small", "size=16m") as place,
        LoopDevice(64 * MIB, place) as loop,
        open_guarded(loop.path, own=True) as target,
    ):
        result = replay(path, target, ReplayOptions(mode="flat-out", verify=True))
    assert result.verdict == "WRONG"
    assert 45 <= result.errors <= 50
    assert result.requests == 64
    assert sum(result.details["errors_by_kind"].values()) == result.errors
    assert result.details["verification"]["scan"]["wrong_sectors"] == 0


@contextmanager
def stalling_device(tmp_path: Path) -> Iterator[tuple[LoopDevice, Path]]:
    """A loop device over a file on ext4, which can be frozen."""
    with ExitStack() as stack:
        below = stack.enter_context(LoopDevice(192 * MIB, "/dev/shm"))
        subprocess.run(["mkfs.ext4", "-q", below.path], check=True)
        place = stack.enter_context(mounted("ext4", below.path, tmp_path / "fs"))
        yield stack.enter_context(LoopDevice(64 * MIB, place)), place


def test_a_stalled_device_is_given_up(tmp_path: Path) -> None:
    path = mixed_trace(tmp_path / "t", 20_000, seconds=20.0)
    with stalling_device(tmp_path) as (loop, place):
        freeze = threading.Timer(1.0, subprocess.run, (["fsfreeze", "--freeze", str(place)],))
        try:
            with open_guarded(loop.path, own=True) as target:
                freeze.start()
                begun = time.monotonic()
                result = replay(path, target, ReplayOptions(stall_limit_s=1.0))
                assert time.monotonic() - begun < 15
        finally:
            freeze.join()
            subprocess.run(["fsfreeze", "--unfreeze", str(place)], check=True)
        assert result.verdict == "WRONG"
        assert "the device stalled" in result.details["stopped_by"]
        assert result.details["in_flight_at_end"] > 0
        assert 0 < result.requests < 20_000
        assert result.errors == 0


def test_a_stop_of_the_replayer_is_not_the_device_s(own: Own, tmp_path: Path) -> None:
    """SIGSTOP for 1.2 s in the middle of 3 s, with a stall limit of less: LATE, and it says why."""
    path = mixed_trace(tmp_path / "t", 3000, seconds=3.0)
    replay(mixed_trace(tmp_path / "warm", 10, seconds=0.01), own.target)
    stop = f"sleep 1; kill -STOP {os.getpid()}; sleep 1.2; kill -CONT {os.getpid()}"
    stopper = subprocess.Popen(["sh", "-c", stop])
    result = replay(path, own.target, ReplayOptions(stall_limit_s=1.0))
    assert stopper.wait() == 0
    assert result.verdict == "LATE", result.fidelity["reasons"]
    assert any("the replayer itself was held up for 1.2" in r for r in result.fidelity["reasons"])
    held_up = result.details["engine"]["held_up"]
    assert 1.1 < held_up["longest_s"] <= held_up["total_s"]
    assert result.fidelity["lag_ns"]["p99"] > 0.8e9
    assert result.fidelity["lag_floor_ns"]["p99"] < 0.6e9
    assert result.requests == 3000


@pytest.mark.slow
def test_fio_on_a_stalled_device_is_given_up(tmp_path: Path) -> None:
    path = mixed_trace(tmp_path / "t", 20_000, seconds=20.0)
    with stalling_device(tmp_path) as (loop, place):
        freeze = threading.Timer(1.5, subprocess.run, (["fsfreeze", "--freeze", str(place)],))
        thaw = threading.Timer(8.0, subprocess.run, (["fsfreeze", "--unfreeze", str(place)],))
        try:
            with open_guarded(loop.path, own=True) as target:
                freeze.start()
                thaw.start()
                result = replay(path, target, ReplayOptions(stall_limit_s=1.0, engine="fio"))
        finally:
            freeze.join()
            thaw.join()
        assert result.verdict == "WRONG"
        assert "stalled" in result.details["stopped_by"]


def test_the_ring_refused_by_the_kernel_is_reported(
    own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ring whose descriptor is something else: the engine ends and says why."""
    from harness.replay.rig import Rig

    started = Rig.start

    def sabotaged(rig: Rig) -> None:
        rig.lanes[0] = rig.lanes[0]._replace(ring_fd=own.target.fd)
        started(rig)

    monkeypatch.setattr(Rig, "start", sabotaged)
    path = mixed_trace(tmp_path / "t", 100)
    result = replay(path, own.target)
    assert result.verdict == "WRONG"
    assert "the kernel refused the ring" in result.details["stopped_by"]
    assert result.requests == 0


def test_a_device_that_is_gone_ends_the_replay(
    own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors, and the kernel no longer knows the device (said here by a patch)."""
    path = mixed_trace(tmp_path / "t", 20_000, seconds=20.0)
    cut = threading.Timer(1.0, os.ftruncate, (own.loop.backing_fd, 0))
    monkeypatch.setattr("harness.replay.session.is_present", lambda name: False)
    cut.start()
    begun = time.monotonic()
    result = replay(path, own.target)
    cut.join()
    assert time.monotonic() - begun < 10
    assert result.verdict == "WRONG"
    assert result.details["stopped_by"] == f"the device {own.loop.name} is gone"
    assert 0 < result.requests < 20_000
    assert result.errors > 0
