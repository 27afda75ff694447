"""TENURE, from its title: what is touched has a lease; first goes what outlived it, oldest first.

The paper was not seen. Ours: a lease is as long as ``quantile`` of the gaps between two requests of
a session, after a request of the same turn (up to 10), kept in buckets of powers of two seconds, of
which the upper edge counts; without any gap yet there is none. Among leases that run, the one that
ends first goes, and only if none is over. Both tiers; written if it leaves DRAM.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from harness.simulator.hooks import Parameters, World, order
from harness.simulator.state import NOW

REBUILD = True
ANY_NODE = True
LIKE = True

_TURNS = 11
_BUCKETS = 40
_OVER = -1e15


class Settings(Parameters):
    """``quantile`` of gaps that a lease is to outlast."""

    quantile: float = Field(0.9, gt=0, le=1)


class Own(NamedTuple):
    """``last`` int64[sessions] (last request, -1); ``gaps`` int64[turns, buckets]; ``lease_s``
    float64[turns]; ``ends_s`` float64[objects]; ``quantile`` float64[1]."""

    last: np.ndarray
    gaps: np.ndarray
    lease_s: np.ndarray
    ends_s: np.ndarray
    quantile: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """No gap, no lease."""
    return Own(
        np.full(world.sessions, -1, np.int64),
        np.zeros((_TURNS, _BUCKETS), np.int64),
        np.zeros(_TURNS),
        np.zeros(world.objects),
        np.array([settings.quantile]),
    )


def turn_of(s: Any, r: int) -> int:
    """Turn, up to 10."""
    return min(int(s.turn[r]), _TURNS - 1)


def begin(s: Any, r: int) -> None:
    """A gap ends, and leases after such a turn are as long as it says."""
    session = s.session[r]
    before = s.p.last[session]
    s.p.last[session] = r
    if before < 0:
        return
    turn, bucket, edge_s = turn_of(s, before), 0, 1.0
    while s.time_s[r] - s.time_s[before] > edge_s and bucket < _BUCKETS - 1:
        bucket += 1
        edge_s *= 2.0
    s.p.gaps[turn, bucket] += 1
    total = 0
    for at in range(_BUCKETS):
        total += s.p.gaps[turn, at]
    some, edge_s = 0, 1.0
    for at in range(_BUCKETS):
        some += s.p.gaps[turn, at]
        if some >= s.p.quantile[0] * total:
            break
        edge_s *= 2.0
    s.p.lease_s[turn] = edge_s


def touched(s: Any, o: int) -> None:
    """A new lease."""
    now = s.reg[NOW]
    s.p.ends_s[o] = s.time_s[now] + s.p.lease_s[turn_of(s, now)]


def used(s: Any, first: int, count: int) -> None:
    """Touched."""
    for o in range(first, first + count):
        touched(s, o)


def created(s: Any, o: int) -> None:
    """Touched."""
    touched(s, o)


def recomputed(s: Any, o: int) -> None:
    """Touched."""
    touched(s, o)


def key(s: Any, q: int, o: int) -> float:
    """Leases that are over in LRU order, then those that run by their end."""
    ends_s = s.p.ends_s[o]
    return ends_s if ends_s > s.time_s[s.reg[NOW]] else _OVER + order(s, o)
