"""S3-FIFO (SOSP'23): a small FIFO sorts out what is used once, before a main FIFO with counts.

Each tier has queues of its own. What is new enters the small one, a tenth of the tier, unless it
was in the ghosts, is larger than that, or the tier fills for the first time. The oldest of the
small queue goes to the main one, its count cleared, if it was used twice, else it leaves and
becomes a ghost, of which there are nine tenths of the tier. The oldest of the main queue, if it was
used, starts again with one use less (counts stop at 3), else it leaves. Sizes are bytes; an object
in use begins its queue again. ``writes=main`` writes only what leaves DRAM by its main queue. A
control: it knows nothing of prefixes.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from harness.simulator.hooks import DRAM, SSD, Parameters, World, in_dram, on_ssd, pinned, size_of
from harness.simulator.lists import (
    Lists,
    add,
    empty_lists,
    remove,
    remove_oldest,
    renew,
    tier_index,
)
from harness.simulator.state import ON_HIT, STAY

STRUCTURES = ("free",)

_SMALL, _MAIN, _GHOST = range(3)
_MOST = 3


class Settings(Parameters):
    """``small``: share of a tier; ``uses`` in the small queue that bring an object to the main."""

    small: float = Field(0.1, gt=0, lt=1)
    uses: int = Field(2, ge=1, le=_MOST)
    writes: Literal["all", "main"] = "all"


class Own(NamedTuple):
    """``lists``; ``uses``, ``returning`` uint8[2, objects] (uses; was a ghost when it was asked
    for); ``limit`` int64[2, 2]: bytes of small and main; ``full`` uint8[2]: whether a tier has been
    full; ``settings`` int64[2]: uses, whether only the main queue's are written."""

    lists: Lists
    uses: np.ndarray
    returning: np.ndarray
    full: np.ndarray
    limit: np.ndarray
    settings: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Empty queues."""
    limit = []
    for capacity in (world.dram_bytes, world.ssd_bytes):
        small = int(capacity * settings.small)
        limit.append([small, capacity - small])
    return Own(
        empty_lists(world.objects, 3),
        np.zeros((2, world.objects), np.uint8),
        np.zeros((2, world.objects), np.uint8),
        np.zeros(2, np.uint8),
        np.array(limit, np.int64),
        np.array([settings.uses, settings.writes == "main"], np.int64),
    )


def coming(s: Any, at: int, o: int) -> None:
    """An object is about to enter a tier; a ghost is one no longer, before room is made."""
    ghost = s.p.lists.within[at, o] == _GHOST
    s.p.returning[at, o] = 1 if ghost else 0
    if ghost:
        remove(s.p.lists, at, o, size_of(s, o))


def created(s: Any, o: int) -> None:
    """DRAM makes room for it next."""
    coming(s, tier_index(DRAM), o)


def used(s: Any, first: int, count: int) -> None:
    """One use more where the object is."""
    for o in range(first, first + count):
        if in_dram(s, o):
            s.p.uses[0, o] = min(int(s.p.uses[0, o]) + 1, _MOST)
        elif s.cfg[ON_HIT] != STAY:
            coming(s, tier_index(DRAM), o)
        if on_ssd(s, o):
            s.p.uses[1, o] = min(int(s.p.uses[1, o]) + 1, _MOST)


def entered(s: Any, o: int, tier: int) -> None:
    """To the main queue if it was a ghost or is too large for the small one."""
    at, size = tier_index(tier), size_of(s, o)
    small = s.p.limit[at, _SMALL]
    filling = s.p.full[at] == 0 and s.p.lists.held_bytes[at, _SMALL] >= small
    main = s.p.returning[at, o] != 0 or size > small or filling
    s.p.uses[at, o] = 0
    add(s.p.lists, at, _MAIN if main else _SMALL, o, size)


def left(s: Any, o: int, tier: int) -> None:
    """Evicted from the small queue, it becomes a ghost; moved up by a hit it does not."""
    t, at, size = s.p.lists, tier_index(tier), size_of(s, o)
    ghost = t.within[at, o] == _SMALL and not pinned(s, o)
    remove(t, at, o, size)
    if ghost:
        add(t, at, _GHOST, o, size)
        while t.held_bytes[at, _GHOST] > s.p.limit[at, _MAIN]:
            remove_oldest(s, t, at, _GHOST)


def from_main(s: Any, at: int) -> int:
    """The oldest of the main queue that was not used since it was here last; -1 if none may go."""
    t = s.p.lists
    for _ in range((_MOST + 1) * t.held[at, _MAIN]):
        o = t.oldest[at, _MAIN]
        if s.p.uses[at, o] == 0 and not pinned(s, o):
            return o
        if s.p.uses[at, o] > 0:
            s.p.uses[at, o] -= 1
        renew(t, at, _MAIN, o, size_of(s, o))
    return -1


def from_small(s: Any, at: int) -> int:
    """The oldest of the small queue that was used too little; -1 if none may go.

    Those used enough go to the main queue, which gives one up if they are too many for it.
    """
    t = s.p.lists
    for _ in range(t.held[at, _SMALL]):
        o = t.oldest[at, _SMALL]
        if pinned(s, o):
            renew(t, at, _SMALL, o, size_of(s, o))
        elif s.p.uses[at, o] >= s.p.settings[0]:
            s.p.uses[at, o] = 0
            renew(t, at, _MAIN, o, size_of(s, o))
            if t.held_bytes[at, _MAIN] > s.p.limit[at, _MAIN]:
                gone = from_main(s, at)
                if gone >= 0:
                    return gone
        else:
            return o
    return -1


def victim(s: Any, at: int) -> int:
    """From the small queue if it is full, else from the main one; from the other if none may go."""
    s.p.full[at] = 1
    if s.p.lists.held_bytes[at, _SMALL] >= s.p.limit[at, _SMALL]:
        o = from_small(s, at)
        return o if o >= 0 else from_main(s, at)
    o = from_main(s, at)
    return o if o >= 0 else from_small(s, at)


def choose(s: Any) -> tuple[int, bool]:
    """DRAM's next."""
    o = victim(s, tier_index(DRAM))
    return o, o >= 0 and (on_ssd(s, o) or demote(s, o))


def demote(s: Any, o: int) -> bool:
    """Always, or if it leaves the main queue; the SSD makes room for it next."""
    if s.p.settings[1] != 0 and s.p.lists.within[0, o] != _MAIN:
        return False
    coming(s, tier_index(SSD), o)
    return True


def victim_ssd(s: Any) -> int:
    """The SSD's next."""
    return victim(s, tier_index(SSD))
