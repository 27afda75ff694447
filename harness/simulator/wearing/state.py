"""What the layouts' drivers share: how objects are cut, and what went wrong, by class."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.core.ops import PAGE_BYTES
from harness.simulator.sizes import ObjectSizes
from harness.simulator.wearing.events import CLASSES
from harness.simulator.wearing.jit import inner_kernel, kernel
from harness.stores.index import ABSENT, index_get, mix_pair, recency_touch


class Lost(IntEnum):
    """Rows of ``Cut.lost``: objects, by class."""

    UNWRITTEN = 0
    """No place was found, or the object left again before its bucket was written."""
    FREED = 1
    """Evicted by the policy, but the store had already dropped it."""
    USED = 2
    """Counted as a hit by the policy, but the store had already dropped it."""
    COUNT = 3


_USED = int(Lost.USED)


class Cut(NamedTuple):
    """An object as pieces of at most ``room`` bytes. All int64, indexed by class but ``room``.

    ``bytes``: of the object; ``pieces``: how many; ``tail``: of its last piece, in whole pages.
    ``lost``: [``Lost``, class]. ``now``: request in hand, calls so far.
    """

    room: int
    bytes: NDArray[np.int64]
    pieces: NDArray[np.int64]
    tail: NDArray[np.int64]
    lost: NDArray[np.int64]
    now: NDArray[np.int64]


def cut(sizes: ObjectSizes, room: int) -> Cut:
    """Objects in places of ``room`` bytes, a multiple of the page."""
    size = np.array(sizes.by_class, np.int64)
    pieces = -(-size // room)
    tail = -(-(size - (pieces - 1) * room) // PAGE_BYTES) * PAGE_BYTES
    lost = np.zeros((Lost.COUNT, CLASSES), np.int64)
    return Cut(room, size, pieces, np.where(size > 0, tail, 0), lost, np.array([-1, 0], np.int64))


@inner_kernel
def piece_key(c: Cut, cls: int, key: np.uint64, piece: int) -> np.uint64:
    """Key of a piece; an object of one piece has its own."""
    return key if c.pieces[cls] == 1 else mix_pair(key, np.uint64(piece))


@inner_kernel
def piece_bytes(c: Cut, cls: int, piece: int) -> int:
    """Bytes written for a piece, whole pages."""
    return c.tail[cls] if piece == c.pieces[cls] - 1 else c.room


@inner_kernel
def use_pieces(s: Any, c: Cut, cls: int, key: np.uint64) -> None:
    """Make an object the newest of a store of slots or places, or count that it is not whole."""
    found = 0
    for piece in range(c.pieces[cls]):
        row = index_get(s.keys, s.values, piece_key(c, cls, key, piece))
        if row != ABSENT:
            recency_touch(s.nxt, s.prv, row)
            found += 1
    if found < c.pieces[cls]:
        c.lost[_USED, cls] += 1


@kernel
def count_held(
    index_keys: NDArray[np.uint64], index_values: NDArray[np.int32], c: Cut,
    classes: NDArray[np.intp], keys: NDArray[np.uint64],
) -> NDArray[np.int64]:  # fmt: skip
    """int64[2]: how many of the objects are whole in the store's index, by class."""
    held = np.zeros(2, np.int64)
    for i in range(len(keys)):
        found = 0
        for piece in range(c.pieces[classes[i]]):
            key = piece_key(c, classes[i], keys[i], piece)
            found += index_get(index_keys, index_values, key) != ABSENT
        held[classes[i]] += found == c.pieces[classes[i]]
    return held
