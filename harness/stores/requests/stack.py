"""LRU stack distances, fast: which access positions are the latest of their block, in three levels.

A block's stack distance is the number of distinct blocks accessed since its last access; plain LRU
of C blocks, visited in prompt order with every miss inserted, hits exactly where it is below C.
Positions are marked in a bitmap with counts a 4,096 and a 262,144 positions, so that a mark costs
three additions and a count a few hundred; neighbours of a run of blocks accessed in the same order
as before have the same distance, which is then not counted anew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.stores.jit import inner_kernel, kernel

SUPER = 1 << 18
_ONE = np.uint64(1)
_M1, _M2 = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_M4, _H01 = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
_NOW, _MARKS, _PLACE, _DISTANCE = 0, 1, 2, 3


class Stack(NamedTuple):
    """Positions: bitmap, counts, the block at each. ``ints``: next position, marks, and the last
    access's old position and distance."""

    bits: NDArray[np.uint64]
    buckets: NDArray[np.int64]
    supers: NDArray[np.int64]
    owner: NDArray[np.int32]
    ints: NDArray[np.int64]


def new_stack(positions: int) -> Stack:
    """An empty stack of at least ``positions``."""
    size = -(-positions // SUPER) * SUPER
    return Stack(
        np.zeros(size >> 6, np.uint64), np.zeros(size >> 12, np.int64),
        np.zeros(size >> 18, np.int64), np.full(size, -1, np.int32),
        np.array([0, 0, -2, 0], np.int64),
    )  # fmt: skip


def larger_stack(old: Stack, positions: int, places: NDArray[np.int64]) -> Stack:
    """The same stack with more positions; ``places`` (of each block) is brought up to date."""
    new = new_stack(positions)
    new.owner[: len(old.owner)] = old.owner
    new.ints[:] = old.ints
    renumber(new, places)
    return new


@inner_kernel
def _ones(word: np.uint64) -> np.int64:
    word = word - ((word >> _ONE) & _M1)
    word = (word & _M2) + ((word >> np.uint64(2)) & _M2)
    word = (word + (word >> np.uint64(4))) & _M4
    return np.int64((word * _H01) >> np.uint64(56))


@inner_kernel
def _mark(s: Stack, at: int, change: int) -> None:
    s.bits[at >> 6] ^= _ONE << np.uint64(at & 63)
    s.buckets[at >> 12] += change
    s.supers[at >> 18] += change


@inner_kernel
def _up_to(s: Stack, at: int) -> int:
    """Marks at positions 0 to ``at``."""
    total = 0
    for i in range(at >> 18):
        total += s.supers[i]
    for i in range((at >> 18) << 6, at >> 12):
        total += s.buckets[i]
    for i in range((at >> 12) << 6, at >> 6):
        total += int(_ones(s.bits[i]))
    below = (np.uint64(2) << np.uint64(at & 63)) - _ONE
    return total + int(_ones(s.bits[at >> 6] & below))


@kernel
def renumber(s: Stack, places: NDArray[np.int64]) -> None:
    """Move all marks to the front, in order."""
    kept = 0
    for at in range(s.ints[_NOW]):
        block = s.owner[at]
        if block >= 0:
            s.owner[kept] = block
            places[block] = kept
            kept += 1
    s.owner[kept:] = -1
    s.bits[:] = 0
    s.buckets[:] = 0
    s.supers[:] = 0
    for at in range(kept):
        _mark(s, at, 1)
    s.ints[_NOW] = kept
    s.ints[_PLACE] = -2


@kernel
def access(s: Stack, places: NDArray[np.int64], block: int, known: bool) -> int:
    """Make ``block`` the latest; its stack distance, or -1 the first time."""
    distance = -1
    if known:
        at = places[block]
        in_run = at == s.ints[_PLACE] + 1
        distance = s.ints[_DISTANCE] if in_run else s.ints[_MARKS] - _up_to(s, at)
        _mark(s, at, -1)
        s.owner[at] = -1
        s.ints[_PLACE], s.ints[_DISTANCE] = at, distance
    else:
        s.ints[_MARKS] += 1
        s.ints[_PLACE] = -2
    if s.ints[_NOW] == len(s.owner):
        renumber(s, places)
    now = s.ints[_NOW]
    s.owner[now] = block
    places[block] = now
    _mark(s, now, 1)
    s.ints[_NOW] = now + 1
    return distance
