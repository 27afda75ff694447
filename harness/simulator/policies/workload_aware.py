"""Workload-aware eviction: first goes what is least likely asked for again in its kind's next gap.

"KVCache cache in the wild": kinds are request type and turn (up to 10), gaps of a kind are
exponential. The form of the probability is ours: with the share reused and the rate of a kind,
P = share (e^-ra - e^-(ra + 1)) / (1 - share + share e^-ra) for what was asked for a seconds ago. An
object is of the kind of the request that asked for it last. Rates are fitted each ``refit``
requests, or once after half of them; LRU before. Written if it leaves DRAM.
"""

from __future__ import annotations

from math import exp
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from harness.simulator.hooks import Parameters, World, order
from harness.simulator.state import NOW

REBUILD = True
ANY_NODE = True
LIKE = True
NEEDS = ("tags",)

_TURNS = 11
_KINDS = 256 * _TURNS
_WITHIN = 1.0 - exp(-1.0)
_NEXT, _EVERY = range(2)


class Settings(Parameters):
    """When rates are fitted, and after how many requests again."""

    fit: Literal["online", "first_half"] = "online"
    refit: int = Field(1000, ge=1)


class Own(NamedTuple):
    """``asked_at`` int32[objects] (last request, -1); by kind, the last place for all together:
    ``asked``, ``again`` int64 (objects asked for; of those, again), ``gap_s`` float64 (sum);
    ``share``, ``rate`` float64 as fitted (share -1: not yet); ``numbers`` int64[2]."""

    asked_at: np.ndarray
    asked: np.ndarray
    again: np.ndarray
    gap_s: np.ndarray
    share: np.ndarray
    rate: np.ndarray
    numbers: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Nothing is known."""
    half = settings.fit == "first_half"
    first, every = (world.requests // 2, world.requests) if half else (settings.refit,) * 2
    return Own(
        np.full(world.objects, -1, np.int32),
        np.zeros(_KINDS + 1, np.int64),
        np.zeros(_KINDS + 1, np.int64),
        np.zeros(_KINDS + 1),
        np.full(_KINDS + 1, -1.0),
        np.zeros(_KINDS + 1),
        np.array([first, max(every, 1)], np.int64),
    )


def kind_of(s: Any, r: int) -> int:
    """Type and turn of a request."""
    return int(s.tag[r]) * _TURNS + min(int(s.turn[r]), _TURNS - 1)


def begin(s: Any, r: int) -> None:
    """Fit when it is time."""
    if r < s.p.numbers[_NEXT]:
        return
    s.p.numbers[_NEXT] = r + s.p.numbers[_EVERY]
    for kind in range(_KINDS + 1):
        if s.p.asked[kind] > 0:
            again = s.p.again[kind]
            s.p.share[kind] = again / s.p.asked[kind]
            s.p.rate[kind] = again / max(s.p.gap_s[kind], 1e-9)


def ask(s: Any, o: int) -> None:
    """Its last kind has one gap more, its new one an object more."""
    now, before = s.reg[NOW], s.p.asked_at[o]
    if before >= 0:
        gap_s = s.time_s[now] - s.time_s[before]
        kind = kind_of(s, before)
        for at in (kind, _KINDS):
            s.p.again[at] += 1
            s.p.gap_s[at] += gap_s
    s.p.asked_at[o] = now
    for at in (kind_of(s, now), _KINDS):
        s.p.asked[at] += 1


def used(s: Any, first: int, count: int) -> None:
    """Asked for, and found."""
    for o in range(first, first + count):
        ask(s, o)


def created(s: Any, o: int) -> None:
    """Asked for, and made."""
    ask(s, o)


def recomputed(s: Any, o: int) -> None:
    """Asked for, and found behind no state."""
    ask(s, o)


def key(s: Any, q: int, o: int) -> float:
    """Least likely first; a kind of which nothing is known is like all together."""
    if s.p.share[_KINDS] < 0.0:
        return order(s, o)
    before = s.p.asked_at[o]
    kind = kind_of(s, before)
    if s.p.share[kind] < 0.0:
        kind = _KINDS
    share = s.p.share[kind]
    age = min(s.p.rate[kind] * (s.time_s[s.reg[NOW]] - s.time_s[before]), 700.0)
    return share * _WITHIN / ((1.0 - share) * exp(age) + share)
