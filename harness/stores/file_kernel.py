"""A file an object, compiled: LMCache's local disk, SGLang's file backend, vLLM's fs tier.

Files are whole objects on a file system (``file_space``). A file that is there is not written
again. Reclaim is none (puts fail once the disk is full), the least recent file at a time until the
new one fits under the cap, or a burst down to a share of the cap. Nothing is discarded.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.core.ops import PAGE_BYTES, Op
from harness.stores.file_space import FileSpace, mark_pages, new_space, take_run
from harness.stores.front import add_op, leading, state_key
from harness.stores.index import (
    ABSENT,
    index_arrays,
    index_get,
    index_put,
    index_remove,
    recency_add,
    recency_arrays,
    recency_oldest,
    recency_remove,
    recency_touch,
)
from harness.stores.jit import inner_kernel, kernel
from harness.stores.ops import ALL_LAYERS, ObjectClass, OpArray

MOST_EXTENTS = 16
"""Extents a file may have; a put that would need more fails."""

_READ, _WRITE = int(Op.READ), int(Op.WRITE)
_KV, _STATE = int(ObjectClass.FULL_ATTENTION), int(ObjectClass.FIXED_STATE)


class FileParams(NamedTuple):
    """Sizes in pages; ``burst`` is the share of the cap that a burst leaves, 0 for one by one."""

    files: int
    chunk_pages: int
    state_pages: int
    cap_pages: int
    evicts: bool
    burst: float
    store_streams: int
    load_streams: int


class F(IntEnum):
    """Counters in ``FileState.ints``."""

    FREE_ROWS = 0
    USED_PAGES = 1
    REQUESTS = 2
    WANTED = 3
    HIT = 4
    CUT_BY_STATE = 5
    EVICTED = 6
    BURSTS = 7
    FAILED = 8
    WRITTEN = 9
    EXTENTS = 10
    COUNT = 11


_ROWS, _USED, _REQUESTS, _WANTED = 0, 1, 2, 3
_HIT, _CUT, _EVICTED, _BURSTS = 4, 5, 6, 7
_FAILED, _WRITTEN, _EXTENTS = 8, 9, 10


class FileState(NamedTuple):
    """A row a file: its key, extents (page, pages), and the last request that used it."""

    space: FileSpace
    keys: NDArray[np.uint64]
    values: NDArray[np.int32]
    row_key: NDArray[np.uint64]
    row_extents: NDArray[np.int64]
    row_guard: NDArray[np.int64]
    free_rows: NDArray[np.int32]
    nxt: NDArray[np.int32]
    prv: NDArray[np.int32]
    touched: NDArray[np.uint8]
    ints: NDArray[np.int64]


def new_files(p: FileParams, capacity_bytes: int) -> FileState:
    """An empty file system and no file."""
    keys, values = index_arrays(p.files)
    nxt, prv = recency_arrays(p.files)
    ints = np.zeros(F.COUNT, np.int64)
    ints[F.FREE_ROWS] = p.files
    return FileState(
        new_space(capacity_bytes), keys, values, np.zeros(p.files, np.uint64),
        np.zeros((p.files, 2 * MOST_EXTENTS), np.int64), np.full(p.files, -1, np.int64),
        np.arange(p.files - 1, -1, -1, dtype=np.int32), nxt, prv,
        np.zeros(capacity_bytes // PAGE_BYTES // 256 + 1, np.uint8), ints,
    )  # fmt: skip


@inner_kernel
def unlink_file(s: FileState, row: int) -> None:
    """Give a file's pages and row back; nothing is discarded."""
    extents = s.row_extents[row]
    for e in range(MOST_EXTENTS):
        if extents[2 * e + 1] == 0:
            break
        mark_pages(s.space, extents[2 * e], extents[2 * e + 1], False)
        s.ints[_USED] -= extents[2 * e + 1]
        s.ints[_EXTENTS] -= 1
    extents[:] = 0
    index_remove(s.keys, s.values, s.row_key[row])
    recency_remove(s.nxt, s.prv, row)
    s.free_rows[s.ints[_ROWS]] = row
    s.ints[_ROWS] += 1
    s.ints[_EVICTED] += 1


