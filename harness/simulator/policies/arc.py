"""ARC (FAST'03): two LRU lists, used once and used more often, their shares learnt from ghosts.

Each tier has lists of its own; all that leaves DRAM is written. Sizes are bytes: a tier of c bytes
has ghosts of c bytes more, and an object that returns as a ghost moves the target p by its size
times how many times larger the other ghost list is. A hit on the SSD that stays there does not
count for DRAM. A control: it knows nothing of prefixes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from harness.simulator.hooks import DRAM, SSD, Parameters, World, on_ssd, pinned, size_of
from harness.simulator.lists import (
    Lists,
    add,
    empty_lists,
    oldest_free,
    remove,
    remove_oldest,
    renew,
    tier_index,
)
from harness.simulator.state import ON_HIT, STAY

STRUCTURES = ("free",)

_ONCE, _OFTEN, _ONCE_GHOST, _OFTEN_GHOST = range(4)


class Own(NamedTuple):
    """T1, T2, B1, B2 as ``lists``; ``capacity``, ``target`` float64[2] (c, p); ``returning``
    int32[2]: the object for which room is made, if it is a ghost that was used often."""

    lists: Lists
    capacity: np.ndarray
    target: np.ndarray
    returning: np.ndarray


def create(world: World, settings: Parameters) -> Own:
    """Empty lists, p = 0."""
    return Own(
        empty_lists(world.objects, 4),
        np.array([world.dram_bytes, world.ssd_bytes], np.float64),
        np.zeros(2),
        np.full(2, -1, np.int32),
    )


def coming(s: Any, at: int, o: int) -> None:
    """An object is about to enter: a ghost moves the target."""
    t, size = s.p.lists, float(size_of(s, o))
    once, often = t.held_bytes[at, _ONCE_GHOST], t.held_bytes[at, _OFTEN_GHOST]
    s.p.returning[at] = -1
    if t.within[at, o] == _ONCE_GHOST:
        step = size * max(often / once, 1.0)
        s.p.target[at] = min(s.p.capacity[at], s.p.target[at] + step)
    elif t.within[at, o] == _OFTEN_GHOST:
        step = size * max(once / often, 1.0)
        s.p.target[at] = max(0.0, s.p.target[at] - step)
        s.p.returning[at] = o


def created(s: Any, o: int) -> None:
    """Room is made for it in DRAM next."""
    coming(s, tier_index(DRAM), o)


def used(s: Any, first: int, count: int) -> None:
    """Newest of those used often, where it is."""
    for o in range(first, first + count):
        for at in range(2):
            if 0 <= s.p.lists.within[at, o] <= _OFTEN:
                renew(s.p.lists, at, _OFTEN, o, size_of(s, o))
            elif at == 0 and s.cfg[ON_HIT] != STAY:
                coming(s, at, o)


def entered(s: Any, o: int, tier: int) -> None:
    """A ghost joins those used often; then ghosts are forgotten down to c and 2 c."""
    t, at, size = s.p.lists, tier_index(tier), size_of(s, o)
    ghost = t.within[at, o] >= _ONCE_GHOST
    if ghost:
        remove(t, at, o, size)
    add(t, at, _OFTEN if ghost else _ONCE, o, size)
    capacity = s.p.capacity[at]
    while t.held[at, _ONCE_GHOST] > 0 and once_bytes(t, at) > capacity:
        remove_oldest(s, t, at, _ONCE_GHOST)
    while t.held[at, _OFTEN_GHOST] > 0 and once_bytes(t, at) + often_bytes(t, at) > 2.0 * capacity:
        remove_oldest(s, t, at, _OFTEN_GHOST)


def once_bytes(t: Any, at: int) -> int:
    """T1 and B1."""
    return t.held_bytes[at, _ONCE] + t.held_bytes[at, _ONCE_GHOST]


def often_bytes(t: Any, at: int) -> int:
    """T2 and B2."""
    return t.held_bytes[at, _OFTEN] + t.held_bytes[at, _OFTEN_GHOST]


def left(s: Any, o: int, tier: int) -> None:
    """Evicted, it becomes a ghost; moved up by a hit it does not."""
    t, at, size = s.p.lists, tier_index(tier), size_of(s, o)
    was = t.within[at, o]
    remove(t, at, o, size)
    if not pinned(s, o):
        add(t, at, _ONCE_GHOST if was == _ONCE else _OFTEN_GHOST, o, size)


def victim(s: Any, at: int) -> int:
    """From those used once if they are over the target, else from the others."""
    t = s.p.lists
    once, target = float(t.held_bytes[at, _ONCE]), s.p.target[at]
    over = once > target or (once == target and s.p.returning[at] >= 0)
    o = oldest_free(s, t, at, _ONCE if over else _OFTEN)
    return o if o >= 0 else oldest_free(s, t, at, _OFTEN if over else _ONCE)


def choose(s: Any) -> tuple[int, bool]:
    """DRAM's next; it is about to enter the SSD."""
    o = victim(s, tier_index(DRAM))
    return o, o >= 0 and (on_ssd(s, o) or demote(s, o))


def demote(s: Any, o: int) -> bool:
    """Always; the SSD makes room for it next."""
    coming(s, tier_index(SSD), o)
    return True


def victim_ssd(s: Any) -> int:
    """The SSD's next."""
    return victim(s, tier_index(SSD))
