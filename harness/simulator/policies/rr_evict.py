"""RR-evict, from its title: sessions give up objects in turn, a quantum each, whatever their age.

The paper was not seen. Each tier goes round the sessions in the order of their first requests; one
that has nothing there when its turn comes joins again at its place. An object belongs to the
session that first made it. Within a session the oldest, deepest goes first, by the rules of the
tree; what leaves DRAM is written, or with ``write=none`` dropped. What a request uses stays.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from harness.simulator.hooks import EVICT, Parameters, World, pinned, size_of
from harness.simulator.lists import tier_index
from harness.simulator.state import NOW

LIKE = True

_QUANTUM, _WRITE, _ARRIVED = range(3)


class Settings(Parameters):
    """``chunks`` whose bytes a session gives up before the next one's turn."""

    chunks: int = Field(16, ge=1)
    write: Literal["all", "none"] = "all"


class Own(NamedTuple):
    """``owner`` int32[objects] (-1); ``rank`` int64[sessions] (order of arrival, -1);
    ``turn``, ``given`` int64[2, sessions] (the round of its next turn, bytes given up in it);
    ``place`` int64[2, 2] (round and rank of whose turn it was last); ``numbers`` int64[3]."""

    owner: np.ndarray
    rank: np.ndarray
    turn: np.ndarray
    given: np.ndarray
    place: np.ndarray
    numbers: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Nobody has come."""
    quantum = settings.chunks * world.sizes.chunk_bytes
    return Own(
        np.full(world.objects, -1, np.int32),
        np.full(world.sessions, -1, np.int64),
        np.zeros((2, world.sessions), np.int64),
        np.zeros((2, world.sessions), np.int64),
        np.zeros((2, 2), np.int64),
        np.array([quantum, settings.write == "all", 0], np.int64),
    )


def begin(s: Any, r: int) -> None:
    """A new session is last in the order."""
    session = s.session[r]
    if s.p.rank[session] < 0:
        s.p.rank[session] = s.p.numbers[_ARRIVED]
        s.p.numbers[_ARRIVED] += 1


def created(s: Any, o: int) -> None:
    """Belongs to whoever made it first."""
    if s.p.owner[o] < 0:
        s.p.owner[o] = s.session[s.reg[NOW]]


def entered(s: Any, o: int, tier: int) -> None:
    """A session whose turns went by without it has its next one where it stands in the order."""
    at, session = tier_index(tier), s.p.owner[o]
    now, rank = s.p.place[at, 0], s.p.place[at, 1]
    if s.p.turn[at, session] < now:
        s.p.turn[at, session] = now if s.p.rank[session] > rank else now + 1
        s.p.given[at, session] = 0


def left(s: Any, o: int, tier: int) -> None:
    """Its session gave it up; what a hit moved up was not given up."""
    if pinned(s, o):
        return
    at, session = tier_index(tier), s.p.owner[o]
    s.p.place[at, 0] = s.p.turn[at, session]
    s.p.place[at, 1] = s.p.rank[session]
    s.p.given[at, session] += size_of(s, o)
    if s.p.given[at, session] >= s.p.numbers[_QUANTUM]:
        s.p.given[at, session] = 0
        s.p.turn[at, session] += 1


def key(s: Any, q: int, o: int) -> float:
    """Earliest round, then earliest arrival."""
    at, session = 1 if q == EVICT else 0, s.p.owner[o]
    return float(s.p.turn[at, session] * len(s.p.rank) + s.p.rank[session])


def demote(s: Any, o: int) -> bool:
    """As told."""
    return s.p.numbers[_WRITE] != 0
