"""A pool of fixed places under a policy of others: KVBM's disk tier and vLLM's disk backend.

Places never used come first, then freed ones, the one freed first before others; only where none
is left does the store's own rule act, and the least recently used place changes hands. The
admission filter is off: the policy admits. Objects larger than a place are cut into pieces.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.core.ops import Op
from harness.simulator.wearing.events import FREE, PUT
from harness.simulator.wearing.jit import inner_kernel, kernel
from harness.simulator.wearing.state import Cut, Lost, piece_bytes, piece_key, use_pieces
from harness.stores.front import add_op
from harness.stores.index import (
    ABSENT,
    index_get,
    index_remove,
    recency_remove,
)
from harness.stores.ops import ALL_LAYERS, OpArray
from harness.stores.pool_kernel import P, PoolParams, PoolState, occupy, take_place

_WRITE = int(Op.WRITE)
_PLACES_USED = int(P.USED)
_UNWRITTEN, _FREED = int(Lost.UNWRITTEN), int(Lost.FREED)
_HEAD, _HELD = 0, 1
RING_WORDS = 2
"""Head and count, before the ring of freed places itself."""


@inner_kernel
def _place(p: PoolParams, s: PoolState, ring: NDArray[np.int32], request: int) -> int:
    if s.ints[_PLACES_USED] < p.places or ring[_HELD] == 0:
        return take_place(p, s, request)
    place = ring[RING_WORDS + ring[_HEAD]]
    ring[_HEAD] = (ring[_HEAD] + 1) % p.places
    ring[_HELD] -= 1
    return place


@inner_kernel
def _write(
    p: PoolParams, s: PoolState, c: Cut, ring: NDArray[np.int32], ops: OpArray, at: int, cls: int,
    key: np.uint64, session: int, turn: int, request: int,
) -> int:  # fmt: skip
    for piece in range(c.pieces[cls]):
        place = _place(p, s, ring, request)
        if place < 0:
            c.lost[_UNWRITTEN, cls] += 1
            return at
        part = piece_key(c, cls, key, piece)
        occupy(s, place, part, request)
        at = add_op(
            ops, at, _WRITE, place * p.place_bytes, piece_bytes(c, cls, piece), cls,
            c.now[1] % p.store_streams, session, turn, ALL_LAYERS, part,
        )  # fmt: skip
        c.now[1] += 1
    return at


@inner_kernel
def _free(
    p: PoolParams, s: PoolState, c: Cut, ring: NDArray[np.int32], cls: int, key: np.uint64
) -> None:
    found = 0
    for piece in range(c.pieces[cls]):
        part = piece_key(c, cls, key, piece)
        place = index_get(s.keys, s.values, part)
        if place != ABSENT:
            index_remove(s.keys, s.values, part)
            recency_remove(s.nxt, s.prv, place)
            ring[RING_WORDS + (ring[_HEAD] + ring[_HELD]) % p.places] = place
            ring[_HELD] += 1
            found += 1
    if found < c.pieces[cls]:
        c.lost[_FREED, cls] += 1


@kernel
def drive_places(
    p: PoolParams, s: PoolState, c: Cut, ring: NDArray[np.int32], ops: OpArray,
    events: NDArray[np.void], first: int,
) -> tuple[int, int]:  # fmt: skip
    """Serve events from ``first`` on while ``ops`` has room: (ops made, the next event)."""
    most = len(ops) - c.pieces[0] - c.pieces[1]
    at, n = first, 0
    while at < len(events) and n <= most:
        event = events[at]
        cls, key = int(event.object_class), event.key
        if event.action == PUT:
            n = _write(
                p, s, c, ring, ops, n, cls, key, event.session, event.turn, event.request
            )  # fmt: skip
        elif event.action == FREE:
            _free(p, s, c, ring, cls, key)
        else:
            use_pieces(s, c, cls, key)
        at += 1
    return n, at
