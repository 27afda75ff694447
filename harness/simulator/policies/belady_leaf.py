"""Belady on a prefix tree: the leaf whose next use is furthest away goes first, in both tiers.

A bound to compare with, not a policy: it knows all requests to come. What leaves DRAM is written if
it is asked for again, and earlier than what the SSD would give up for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from harness.simulator.hooks import EVICT, Parameters, World, peek, size_of, state_at
from harness.simulator.state import CAP_SSD, USED_SSD

REBUILD = True
NEEDS = ("future",)

_NEVER = np.iinfo(np.int32).max


class Own(NamedTuple):
    """``following`` int32[objects]: next request that asks for the object, a large number if none;
    ``unused`` float64[1]."""

    following: np.ndarray
    unused: np.ndarray


def create(world: World, settings: Parameters) -> Own:
    """States are first asked for when the trace says, chunks from their first request on."""
    following = np.full(world.objects, _NEVER, np.int32)
    asked = np.flatnonzero(world.wanted >= 0)[::-1]
    following[world.state_of[world.wanted[asked]]] = asked
    return Own(following, np.zeros(1))


def begin(s: Any, r: int) -> None:
    """What the request asks for is next asked for later."""
    for run in range(s.path_of[r], s.path_of[r + 1]):
        first, later = s.path_first[run], s.next_asked[run]
        if later < 0:
            later = _NEVER
        for node in range(first, first + s.path_length[run]):
            s.p.following[node] = later
    if s.wanted[r] >= 0:
        later = s.next_asked_state[r]
        s.p.following[state_at(s, s.wanted[r])] = later if later >= 0 else _NEVER


def key(s: Any, q: int, o: int) -> float:
    """Furthest first."""
    return -float(s.p.following[o])


def demote(s: Any, o: int) -> bool:
    """If it is worth the place it takes."""
    following = s.p.following[o]
    if following == _NEVER:
        return False
    if s.reg[USED_SSD] + size_of(s, o) <= s.cfg[CAP_SSD]:
        return True
    victim = peek(s, EVICT)
    return victim >= 0 and following < s.p.following[victim]
