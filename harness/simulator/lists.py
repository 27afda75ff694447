"""Lists of objects, newest first, for policies that keep an order of their own.

Each tier has some lists, real ones and ghosts; an object is in at most one list of a tier.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from harness.simulator.objects import pinned, size_of
from harness.simulator.state import SSD

NOWHERE = -1


class Lists(NamedTuple):
    """``newer``, ``older`` int32[2, objects] (neighbours, -1 at an end), ``within`` int8[2,
    objects] (the list, -1), ``newest``, ``oldest`` int32[2, lists], ``held_bytes``,
    ``held`` int64[2, lists] (bytes, objects)."""

    newer: np.ndarray
    older: np.ndarray
    within: np.ndarray
    newest: np.ndarray
    oldest: np.ndarray
    held_bytes: np.ndarray
    held: np.ndarray


def empty_lists(objects: int, lists: int) -> Lists:
    """So many empty lists in each tier."""
    return Lists(
        np.full((2, objects), -1, np.int32),
        np.full((2, objects), -1, np.int32),
        np.full((2, objects), NOWHERE, np.int8),
        np.full((2, lists), -1, np.int32),
        np.full((2, lists), -1, np.int32),
        np.zeros((2, lists), np.int64),
        np.zeros((2, lists), np.int64),
    )


def tier_index(tier: int) -> int:
    """0 for DRAM, 1 for the SSD: the first index of all arrays of ``Lists``."""
    return 1 if tier == SSD else 0


def add(t: Any, at: int, which: int, o: int, size: int) -> None:
    """Put an object that is in no list of tier ``at`` first into a list."""
    first = t.newest[at, which]
    t.newer[at, o] = -1
    t.older[at, o] = first
    if first >= 0:
        t.newer[at, first] = o
    else:
        t.oldest[at, which] = o
    t.newest[at, which] = o
    t.within[at, o] = which
    t.held_bytes[at, which] += size
    t.held[at, which] += 1


def remove(t: Any, at: int, o: int, size: int) -> None:
    """Take an object out of its list of tier ``at``."""
    which = t.within[at, o]
    newer, older = t.newer[at, o], t.older[at, o]
    if newer >= 0:
        t.older[at, newer] = older
    else:
        t.newest[at, which] = older
    if older >= 0:
        t.newer[at, older] = newer
    else:
        t.oldest[at, which] = newer
    t.within[at, o] = NOWHERE
    t.held_bytes[at, which] -= size
    t.held[at, which] -= 1


def renew(t: Any, at: int, which: int, o: int, size: int) -> None:
    """Put an object of tier ``at`` first into a list, out of the one that it was in."""
    remove(t, at, o, size)
    add(t, at, which, o, size)


def oldest_free(s: Any, t: Any, at: int, which: int) -> int:
    """The oldest of a list that is not in use; -1 if there is none. Those in use begin again."""
    for _ in range(t.held[at, which]):
        o = t.oldest[at, which]
        if not pinned(s, o):
            return o
        renew(t, at, which, o, size_of(s, o))
    return -1


def remove_oldest(s: Any, t: Any, at: int, which: int) -> None:
    """Take the oldest out of a list that is not empty."""
    o = t.oldest[at, which]
    remove(t, at, o, size_of(s, o))
