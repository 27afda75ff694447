"""How an engine keeps its times on a loop device: alone, and when others want its processor."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from harness.core.ops import Op
from harness.replay import punctual
from harness.replay.lane import At, make_flight
from harness.replay.options import ReplayOptions
from harness.replay.result import ReplayResult
from harness.replay.run import replay

from .conftest import Own
from .traces import write_trace

pytestmark = pytest.mark.root

_PROCESSORS = len(os.sched_getaffinity(0))


def steady(path: Path, rate: int, seconds: float) -> Path:
    """Reads of 4 KiB, ``rate`` a second."""
    count = int(rate * seconds)
    place = np.random.default_rng(1).integers(0, 1024, count)
    due = np.arange(count) * int(1e9 / rate)
    return write_trace(path, ts_ns=due, op=Op.READ, offset=place * 4096, length=4096)


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """Processes that want a processor each."""
    words = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    children = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        yield
    finally:
        for child in children:
            child.kill()
            child.communicate()


def engine(path: Path, own: Own, **choices: bool) -> ReplayResult:
    return replay(path, own.target, ReplayOptions(**choices))


def test_where_processors_are_wanted_by_others_the_engine_is_real_time(
    own: Own, tmp_path: Path
) -> None:
    path = steady(tmp_path / "t", 2000, 1.0)
    with hogs(2 * _PROCESSORS):
        result = engine(path, own)
        assert result.details["engine"]["priority"] == "real-time"
        meek = engine(path, own, realtime=False).details["engine"]["priority"]
    assert meek == "nice -10"
    assert not any("real-time" in note for note in result.details["notes"])


def test_an_engine_that_is_held_up_becomes_real_time(
    own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(punctual, "_crowded", lambda: False)
    with hogs(2 * _PROCESSORS):
        result = engine(steady(tmp_path / "t", 20_000, 3.0), own)
    assert result.details["engine"]["priority"].startswith("normal, real-time from ")
    assert result.fidelity["order_kept"] == 1


def test_a_processor_is_left_for_the_kernels_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert punctual.spare_processor(1)
    assert not punctual.spare_processor(2)


def test_a_real_time_engine_that_spins_sleeps_a_tenth_of_the_time() -> None:
    flight = make_flight(8, 1, 0)
    flight.at[At.REALTIME] = 1
    for _ in range(3):  # seconds
        awake_ns = 0
        for _ in range(10_000):
            sleeps = flight.at[At.AWAKE] >= punctual._AWAKE_NS
            flight.at[At.AWAKE] += 100_000
            if sleeps:
                punctual.note_sleep.py_func(flight, 100_000)
            else:
                awake_ns += 100_000
        assert 0.85e9 < awake_ns < 0.95e9


def test_devices_that_threads_serve_are_known_by_name() -> None:
    assert punctual.served_by_threads("loop7")
    assert not punctual.served_by_threads("nvme0n1")
