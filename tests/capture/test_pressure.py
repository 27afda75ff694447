"""When a machine is busy: at first, once little is idle, until much is."""

from __future__ import annotations

import os
import time

import pytest

from harness.capture import pressure
from harness.capture.pressure import Pressure


class Machine:
    """A clock, and CPUs of which ``idle`` have nothing to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = self.idle_s = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(pressure, "_idle_s", lambda: self.idle_s)

    def live(self, seconds: float, idle: float) -> None:
        self.now_s += seconds
        self.idle_s += seconds * idle


def test_it_is_high_from_when_little_is_idle_until_much_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch)
    watched = Pressure()
    assert watched.high()  # nothing is known yet
    for seconds, idle, high in (
        (2.1, 0.9, False), (0.2, 0.6, False), (0.2, 0.4, True), (2.1, 0.7, True), (1.0, 2.0, True),
        (1.1, 2.0, False), (0.05, 0.0, False), (0.1, 0.0, True),
    ):  # fmt: skip
        machine.live(seconds, idle)
        assert watched.high() is high


def test_what_is_idle_is_read_of_this_machine() -> None:
    before_s, began_s = pressure._idle_s(), time.monotonic()
    time.sleep(0.05)
    passed_s = time.monotonic() - began_s
    assert 0 <= pressure._idle_s() - before_s <= passed_s * (os.cpu_count() or 1) + 0.05
