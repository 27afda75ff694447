"""A pool of fixed places, evicted one by one: Dynamo KVBM's disk tier and vLLM's disk backend.

Places never used come first, in ascending order; then the least recently used object gives up its
own, so steady state is random overwrite. Optionally an object is written only when it is seen for
the second time (KVBM's frequency filter): sights are remembered in two generations, and the older
one is forgotten when the newer is full, which is its decay.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.core.ops import Op
from harness.stores.front import add_op, leading, state_key
from harness.stores.index import (
    ABSENT,
    index_arrays,
    index_get,
    index_put,
    index_remove,
    mix_pair,
    recency_add,
    recency_arrays,
    recency_oldest,
    recency_remove,
    recency_touch,
)
from harness.stores.jit import inner_kernel, kernel
from harness.stores.ops import ALL_LAYERS, ObjectClass, OpArray

_READ, _WRITE = int(Op.READ), int(Op.WRITE)
_KV, _STATE = int(ObjectClass.FULL_ATTENTION), int(ObjectClass.FIXED_STATE)


class PoolParams(NamedTuple):
    """Places and their size; ``state_pieces`` places hold one checkpoint of fixed states."""

    places: int
    place_bytes: int
    object_bytes: int
    state_pieces: int
    state_tail_bytes: int
    sights: int
    sight_entries: int
    store_streams: int
    load_streams: int


class P(IntEnum):
    """Counters in ``PoolState.ints``."""

    USED = 0
    REQUESTS = 1
    WANTED = 2
    HIT = 3
    CUT_BY_STATE = 4
    EVICTED = 5
    NOT_ADMITTED = 6
    WRITTEN = 7
    SEEN = 8
    FAILED = 9
    COUNT = 10


_USED, _REQUESTS, _WANTED, _HIT = int(P.USED), int(P.REQUESTS), int(P.WANTED), int(P.HIT)
_CUT, _EVICTED, _NOT_ADMITTED = int(P.CUT_BY_STATE), int(P.EVICTED), int(P.NOT_ADMITTED)
_WRITTEN, _SEEN, _FAILED = int(P.WRITTEN), int(P.SEEN), int(P.FAILED)


class PoolState(NamedTuple):
    """Index and recency over places; sights of two generations; ``guard``: in use by a request."""

    keys: NDArray[np.uint64]
    values: NDArray[np.int32]
    place_key: NDArray[np.uint64]
    guard: NDArray[np.int64]
    nxt: NDArray[np.int32]
    prv: NDArray[np.int32]
    new_keys: NDArray[np.uint64]
    new_values: NDArray[np.int32]
    old_keys: NDArray[np.uint64]
    old_values: NDArray[np.int32]
    ints: NDArray[np.int64]


def new_pool(p: PoolParams) -> PoolState:
    """An empty pool."""
    keys, values = index_arrays(p.places)
    nxt, prv = recency_arrays(p.places)
    new_keys, new_values = index_arrays(p.sight_entries)
    old_keys, old_values = index_arrays(p.sight_entries)
    return PoolState(
        keys, values, np.zeros(p.places, np.uint64), np.full(p.places, -1, np.int64), nxt, prv,
        new_keys, new_values, old_keys, old_values, np.zeros(P.COUNT, np.int64),
    )  # fmt: skip


@inner_kernel
def _admit(p: PoolParams, s: PoolState, key: np.uint64) -> bool:
    """Whether the object has been seen often enough; remembers this sight."""
    if p.sights <= 1:
        return True
    seen = index_get(s.new_keys, s.new_values, key)
    if seen == ABSENT:
        seen = max(0, index_get(s.old_keys, s.old_values, key))
        if s.ints[_SEEN] >= p.sight_entries:
            s.old_keys[:], s.old_values[:] = s.new_keys, s.new_values
            s.new_values[:] = ABSENT
            s.ints[_SEEN] = 0
        s.ints[_SEEN] += 1
    index_put(s.new_keys, s.new_values, key, min(seen + 1, p.sights))
    return seen + 1 >= p.sights


@inner_kernel
def take_place(p: PoolParams, s: PoolState, request: int) -> int:
    """A place: untouched, or the least recently used one's, or -1 if this request uses all."""
    if s.ints[_USED] < p.places:
        s.ints[_USED] += 1
        return s.ints[_USED] - 1
    place = recency_oldest(s.nxt, s.prv)
    if s.guard[place] == request:
        return -1
    recency_remove(s.nxt, s.prv, place)
    index_remove(s.keys, s.values, s.place_key[place])
    s.ints[_EVICTED] += 1
    return place


