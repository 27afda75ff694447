"""SIEVE (NSDI'24): one FIFO and one bit; a hand clears bits and takes the first that has none.

Each tier has a queue and a hand of its own; all that leaves DRAM is written. The hand goes from the
oldest to the newest and begins again; a hit sets the bit and moves nothing. Objects of a request
are looked at from the root on. A control: it knows nothing of prefixes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from harness.simulator.hooks import DRAM, SSD, Parameters, World, in_dram, on_ssd, pinned, size_of
from harness.simulator.lists import Lists, add, empty_lists, remove, tier_index

STRUCTURES = ("free",)


class Own(NamedTuple):
    """``lists``, one a tier; ``seen`` uint8[2, objects]; ``hand`` int32[2], -1: at the oldest."""

    lists: Lists
    seen: np.ndarray
    hand: np.ndarray


def create(world: World, settings: Parameters) -> Own:
    """Empty queues."""
    return Own(
        empty_lists(world.objects, 1),
        np.zeros((2, world.objects), np.uint8),
        np.full(2, -1, np.int32),
    )


def used(s: Any, first: int, count: int) -> None:
    """Set the bit where the object is."""
    for o in range(first, first + count):
        if in_dram(s, o):
            s.p.seen[0, o] = 1
        if on_ssd(s, o):
            s.p.seen[1, o] = 1


def entered(s: Any, o: int, tier: int) -> None:
    """Newest, without a bit."""
    at = tier_index(tier)
    s.p.seen[at, o] = 0
    add(s.p.lists, at, 0, o, size_of(s, o))


def left(s: Any, o: int, tier: int) -> None:
    """A hand that points to it goes on to the next newer."""
    at = tier_index(tier)
    if s.p.hand[at] == o:
        s.p.hand[at] = s.p.lists.newer[at, o]
    remove(s.p.lists, at, o, size_of(s, o))


def victim(s: Any, at: int) -> int:
    """Move the hand of a tier to the first without a bit that may go; -1 if there is none."""
    t = s.p.lists
    o = s.p.hand[at]
    for _ in range(2 * t.held[at, 0]):
        if o < 0:
            o = t.oldest[at, 0]
        if s.p.seen[at, o] == 0 and not pinned(s, o):
            s.p.hand[at] = o
            return o
        s.p.seen[at, o] = 0
        o = t.newer[at, o]
    return -1


def choose(s: Any) -> tuple[int, bool]:
    """Where the hand stops in DRAM."""
    return victim(s, tier_index(DRAM)), True


def victim_ssd(s: Any) -> int:
    """Where the hand stops on the SSD."""
    return victim(s, tier_index(SSD))
