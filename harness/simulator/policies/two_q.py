"""2Q (VLDB'94): what is new waits in a FIFO, and joins the LRU if asked for again soon after it.

Each tier has queues of its own; all that leaves DRAM is written. The FIFO has a quarter of the
tier, its ghosts half as many bytes as the tier: an object that is made while a ghost enters the
LRU. Sizes are bytes. A control: it knows nothing of prefixes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from harness.simulator.hooks import DRAM, SSD, Parameters, World, in_dram, on_ssd, pinned, size_of
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

_IN, _OFTEN, _OUT = range(3)


class Settings(Parameters):
    """Shares of a tier: ``first`` for the FIFO, ``ghosts`` for what left it."""

    first: float = Field(0.25, gt=0, lt=1)
    ghosts: float = Field(0.5, ge=0)


class Own(NamedTuple):
    """``lists``; ``returning`` uint8[2, objects] (was a ghost when it was asked for); ``limit``
    int64[2, 2]: bytes of the FIFO and of its ghosts in each tier."""

    lists: Lists
    returning: np.ndarray
    limit: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Empty queues."""
    limit = [
        [int(capacity * settings.first), int(capacity * settings.ghosts)]
        for capacity in (world.dram_bytes, world.ssd_bytes)
    ]
    return Own(
        empty_lists(world.objects, 3),
        np.zeros((2, world.objects), np.uint8),
        np.array(limit, np.int64),
    )


def coming(s: Any, at: int, o: int) -> None:
    """An object is about to enter a tier; a ghost is one no longer, before room is made."""
    ghost = s.p.lists.within[at, o] == _OUT
    s.p.returning[at, o] = 1 if ghost else 0
    if ghost:
        remove(s.p.lists, at, o, size_of(s, o))


def created(s: Any, o: int) -> None:
    """DRAM makes room for it next."""
    coming(s, tier_index(DRAM), o)


def used(s: Any, first: int, count: int) -> None:
    """Newest of the LRU, if it is there; the FIFO does not mind."""
    for o in range(first, first + count):
        for at in range(2):
            if s.p.lists.within[at, o] == _OFTEN:
                renew(s.p.lists, at, _OFTEN, o, size_of(s, o))
        if s.cfg[ON_HIT] != STAY and not in_dram(s, o):
            coming(s, tier_index(DRAM), o)


def entered(s: Any, o: int, tier: int) -> None:
    """To the LRU if it was a ghost."""
    at, size = tier_index(tier), size_of(s, o)
    add(s.p.lists, at, _OFTEN if s.p.returning[at, o] != 0 else _IN, o, size)


def left(s: Any, o: int, tier: int) -> None:
    """Evicted from the FIFO, it becomes a ghost; moved up by a hit it does not."""
    t, at, size = s.p.lists, tier_index(tier), size_of(s, o)
    ghost = t.within[at, o] == _IN and not pinned(s, o)
    remove(t, at, o, size)
    if ghost:
        add(t, at, _OUT, o, size)
        while t.held_bytes[at, _OUT] > s.p.limit[at, 1]:
            remove_oldest(s, t, at, _OUT)


def victim(s: Any, at: int) -> int:
    """From the FIFO if it is over its share, else from the LRU; from the other if none may go."""
    t = s.p.lists
    over = t.held_bytes[at, _IN] > s.p.limit[at, 0]
    o = oldest_free(s, t, at, _IN if over else _OFTEN)
    return o if o >= 0 else oldest_free(s, t, at, _OFTEN if over else _IN)


def choose(s: Any) -> tuple[int, bool]:
    """DRAM's next."""
    o = victim(s, tier_index(DRAM))
    return o, o >= 0 and (on_ssd(s, o) or demote(s, o))


def demote(s: Any, o: int) -> bool:
    """Always; the SSD makes room for it next."""
    coming(s, tier_index(SSD), o)
    return True


def victim_ssd(s: Any) -> int:
    """The SSD's next."""
    return victim(s, tier_index(SSD))
