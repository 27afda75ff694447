"""LRU-K as a gate: what leaves DRAM is written if it was referenced K times, else it is dropped.

Victims by LRU. A reference is the making of the object or its use; ``count=path`` counts for a
state also every request that passes over it. ``gate=session`` asks instead whether the session has
made K objects of the kind of which the K-th newest is still in DRAM. Counts outlive their objects
in a table of ``ghost`` times as many as DRAM holds, 0 for none.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from harness.simulator.hooks import (
    Parameters,
    World,
    class_of,
    in_dram,
    resident,
    session_of,
    state_at,
)
from harness.simulator.state import NODES, NOW

_MOST = 100
_K, _BY_SESSION, _BY_PATH, _GHOSTS = range(4)


class Settings(Parameters):
    """``k`` references; what is counted; ghosts as a multiple of what DRAM holds."""

    k: int = Field(2, ge=1, le=_MOST)
    gate: Literal["object", "session"] = "object"
    count: Literal["object", "path"] = "object"
    ghost: float = Field(10.0, ge=0)


class Own(NamedTuple):
    """References of each object, the last ones made by each session, and the table of ghosts.

    ``seen`` uint8[objects]; ``newest`` int32[sessions, 2, k] and ``made`` int64[sessions, 2];
    ``ghosts`` int32[2, places], ``ghost_turn`` int64[2], ``ghost_of`` int64[objects] (turn in which
    the object became a ghost); ``settings`` int64[4].
    """

    seen: np.ndarray
    newest: np.ndarray
    made: np.ndarray
    ghosts: np.ndarray
    ghost_turn: np.ndarray
    ghost_of: np.ndarray
    settings: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Nothing was referenced yet."""
    held = world.dram_bytes / world.sizes.chunk_bytes
    places = int(min(settings.ghost * held, 2 * world.nodes))
    sessions = world.sessions if settings.gate == "session" else 0
    numbers = [settings.k, settings.gate == "session", settings.count == "path", places]
    return Own(
        np.zeros(world.objects, np.uint8),
        np.full((sessions, 2, settings.k), -1, np.int32),
        np.zeros((sessions, 2), np.int64),
        np.full((2, places), -1, np.int32),
        np.zeros(2, np.int64),
        np.full(world.objects, -1, np.int64),
        np.array(numbers, np.int64),
    )


def used(s: Any, first: int, count: int) -> None:
    """One more reference."""
    by_path = s.p.settings[_BY_PATH] != 0
    if by_path and first >= s.cfg[NODES]:
        return  # the chunks under it count for it
    for o in range(first, first + count):
        s.p.seen[o] = min(int(s.p.seen[o]) + 1, _MOST)
    if by_path:
        for node in range(first, first + count):
            o = state_at(s, node)
            if o >= 0 and resident(s, o):
                s.p.seen[o] = min(int(s.p.seen[o]) + 1, _MOST)


def created(s: Any, o: int) -> None:
    """Making is a reference too."""
    before = int(s.p.seen[o]) if s.p.settings[_GHOSTS] != 0 else 0
    s.p.seen[o] = min(before + 1, _MOST)
    if s.p.settings[_BY_SESSION] != 0:
        session, kind = s.session[s.reg[NOW]], class_of(s, o)
        s.p.newest[session, kind, s.p.made[session, kind] % s.p.settings[_K]] = o
        s.p.made[session, kind] += 1


def demote(s: Any, o: int) -> bool:
    """The gate."""
    k = s.p.settings[_K]
    if s.p.settings[_BY_SESSION] == 0:
        return s.p.seen[o] >= k
    session, kind = session_of(s, o), class_of(s, o)
    made = s.p.made[session, kind]
    return made >= k and in_dram(s, s.p.newest[session, kind, made % k])


def left(s: Any, o: int, tier: int) -> None:
    """What is nowhere any more becomes a ghost; the oldest ghost is forgotten for it."""
    places = s.p.settings[_GHOSTS]
    if places == 0 or resident(s, o):
        return
    kind = class_of(s, o)
    turn = s.p.ghost_turn[kind]
    s.p.ghost_of[o] = turn
    oldest = s.p.ghosts[kind, turn % places]
    if oldest >= 0 and s.p.ghost_of[oldest] == turn - places and not resident(s, oldest):
        s.p.seen[oldest] = 0
    s.p.ghosts[kind, turn % places] = o
    s.p.ghost_turn[kind] = turn + 1
