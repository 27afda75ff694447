"""W-TinyLFU (TOS'17): a small LRU window, and a segmented LRU that only the frequent join.

Each tier has lists of its own; all that leaves DRAM is written. What is new enters the window. If
that is full, its oldest is the candidate, and the oldest that waits in the main part (or, if none
does, of those protected) the victim: the candidate takes its place if it was asked for more often,
else it leaves. What is hit while it waits is protected; the oldest protected beyond their share
wait again. The counts are one history for both tiers, at most 15, halved after ``sample`` times as
many requests for objects as chunks fit into both. Ours: exact counts in place of a sketch. Sizes
are bytes; the window holds at least a chunk. A control: it knows nothing of prefixes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from harness.simulator.hooks import DRAM, SSD, Parameters, World, pinned, size_of
from harness.simulator.lists import (
    Lists,
    add,
    empty_lists,
    oldest_free,
    remove,
    renew,
    tier_index,
)
from harness.simulator.state import NOW

STRUCTURES = ("free",)

_WINDOW, _WAITING, _PROTECTED = range(3)
_MAIN = 1
_MOST = 15
_ASKED, _SAMPLE = range(2)


class Settings(Parameters):
    """Shares: ``window`` of a tier, ``protected`` of its main part; ``sample`` as above."""

    window: float = Field(0.01, gt=0, lt=1)
    protected: float = Field(0.8, ge=0, le=1)
    sample: int = Field(10, ge=1)


class Own(NamedTuple):
    """``lists``; ``asked`` uint8[objects]; ``limit`` int64[2, 3]: bytes of the window, of the main
    part and of those protected in each tier; ``used_up`` int64[2, 3]: the request that uses all
    there is in a list, as far as is known; ``numbers`` int64[2]: asked for since the counts were
    halved, and how often until they are."""

    lists: Lists
    asked: np.ndarray
    limit: np.ndarray
    used_up: np.ndarray
    numbers: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Nothing was asked for."""
    chunk, limit, places = world.sizes.chunk_bytes, [], 0
    for capacity in (world.dram_bytes, world.ssd_bytes):
        window = max(int(capacity * settings.window), chunk)
        main = max(capacity - window, 0)
        limit.append([window, main, int(main * settings.protected)])
        places += capacity // chunk
    return Own(
        empty_lists(world.objects, 3),
        np.zeros(world.objects, np.uint8),
        np.array(limit, np.int64),
        np.full((2, 3), -1, np.int64),
        np.array([0, settings.sample * max(places, 1)], np.int64),
    )


def ask(s: Any, o: int) -> None:
    """Once more; all counts are halved when it is time."""
    s.p.asked[o] = min(s.p.asked[o] + 1, _MOST)
    s.p.numbers[_ASKED] += 1
    if s.p.numbers[_ASKED] >= s.p.numbers[_SAMPLE]:
        s.p.numbers[_ASKED] = 0
        for other in range(len(s.p.asked)):
            s.p.asked[other] >>= 1


def created(s: Any, o: int) -> None:
    """Asked for, and made."""
    ask(s, o)


def recomputed(s: Any, o: int) -> None:
    """Asked for, and found behind no state."""
    ask(s, o)


def used(s: Any, first: int, count: int) -> None:
    """Asked for, and newest of its list; one that waits is protected."""
    t = s.p.lists
    for o in range(first, first + count):
        ask(s, o)
        for at in range(2):
            if t.within[at, o] == _WINDOW:
                renew(t, at, _WINDOW, o, size_of(s, o))
            elif t.within[at, o] >= 0:
                protect(s, at, o)


def protect(s: Any, at: int, o: int) -> None:
    """Newest of those protected, of whom the oldest may have to wait again."""
    t = s.p.lists
    renew(t, at, _PROTECTED, o, size_of(s, o))
    while t.held_bytes[at, _PROTECTED] > s.p.limit[at, _PROTECTED]:
        put(s, at, _WAITING, t.oldest[at, _PROTECTED])


def put(s: Any, at: int, which: int, o: int) -> None:
    """Newest of another list."""
    renew(s.p.lists, at, which, o, size_of(s, o))
    if not pinned(s, o):
        s.p.used_up[at, which] = -1


def free_of(s: Any, at: int, which: int) -> int:
    """The oldest of a list that may go, -1 without any: then it is not looked for again."""
    if s.p.used_up[at, which] == s.reg[NOW]:
        return -1
    o = oldest_free(s, s.p.lists, at, which)
    if o < 0:
        s.p.used_up[at, which] = s.reg[NOW]
    return o


def entered(s: Any, o: int, tier: int) -> None:
    """Newest of the window, whose oldest go on while the main part has room."""
    t, at = s.p.lists, tier_index(tier)
    add(t, at, _WINDOW, o, size_of(s, o))
    if not pinned(s, o):
        s.p.used_up[at, _WINDOW] = -1
    while t.held_bytes[at, _WINDOW] > s.p.limit[at, _WINDOW]:
        oldest = t.oldest[at, _WINDOW]
        main = t.held_bytes[at, _WAITING] + t.held_bytes[at, _PROTECTED]
        if main + size_of(s, oldest) > s.p.limit[at, _MAIN]:
            break
        put(s, at, _WAITING, oldest)


def left(s: Any, o: int, tier: int) -> None:
    """In no list."""
    remove(s.p.lists, tier_index(tier), o, size_of(s, o))


def from_main(s: Any, at: int) -> int:
    """The oldest that waits, else of those protected; -1 if none may go."""
    o = free_of(s, at, _WAITING)
    return o if o >= 0 else free_of(s, at, _PROTECTED)


def victim(s: Any, at: int) -> int:
    """The loser of candidate and victim if the window is full, else of the main part."""
    t = s.p.lists
    loser = from_main(s, at)
    if loser >= 0 and t.held_bytes[at, _WINDOW] < s.p.limit[at, _WINDOW]:
        return loser
    candidate = free_of(s, at, _WINDOW)
    if loser < 0 or candidate < 0:
        return max(loser, candidate)
    if s.p.asked[candidate] <= s.p.asked[loser]:
        return candidate
    put(s, at, _WAITING, candidate)
    return loser


def choose(s: Any) -> tuple[int, bool]:
    """DRAM's next, which is written."""
    return victim(s, tier_index(DRAM)), True


def victim_ssd(s: Any) -> int:
    """The SSD's next."""
    return victim(s, tier_index(SSD))