@inner_kernel
def _make_room(p: FileParams, s: FileState, need: int, request: int) -> bool:
    """Reclaim until ``need`` pages fit under the cap; False if they cannot."""
    limit = p.cap_pages
    if s.ints[_USED] + need > limit and p.evicts and p.burst > 0:
        limit = int(p.burst * p.cap_pages)
        s.ints[_BURSTS] += 1
    while s.ints[_USED] + need > limit and p.evicts:
        oldest = recency_oldest(s.nxt, s.prv)
        if oldest < 0 or s.row_guard[oldest] == request:
            break
        unlink_file(s, oldest)
    return s.ints[_USED] + need <= p.cap_pages and s.ints[_ROWS] > 0


@inner_kernel
def write_file(
    p: FileParams, s: FileState, ops: OpArray, at: int, key: np.uint64, cls: int, need: int,
    stream: int, session: int, turn: int, request: int,
) -> int:  # fmt: skip
    if index_get(s.keys, s.values, key) != ABSENT:
        return at
    if not _make_room(p, s, need, request):
        s.ints[_FAILED] += 1
        return at
    s.ints[_ROWS] -= 1
    row = s.free_rows[s.ints[_ROWS]]
    extents = s.row_extents[row]
    left, begin = need, at
    for e in range(MOST_EXTENTS):
        page, got = take_run(s.space, left)
        if got == 0:
            break
        extents[2 * e], extents[2 * e + 1] = page, got
        left -= got
        s.ints[_USED] += got
        s.ints[_EXTENTS] += 1
        at = add_op(
            ops, at, _WRITE, page * PAGE_BYTES, got * PAGE_BYTES, cls, stream, session, turn,
            ALL_LAYERS, key,
        )  # fmt: skip
        s.touched[page >> 8 : ((page + got - 1) >> 8) + 1] = 1
        if left == 0:
            break
    index_put(s.keys, s.values, key, row)
    s.row_key[row] = key
    s.row_guard[row] = request
    recency_add(s.nxt, s.prv, row)
    if left > 0:
        unlink_file(s, row)
        s.ints[_EVICTED] -= 1
        s.ints[_FAILED] += 1
        return begin
    s.ints[_WRITTEN] += 1
    return at


@inner_kernel
def _read(
    s: FileState, ops: OpArray, at: int, key: np.uint64, cls: int, stream: int, session: int,
    turn: int, request: int, wanted: bool,
) -> int:  # fmt: skip
    row = index_get(s.keys, s.values, key)
    s.row_guard[row] = request
    extents = s.row_extents[row]
    for e in range(MOST_EXTENTS):
        if extents[2 * e + 1] == 0 or not wanted:
            break
        at = add_op(
            ops, at, _READ, extents[2 * e] * PAGE_BYTES, extents[2 * e + 1] * PAGE_BYTES, cls,
            stream, session, turn, ALL_LAYERS, key,
        )  # fmt: skip
    return at


@kernel
def serve(
    p: FileParams, s: FileState, ops: OpArray, sessions: NDArray[np.uint32],
    turns: NDArray[np.uint32], starts: NDArray[np.int64], keys: NDArray[np.uint64], wanted: bool,
) -> int:  # fmt: skip
    """Serve requests in turn; the number of ops."""
    at = 0
    for r in range(len(sessions)):
        first, last = starts[r], starts[r + 1]
        session, turn = sessions[r], turns[r]
        hit, found = leading(s.keys, s.values, keys, first, last, p.state_pages > 0)
        request = s.ints[_REQUESTS]
        s.ints[_REQUESTS] += 1
        s.ints[_WANTED] += last - first
        s.ints[_HIT] += hit
        s.ints[_CUT] += found - hit
        for c in range(hit):
            stream = p.store_streams + c % p.load_streams
            at = _read(
                s, ops, at, keys[first + c], _KV, stream, session, turn, request, wanted
            )  # fmt: skip
        if hit > 0 and p.state_pages > 0:
            key = state_key(keys[first + hit - 1])
            stream = p.store_streams + hit % p.load_streams
            at = _read(s, ops, at, key, _STATE, stream, session, turn, request, wanted)
            recency_touch(s.nxt, s.prv, index_get(s.keys, s.values, key))
        for c in range(first + hit - 1, first - 1, -1):
            recency_touch(s.nxt, s.prv, index_get(s.keys, s.values, keys[c]))
        for c in range(first + hit, last):
            at = write_file(
                p, s, ops, at, keys[c], _KV, p.chunk_pages, (c - first) % p.store_streams,
                session, turn, request,
            )  # fmt: skip
        if last > first and p.state_pages > 0:
            at = write_file(
                p, s, ops, at, state_key(keys[last - 1]), _STATE, p.state_pages,
                (last - first) % p.store_streams, session, turn, request,
            )  # fmt: skip
    return at
