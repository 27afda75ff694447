"""Flashield in Baleen's form: written if hits in DRAM say that it will be hit often enough again.

What leaves DRAM is an example: its hits since it was made, and ``horizon_s`` later whether it was
asked for more than ``n`` times in between. Once a horizon a cut is fitted to the examples of the
last one: of all cuts the lowest that is wrong least often. All is written before the first fit.
Baleen trains a support vector machine; with the one feature that a trace has it is a cut. Victims
by LRU; an object is one example at a time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field, PositiveFloat

from harness.simulator.hooks import Parameters, World
from harness.simulator.state import NOW

LIKE = True

_MOST = 32
_FIRST, _LAST, _CUT, _N = range(4)
_HORIZON_S, _FIT_S = range(2)


class Settings(Parameters):
    """How far an example looks ahead, and the hits that it must exceed."""

    horizon_s: PositiveFloat = 3600.0
    n: int = Field(0, ge=0)


class Own(NamedTuple):
    """``hits``, ``asked`` int64[objects] (since made, ever); of examples ``said`` int64[objects]
    (hits then, -1: is none), ``asked_then`` int64, ``at_s`` float64[objects], and their order as
    ``line`` int32[objects]; ``right``, ``wrong`` int64[_MOST] (examples by hits: asked for again
    or not); ``numbers`` int64[4]; ``clock`` float64[2]."""

    hits: np.ndarray
    asked: np.ndarray
    said: np.ndarray
    asked_then: np.ndarray
    at_s: np.ndarray
    line: np.ndarray
    right: np.ndarray
    wrong: np.ndarray
    numbers: np.ndarray
    clock: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """No example yet, no cut."""
    objects = world.objects
    return Own(
        hits=np.zeros(objects, np.int64),
        asked=np.zeros(objects, np.int64),
        said=np.full(objects, -1, np.int64),
        asked_then=np.zeros(objects, np.int64),
        at_s=np.zeros(objects),
        line=np.zeros(objects, np.int32),
        right=np.zeros(_MOST, np.int64),
        wrong=np.zeros(_MOST, np.int64),
        numbers=np.array([0, 0, 0, settings.n], np.int64),
        clock=np.array([settings.horizon_s, 2.0 * settings.horizon_s]),
    )


def begin(s: Any, r: int) -> None:
    """Examples whose horizon is over are judged; then it may be time to fit."""
    now_s, numbers = s.time_s[r], s.p.numbers
    while numbers[_FIRST] < numbers[_LAST]:
        o = s.p.line[numbers[_FIRST] % len(s.p.line)]
        if s.p.at_s[o] + s.p.clock[_HORIZON_S] > now_s:
            break
        if s.p.asked[o] - s.p.asked_then[o] > numbers[_N]:
            s.p.right[s.p.said[o]] += 1
        else:
            s.p.wrong[s.p.said[o]] += 1
        s.p.said[o] = -1
        numbers[_FIRST] += 1
    if now_s >= s.p.clock[_FIT_S]:
        fit(s)
        while s.p.clock[_FIT_S] <= now_s:
            s.p.clock[_FIT_S] += s.p.clock[_HORIZON_S]


def fit(s: Any) -> None:
    """The lowest cut that is wrong least often; the examples are used up."""
    errors = 0
    for hits in range(_MOST):
        errors += s.p.wrong[hits]
    least, cut = errors, 0
    for hits in range(_MOST):
        errors += s.p.right[hits] - s.p.wrong[hits]
        if errors < least:
            least, cut = errors, hits + 1
    s.p.numbers[_CUT] = cut
    for hits in range(_MOST):
        s.p.right[hits] = 0
        s.p.wrong[hits] = 0


def used(s: Any, first: int, count: int) -> None:
    """Hit."""
    for o in range(first, first + count):
        s.p.hits[o] += 1
        s.p.asked[o] += 1


def created(s: Any, o: int) -> None:
    """Made, perhaps anew."""
    s.p.hits[o] = 0
    s.p.asked[o] += 1


def recomputed(s: Any, o: int) -> None:
    """Asked for, though of no use."""
    s.p.asked[o] += 1


def demote(s: Any, o: int) -> bool:
    """By the cut; and an example, whatever it says."""
    hits = min(s.p.hits[o], _MOST - 1)
    if s.p.said[o] < 0:
        s.p.said[o] = hits
        s.p.asked_then[o] = s.p.asked[o]
        s.p.at_s[o] = s.time_s[s.reg[NOW]]
        s.p.line[s.p.numbers[_LAST] % len(s.p.line)] = o
        s.p.numbers[_LAST] += 1
    return hits >= s.p.numbers[_CUT]
