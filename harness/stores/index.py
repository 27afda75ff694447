"""Compiled pieces that every store is made of: a hash index, a recency list, key mixing.

The index is an open-addressing table of (uint64 key, int32 value) with linear probing; the
recency list is a circular doubly linked list over slot numbers whose last node is the anchor.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.stores.jit import kernel

ABSENT = -1
"""Value that ``index_get`` returns for a key that is not there."""

STATE_SALT = np.uint64(0x5354415445)
"""Second word of the key of the fixed state that ends at a chunk; the first is the chunk's key."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_ONE = np.uint64(1)


@kernel
def mix64(value: np.uint64) -> np.uint64:
    """Splitmix64's finaliser: a bijection of 64-bit words that spreads every bit."""
    z = np.uint64(value) + _GOLDEN
    z = (z ^ (z >> _S30)) * _M1
    z = (z ^ (z >> _S27)) * _M2
    return z ^ (z >> _S31)


@kernel
def mix_pair(first: np.uint64, second: np.uint64) -> np.uint64:
    """One 64-bit key for an ordered pair of words."""
    return mix64(mix64(first) ^ (np.uint64(second) * _GOLDEN + _ONE))


def index_arrays(entries: int) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Keys and values of an empty index that stays at most half full with ``entries``."""
    size = 1 << max(4, (2 * entries - 1).bit_length())
    return np.zeros(size, np.uint64), np.full(size, ABSENT, np.int32)


def recency_arrays(slots: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Next and previous of an empty recency list over ``slots`` numbers."""
    nxt = np.zeros(slots + 1, np.int32)
    nxt[slots] = slots
    prv = nxt.copy()
    return nxt, prv


@kernel
def index_get(keys: NDArray[np.uint64], values: NDArray[np.int32], key: np.uint64) -> int:
    """The value of ``key``, or ABSENT."""
    mask = np.uint64(keys.size - 1)
    at = mix64(key) & mask
    while values[at] != ABSENT:
        if keys[at] == key:
            return values[at]
        at = (at + _ONE) & mask
    return ABSENT


@kernel
def index_put(
    keys: NDArray[np.uint64], values: NDArray[np.int32], key: np.uint64, value: int
) -> None:
    """Set ``key`` to ``value`` (not ABSENT); the caller keeps the table at most half full."""
    mask = np.uint64(keys.size - 1)
    at = mix64(key) & mask
    while values[at] != ABSENT and keys[at] != key:
        at = (at + _ONE) & mask
    keys[at] = key
    values[at] = value


@kernel
def index_remove(keys: NDArray[np.uint64], values: NDArray[np.int32], key: np.uint64) -> bool:
    """Remove ``key`` and close the gap behind it; False if it was not there."""
    mask = np.uint64(keys.size - 1)
    hole = mix64(key) & mask
    while True:
        if values[hole] == ABSENT:
            return False
        if keys[hole] == key:
            break
        hole = (hole + _ONE) & mask
    at = hole
    while True:
        at = (at + _ONE) & mask
        if values[at] == ABSENT:
            break
        home = mix64(keys[at]) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            keys[hole] = keys[at]
            values[hole] = values[at]
            hole = at
    values[hole] = ABSENT
    return True


@kernel
def recency_remove(nxt: NDArray[np.int32], prv: NDArray[np.int32], slot: int) -> None:
    """Take ``slot`` out of the list."""
    before, after = prv[slot], nxt[slot]
    nxt[before] = after
    prv[after] = before


@kernel
def recency_add(nxt: NDArray[np.int32], prv: NDArray[np.int32], slot: int) -> None:
    """Put ``slot``, which is not in the list, at the most recent end."""
    anchor = nxt.size - 1
    first = nxt[anchor]
    nxt[anchor] = slot
    prv[slot] = anchor
    nxt[slot] = first
    prv[first] = slot


@kernel
def recency_touch(nxt: NDArray[np.int32], prv: NDArray[np.int32], slot: int) -> None:
    """Make ``slot`` the most recent one."""
    recency_remove(nxt, prv, slot)
    recency_add(nxt, prv, slot)


@kernel
def recency_newer(nxt: NDArray[np.int32], prv: NDArray[np.int32], slot: int) -> int:
    """The slot used next after ``slot``, or -1 if there is none; the anchor's is the oldest."""
    newer = prv[slot]
    return -1 if newer == nxt.size - 1 else newer


@kernel
def recency_oldest(nxt: NDArray[np.int32], prv: NDArray[np.int32]) -> int:
    """The least recent slot, or -1 if the list is empty."""
    return recency_newer(nxt, prv, nxt.size - 1)
