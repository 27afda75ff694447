"""Ctrl-C and kill -9 at any moment: partial results that say so, and nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness.core.errors import Interrupted
from harness.device.guard import open_guarded
from harness.device.info import read_stat
from harness.device.loop import LoopDevice, own_loop_devices
from harness.device.queue import restore_stale
from harness.replay.options import ReplayOptions
from harness.replay.result import ReplayInterrupted
from harness.replay.run import replay

from .conftest import Own
from .traces import MIB, mixed_trace

pytestmark = pytest.mark.root


def interrupt_after(seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


@pytest.mark.parametrize("mode", ["timed", "closed-loop"])
def test_ctrl_c_drains_and_gives_what_was_done(own: Own, tmp_path: Path, mode: str) -> None:
    path = mixed_trace(tmp_path / "t", 20_000, seconds=20.0)
    replay(mixed_trace(tmp_path / "warm", 10, seconds=0.01), own.target, mode=mode)
    timer = interrupt_after(1.5)
    with pytest.raises(ReplayInterrupted) as caught:
        replay(path, own.target, mode=mode)
    timer.join()
    result = caught.value.result
    assert caught.value.exit_code == 130
    assert result.verdict == "WRONG"
    assert "interrupted" in result.fidelity["reasons"]
    assert result.details["interrupted"] is True
    assert result.details["in_flight_at_end"] == 0
    assert 0 < result.requests < 20_000
    seen = result.details["block_layer"]["seen"]
    assert seen["R"]["requests"] + seen["W"]["requests"] == result.requests
    assert result.bytes == seen["R"]["bytes"] + seen["W"]["bytes"]


def test_ctrl_c_ends_fio_too(own: Own, tmp_path: Path) -> None:
    path = mixed_trace(tmp_path / "t", 20_000, seconds=20.0)
    timer = interrupt_after(1.5)
    with pytest.raises(ReplayInterrupted) as caught:
        replay(path, own.target, ReplayOptions(engine="fio"))
    timer.join()
    assert caught.value.result.details["interrupted"] is True
    assert caught.value.result.verdict == "WRONG"


def open_descriptors() -> list[str]:
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            continue
    return sorted(name for name in names if "io_uring" in name or "loop" in name)


@pytest.mark.slow
def test_cancelled_at_random_nothing_is_left(tmp_path: Path) -> None:
    """Interrupted anywhere from opening to closing: no thread, ring, device or setting stays."""
    path = mixed_trace(tmp_path / "t", 3000, seconds=0.6)
    chance = random.Random(5)
    threads, descriptors = threading.active_count(), open_descriptors()
    cancelled, name = 0, "loop0"
    for _ in range(40):
        mode = chance.choice(["timed", "flat-out", "closed-loop"])
        options = ReplayOptions(mode=mode, verify=chance.random() < 0.3)
        timer = threading.Timer(chance.uniform(0.0, 0.9), os.kill, (os.getpid(), signal.SIGINT))
        try:
            try:
                timer.start()  # the signal may come before this returns
                with LoopDevice(64 * MIB, "/dev/shm") as loop:
                    name = loop.name
                    Path(f"/sys/block/{name}/queue/nomerges").write_text("0")
                    with open_guarded(loop.path, own=True) as target:
                        replay(path, target, options)
            finally:
                timer.join()
                time.sleep(0.02)  # the signal is on its way until the interpreter looks
        except (KeyboardInterrupt, Interrupted):
            cancelled += 1
        assert Path(f"/sys/block/{name}/queue/nomerges").read_text().strip() == "0"
    assert cancelled >= 35  # a generator that is being dropped may swallow one
    assert threading.active_count() == threads
    assert open_descriptors() == descriptors
    assert not own_loop_devices()
    assert restore_stale() == []


def start_cli(trace: Path, results: Path, *words: str) -> subprocess.Popen[bytes]:
    with LoopDevice(MIB, "/dev/shm") as next_one:  # what another process left of its settings
        Path(f"/sys/block/{next_one.name}/queue/nomerges").write_text("0")
    return subprocess.Popen(
        [
            sys.executable, "-m", "harness", "replay", str(trace), "--loop", "64MiB",
            "--loop-dir", "/dev/shm", "--results", str(results), *words,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def loop_of(process: subprocess.Popen[bytes]) -> str:
    """Name of the loop device that ``process`` replays on, once it is well under way."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        for note in Path("/run/kvflash-harness").glob("queue-*.json"):
            with contextlib.suppress(OSError, ValueError):
                record = json.loads(note.read_text())
                name = str(record["disk"])
                if record["pid"] == process.pid and under_way(name):
                    return name
        time.sleep(0.02)
    raise AssertionError(f"no replay began: {process.communicate()!r}")


def under_way(name: str) -> bool:
    first = read_stat(name)
    time.sleep(0.1)
    return read_stat(name).since(first).write_ios > 20


def nomerges(name: str) -> str:
    return Path(f"/sys/block/{name}/queue/nomerges").read_text().strip()


def test_after_kill_9_the_next_start_restores_the_queue(own: Own, tmp_path: Path) -> None:
    process = start_cli(mixed_trace(tmp_path / "t.parquet", 20_000, seconds=20.0), tmp_path)
    name = loop_of(process)
    assert nomerges(name) == "2"
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 5
    while Path(f"/sys/block/{name}/loop").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/sys/block/{name}/loop").exists()
    assert nomerges(name) == "2"
    replay(mixed_trace(tmp_path / "next", 10, seconds=0.01), own.target)
    assert nomerges(name) == "0"
    partial = list(tmp_path.glob("*.partial/run.json"))
    assert len(partial) == 1
    assert json.loads(partial[0].read_text())["state"] == "running"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_command_keeps_a_partial_result(tmp_path: Path, how: signal.Signals) -> None:
    process = start_cli(mixed_trace(tmp_path / "t.parquet", 20_000, seconds=20.0), tmp_path)
    name = loop_of(process)
    process.send_signal(how)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"interrupted after" in said
    assert b"Traceback" not in said
    (folder,) = tmp_path.glob("*-replay-t.partial")
    kept = json.loads((folder / "replay.json").read_text())
    assert kept["interrupted"] is True
    assert 0 < kept["requests"] < 20_000
    assert json.loads((folder / "run.json").read_text())["state"] == "interrupted"
    assert nomerges(name) == "0"