@inner_kernel
def occupy(s: PoolState, place: int, key: np.uint64, request: int) -> None:
    """Let ``place``, which is in nobody's use, hold the object ``key``."""
    index_put(s.keys, s.values, key, place)
    s.place_key[place] = key
    s.guard[place] = request
    recency_add(s.nxt, s.prv, place)
    s.ints[_WRITTEN] += 1


@inner_kernel
def _put(
    p: PoolParams, s: PoolState, ops: OpArray, at: int, key: np.uint64, cls: int, length: int,
    stream: int, session: int, turn: int, request: int,
) -> int:  # fmt: skip
    if index_get(s.keys, s.values, key) != ABSENT:
        return at
    if not _admit(p, s, key):
        s.ints[_NOT_ADMITTED] += 1
        return at
    place = take_place(p, s, request)
    if place < 0:
        s.ints[_FAILED] += 1
        return at
    occupy(s, place, key, request)
    return add_op(
        ops, at, _WRITE, place * p.place_bytes, length, cls, stream, session, turn, ALL_LAYERS, key
    )  # fmt: skip


@inner_kernel
def _get(
    p: PoolParams, s: PoolState, ops: OpArray, at: int, key: np.uint64, cls: int, length: int,
    stream: int, session: int, turn: int, request: int, wanted: bool,
) -> int:  # fmt: skip
    place = index_get(s.keys, s.values, key)
    if place == ABSENT:
        return at
    s.guard[place] = request
    if not wanted:
        return at
    return add_op(
        ops, at, _READ, place * p.place_bytes, length, cls, stream, session, turn, ALL_LAYERS, key
    )  # fmt: skip


@inner_kernel
def _piece_bytes(p: PoolParams, piece: int) -> int:
    return p.state_tail_bytes if piece == p.state_pieces - 1 else p.place_bytes


@inner_kernel
def _piece_key(chunk: np.uint64, piece: int) -> np.uint64:
    """Key of a piece of a state; the first one is the state's own, which is looked up."""
    return state_key(chunk) if piece == 0 else mix_pair(state_key(chunk), np.uint64(piece))


@kernel
def serve(
    p: PoolParams, s: PoolState, ops: OpArray, sessions: NDArray[np.uint32],
    turns: NDArray[np.uint32], starts: NDArray[np.int64], keys: NDArray[np.uint64], wanted: bool,
) -> int:  # fmt: skip
    """Serve requests in turn; the number of ops. Pieces of a state are written last piece first,
    so that the first, which is looked up, is there only with the others."""
    at = 0
    for r in range(len(sessions)):
        first, last = starts[r], starts[r + 1]
        session, turn = sessions[r], turns[r]
        hit, found = leading(s.keys, s.values, keys, first, last, p.state_pieces > 0)
        request = s.ints[_REQUESTS]
        s.ints[_REQUESTS] += 1
        s.ints[_WANTED] += last - first
        s.ints[_HIT] += hit
        s.ints[_CUT] += found - hit
        for c in range(hit):
            stream = p.store_streams + c % p.load_streams
            at = _get(
                p, s, ops, at, keys[first + c], _KV, p.object_bytes, stream, session, turn,
                request, wanted,
            )  # fmt: skip
        for piece in range(p.state_pieces if hit > 0 else 0):
            key = _piece_key(keys[first + hit - 1], piece)
            stream = p.store_streams + (hit + piece) % p.load_streams
            at = _get(
                p, s, ops, at, key, _STATE, _piece_bytes(p, piece), stream, session, turn,
                request, wanted,
            )  # fmt: skip
            place = index_get(s.keys, s.values, key)
            if place != ABSENT:
                recency_touch(s.nxt, s.prv, place)
        for c in range(first + hit - 1, first - 1, -1):
            recency_touch(s.nxt, s.prv, index_get(s.keys, s.values, keys[c]))
        for c in range(first + hit, last):
            at = _put(
                p, s, ops, at, keys[c], _KV, p.object_bytes, (c - first) % p.store_streams,
                session, turn, request,
            )  # fmt: skip
        for piece in range(p.state_pieces - 1 if last > first else -1, -1, -1):
            at = _put(
                p, s, ops, at, _piece_key(keys[last - 1], piece), _STATE, _piece_bytes(p, piece),
                piece % p.store_streams, session, turn, request,
            )  # fmt: skip
    return at
