"""How an engine keeps its times on a loop device: alone, and when others want its processor."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.core.ops import Op
from harness.replay import punctual, submit
from harness.replay.lane import At, make_flight
from harness.replay.options import ReplayOptions
from harness.replay.result import ReplayResult
from harness.replay.run import replay
from harness.replay.window import Meter

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
    assert result.details["engine"]["priority"].startswith("normal, real-time for ")
    assert result.fidelity["order_kept"] == 1


def plain(kernel: Any) -> Any:
    """The function that was compiled."""
    return kernel.py_func


MODEST: Any = SimpleNamespace(modest=True)


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Those that the kernel is asked for, by rules that run uncompiled; it refuses none."""
    asked: list[int] = []
    monkeypatch.setattr(punctual, "_promote", plain(punctual._promote))
    monkeypatch.setattr(punctual, "_schedule", lambda flight, policy: asked.append(policy) or True)
    return asked


def test_an_engine_is_real_time_until_it_has_caught_up(policies: list[int]) -> None:
    flight, meter = make_flight(8, 4, 0), np.zeros(len(Meter), np.int64)
    flight.at[At.LOOKED] = 1000
    for _ in range(2):
        plain(punctual.note_full)(MODEST, flight, meter)
    assert policies == [os.SCHED_FIFO]
    assert flight.at[At.FULL] == 1000
    flight.at[At.LOOKED] = 5000
    for _ in range(2):
        plain(punctual.note_on_time)(flight, meter)
    assert policies == [os.SCHED_FIFO, os.SCHED_OTHER]
    assert meter[Meter.REALTIME_NS] == 4000


def test_an_engine_is_real_time_while_many_commands_were_late(policies: list[int]) -> None:
    flight, meter = make_flight(8, 4, 0), np.zeros(len(Meter), np.int64)
    meter[Meter.ISSUED] = 1000
    plain(punctual.note_late)(MODEST, flight, meter, 21)
    assert policies == []
    plain(punctual.note_late)(MODEST, flight, meter, 1)
    assert policies == [os.SCHED_FIFO]
    meter[Meter.ISSUED] = 2000
    plain(punctual.note_on_time)(flight, meter)
    assert policies == [os.SCHED_FIFO]
    meter[Meter.ISSUED] = 2400
    plain(punctual.note_on_time)(flight, meter)
    assert policies == [os.SCHED_FIFO, os.SCHED_OTHER]


@pytest.mark.parametrize(("due", "caught_up"), [(999, False), (1000, False), (1001, True)])
def test_an_engine_has_caught_up_when_the_next_command_is_not_due(
    due: int, caught_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(submit, "now_ns", lambda scratch: 1000)
    monkeypatch.setattr(submit, "in_flight", lambda lane, flight: 1)
    monkeypatch.setattr(submit, "may_spin", lambda lane, flight, busy: False)
    monkeypatch.setattr(submit, "wait", lambda *given: None)
    monkeypatch.setattr(submit, "note_on_time", lambda *given: told.append(given))
    flight, meter = make_flight(8, 4, 0), np.zeros(len(Meter), np.int64)
    plain(submit.wait_until)(MODEST, flight, meter, due, 10_000, 0)
    assert bool(told) == caught_up


def test_a_refusal_is_not_asked_for_again(
    policies: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(punctual, "_schedule", lambda flight, policy: bool(asked.append(policy)))
    flight, meter = make_flight(8, 4, 0), np.zeros(len(Meter), np.int64)
    for _ in range(2):
        plain(punctual.note_full)(MODEST, flight, meter)
    assert asked == [os.SCHED_FIFO]
    assert meter[Meter.REFUSED] == 1


def test_a_processor_is_left_for_the_kernels_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert punctual.spare_processor(1)
    assert not punctual.spare_processor(2)


def test_a_real_time_engine_that_spins_sleeps_a_tenth_of_the_time() -> None:
    flight = make_flight(8, 1, 0)
    flight.at[At.REALTIME] = punctual.ALWAYS
    for _ in range(3):  # seconds
        awake_ns = 0
        for _ in range(10_000):
            sleeps = flight.at[At.AWAKE] >= punctual._AWAKE_NS
            flight.at[At.AWAKE] += 100_000
            if sleeps:
                plain(punctual.note_sleep)(flight, 100_000)
            else:
                awake_ns += 100_000
        assert 0.85e9 < awake_ns < 0.95e9


def test_devices_that_threads_serve_are_known_by_name() -> None:
    assert punctual.served_by_threads("loop7")
    assert not punctual.served_by_threads("nvme0n1")
