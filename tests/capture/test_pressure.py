"""When a machine is busy: less than half a CPU left by others."""

from __future__ import annotations

import time

import pytest

from harness.capture import pressure
from harness.capture.pressure import Pressure


@pytest.mark.parametrize(("free", "high"), [(0.0, True), (0.4, True), (0.6, False), (1.9, False)])
def test_half_a_cpu_is_enough(monkeypatch: pytest.MonkeyPatch, free: float, high: bool) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(pressure, "_free_s", lambda: free * now_s)
    watched = Pressure()
    assert not watched.high()  # nothing is known yet
    now_s += 0.5
    assert watched.high() is high


def test_what_this_process_uses_is_free() -> None:
    before_s, began_s = pressure._free_s(), time.process_time()
    while time.process_time() < began_s + 0.1:
        pass
    assert pressure._free_s() - before_s >= 0.1
