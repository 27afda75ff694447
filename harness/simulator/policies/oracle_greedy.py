"""The paper's offline oracle, greedily: a write must earn more hits than it costs.

Equations 4 and 5. An object has as many hits left as requests to come ask for it; each saves one
chunk, or, for a state, the chunks from the last state before it. Both tiers give up what has the
fewest hits left; an object is written if ``n h > lambda s`` plus what the SSD loses for it. An
approximation: the coupling of prefixes and sizes makes the exact problem NP-hard.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from harness.simulator.hooks import (
    ASKED,
    DROP,
    EVICT,
    MOVE,
    MOVE_STATE,
    Parameters,
    World,
    chunks_behind,
    class_of,
    on_ssd,
    peek,
    pop,
    push,
    size_of,
    state_at,
)
from harness.simulator.state import CAP_SSD, USED_SSD

REBUILD = True
NEEDS = ("future",)
STRUCTURES = ("leaf",)

_HELD = 1 << 16


class Settings(Parameters):
    """``hits_a_gb``: chunk hits that a written GB must earn, lambda."""

    hits_a_gb: float = Field(1330.0, ge=0)


class Own(NamedTuple):
    """``hits_left`` int32[objects]; lambda, float64[1]; room for victims, int32."""

    hits_left: np.ndarray
    lambda_: np.ndarray
    held: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Every object has as many hits left as it will be asked for, the making not counted."""
    return Own(world.asks.copy(), np.array([settings.hits_a_gb / 1e9]), np.empty(_HELD, np.int32))


def begin(s: Any, r: int) -> None:
    """What the request asks for has one hit less left."""
    for run in range(s.path_of[r], s.path_of[r + 1]):
        first = s.path_first[run]
        for node in range(first, first + s.path_length[run]):
            s.p.hits_left[node] -= 1
    if s.wanted[r] >= 0:
        s.p.hits_left[state_at(s, s.wanted[r])] -= 1


def worth(s: Any, o: int) -> float:
    """n h: chunks that the hits left would save."""
    left = float(s.p.hits_left[o])
    if class_of(s, o) == 0:
        return left
    return left * chunks_behind(s, o)


def key(s: Any, q: int, o: int) -> float:
    """Fewest hits left go first; of what may move, the most."""
    if q in (DROP, EVICT):
        return worth(s, o)
    return -worth(s, o)


def lost(s: Any, size: int, limit: float) -> float:
    """Worth of what the SSD gives up for ``size`` bytes, looked at until it exceeds ``limit``."""
    free = s.cfg[CAP_SSD] - s.reg[USED_SSD]
    total, taken = 0.0, 0
    while free < size and total <= limit:
        o = peek(s, EVICT)
        if o < 0 or taken == _HELD:
            total = np.inf
            break
        total += worth(s, o)
        free += size_of(s, o)
        s.p.held[taken] = o
        taken += 1
        pop(s, EVICT)
    for at in range(taken):
        push(s, EVICT, s.p.held[at])
    return total


def gain(s: Any, o: int) -> float:
    """What a write earns over its cost."""
    size = size_of(s, o)
    value = worth(s, o) - s.p.lambda_[0] * size
    return value - lost(s, size, value) if value > 0.0 else value


def demote(s: Any, o: int) -> bool:
    """Whether the write earns anything."""
    return gain(s, o) > 0.0


def choose(s: Any) -> tuple[int, bool]:
    """The root-side object whose write earns most, else the leaf with the fewest hits left."""
    best, most = -1, 0.0
    for q in range(MOVE, MOVE_STATE + 1):
        o = peek(s, q)
        if o >= 0:
            if on_ssd(s, o):
                return o, True
            if s.flag[o] & ASKED == 0:
                value = gain(s, o)
                if value > most:
                    best, most = o, value
    return (best, True) if best >= 0 else (peek(s, DROP), False)
