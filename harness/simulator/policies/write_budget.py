"""A write budget: what leaves DRAM is written if it is worth a threshold that follows the writes.

Victims by LRU. An object is worth the times it was asked for, times the chunks that it saves (one,
or for a state those from the last state before it), over its size in chunks. At the end of each
window of the trace's time the threshold is multiplied by exp(gain (W - B) / B), W being what was
written in the window and B what may be. ``by=coin`` writes with probability 1 / threshold instead,
as CacheLib steers its admission. Without a budget all is written. The form of the controller is
Baleen's idea of a threshold that meets a rate, made online; gain and score are ours.
"""

from __future__ import annotations

from math import exp
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveFloat

from harness.simulator.coins import PRIME, thrown
from harness.simulator.hooks import Parameters, World, chunks_behind, class_of, identity, size_of
from harness.simulator.state import SIZE_FULL, SIZE_STATE, WRITES

_LEAST, _MOST = 2.0**-20, 1e12
_STEP = 2.0
_BUDGET, _WINDOW_S, _GAIN, _BY_COIN, _THRESHOLD, _ENDS_S, _WRITTEN = range(7)


class Settings(Parameters):
    """``bytes_s`` that may be written, none for no limit; ``window_s``; ``gain`` a window."""

    bytes_s: PositiveFloat | None = None
    window_s: PositiveFloat = 60.0
    gain: float = Field(0.5, gt=0, le=2)
    by: Literal["worth", "coin"] = "worth"
    seed: int = Field(0, ge=0, lt=PRIME)


class Own(NamedTuple):
    """``asked``, ``offers`` int64[objects]; ``numbers`` float64[7]; ``seed`` int64[1]."""

    asked: np.ndarray
    offers: np.ndarray
    numbers: np.ndarray
    seed: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """At first all is written: the threshold is the least, or the coin certain."""
    coin = settings.by == "coin"
    window = settings.window_s
    budget = settings.bytes_s * window if settings.bytes_s else 0.0
    first = 1.0 if coin else _LEAST
    return Own(
        np.zeros(world.objects, np.int64),
        np.zeros(world.objects, np.int64),
        np.array([budget, window, settings.gain, coin, first, window, 0.0]),
        np.array([settings.seed], np.int64),
    )


def begin(s: Any, r: int) -> None:
    """The windows that are over; one in which nothing happened wrote nothing."""
    numbers = s.p.numbers
    while numbers[_BUDGET] > 0.0 and s.time_s[r] >= numbers[_ENDS_S]:
        total = float(
            s.total[WRITES, 0] * s.cfg[SIZE_FULL] + s.total[WRITES, 1] * s.cfg[SIZE_STATE]
        )
        over = (total - numbers[_WRITTEN]) / numbers[_BUDGET] - 1.0
        step = min(max(numbers[_GAIN] * over, -_STEP), _STEP)
        least = 1.0 if numbers[_BY_COIN] != 0.0 else _LEAST
        numbers[_THRESHOLD] = min(max(numbers[_THRESHOLD] * exp(step), least), _MOST)
        numbers[_WRITTEN] = total
        numbers[_ENDS_S] += numbers[_WINDOW_S]


def used(s: Any, first: int, count: int) -> None:
    """Asked for, and found."""
    for o in range(first, first + count):
        s.p.asked[o] += 1


def created(s: Any, o: int) -> None:
    """Asked for, and made."""
    s.p.asked[o] += 1


def recomputed(s: Any, o: int) -> None:
    """Asked for, and found behind no state."""
    s.p.asked[o] += 1


def worth(s: Any, o: int) -> float:
    """Chunks that it saved, or would have, for each chunk's bytes that it takes."""
    saves = 1 if class_of(s, o) == 0 else chunks_behind(s, o)
    return float(s.p.asked[o] * saves * s.cfg[SIZE_FULL]) / size_of(s, o)


def demote(s: Any, o: int) -> bool:
    """Above the threshold, or lucky."""
    numbers = s.p.numbers
    if numbers[_BUDGET] == 0.0:
        return True
    if numbers[_BY_COIN] == 0.0:
        return worth(s, o) >= numbers[_THRESHOLD]
    s.p.offers[o] += 1
    return thrown(s.p.seed[0], identity(s, o), s.p.offers[o]) * numbers[_THRESHOLD] < 1.0
