"""Mooncake's offset-allocator backend, compiled: records in one file, first in, first out.

A record is a header with its key, zeros up to the next page, and the value, written by one gather
write; reads take the value. Above the high watermark the oldest records go down to the low one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.core.ops import PAGE_BYTES, Op
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
)
from harness.stores.jit import inner_kernel, kernel
from harness.stores.offset_allocator import Allocator, allocate, new_allocator, release
from harness.stores.ops import ALL_LAYERS, ObjectClass, OpArray

_READ, _WRITE = int(Op.READ), int(Op.WRITE)
_KV, _STATE = int(ObjectClass.FULL_ATTENTION), int(ObjectClass.FIXED_STATE)
_HEADER_PAGES = 1


class OffsetParams(NamedTuple):
    """Sizes in pages; ``high`` and ``low`` watermarks in pages; ``evicts`` False fails puts."""

    records: int
    total_pages: int
    chunk_pages: int
    state_pages: int
    evicts: bool
    high: int
    low: int
    threads: int


class O(IntEnum):  # noqa: E742
    """Counters in ``OffsetState.ints``."""

    FREE_ROWS = 0
    USED_PAGES = 1
    REQUESTS = 2
    WANTED = 3
    HIT = 4
    CUT_BY_STATE = 5
    EVICTED = 6
    FAILED = 7
    NO_RANGE = 8
    COUNT = 9


_ROWS, _USED, _REQUESTS, _WANTED, _HIT = 0, 1, 2, 3, 4
_CUT, _EVICTED, _FAILED, _NO_RANGE = 5, 6, 7, 8


class OffsetState(NamedTuple):
    """A row a record: key, the allocator's node, the request that made it."""

    allocator: Allocator
    keys: NDArray[np.uint64]
    values: NDArray[np.int32]
    row_key: NDArray[np.uint64]
    row_node: NDArray[np.int32]
    row_guard: NDArray[np.int64]
    free_rows: NDArray[np.int32]
    nxt: NDArray[np.int32]
    prv: NDArray[np.int32]
    ints: NDArray[np.int64]


def new_offset(p: OffsetParams) -> OffsetState:
    """An empty file."""
    keys, values = index_arrays(p.records)
    nxt, prv = recency_arrays(p.records)
    ints = np.zeros(O.COUNT, np.int64)
    ints[O.FREE_ROWS] = p.records
    return OffsetState(
        new_allocator(p.total_pages, p.records), keys, values, np.zeros(p.records, np.uint64),
        np.zeros(p.records, np.int32), np.full(p.records, -1, np.int64),
        np.arange(p.records - 1, -1, -1, dtype=np.int32), nxt, prv, ints,
    )  # fmt: skip


@inner_kernel
def drop_record(s: OffsetState, row: int) -> None:
    """Free a record's range and row."""
    node = s.row_node[row]
    s.ints[_USED] -= s.allocator.size[node]
    release(s.allocator, node)
    index_remove(s.keys, s.values, s.row_key[row])
    recency_remove(s.nxt, s.prv, row)
    s.free_rows[s.ints[_ROWS]] = row
    s.ints[_ROWS] += 1
    s.ints[_EVICTED] += 1


@inner_kernel
def _drop_oldest(s: OffsetState, request: int) -> bool:
    row = recency_oldest(s.nxt, s.prv)
    if row < 0 or s.row_guard[row] == request:
        return False
    drop_record(s, row)
    return True


@inner_kernel
def _range(p: OffsetParams, s: OffsetState, need: int, request: int) -> int:
    """A node of ``need`` pages; evicts by watermark, and while fragmentation leaves no range."""
    if p.evicts and s.ints[_USED] + need > p.high:
        while s.ints[_USED] + need > p.low and _drop_oldest(s, request):
            pass
    while s.ints[_ROWS] > 0:
        node = allocate(s.allocator, need)
        if node >= 0:
            return node
        if not p.evicts or not _drop_oldest(s, request):
            break
        s.ints[_NO_RANGE] += 1
    return -1


@inner_kernel
def write_record(
    p: OffsetParams, s: OffsetState, ops: OpArray, at: int, key: np.uint64, cls: int, value: int,
    stream: int, session: int, turn: int, request: int,
) -> int:  # fmt: skip
    if index_get(s.keys, s.values, key) != ABSENT:
        return at
    node = _range(p, s, value + _HEADER_PAGES, request)
    if node < 0:
        s.ints[_FAILED] += 1
        return at
    s.ints[_ROWS] -= 1
    row = s.free_rows[s.ints[_ROWS]]
    s.row_key[row], s.row_node[row], s.row_guard[row] = key, node, request
    s.ints[_USED] += s.allocator.size[node]
    index_put(s.keys, s.values, key, row)
    recency_add(s.nxt, s.prv, row)
    return add_op(
        ops, at, _WRITE, s.allocator.offset[node] * PAGE_BYTES,
        (value + _HEADER_PAGES) * PAGE_BYTES, cls, stream, session, turn, ALL_LAYERS, key,
    )  # fmt: skip


@inner_kernel
def _read(
    s: OffsetState, ops: OpArray, at: int, key: np.uint64, cls: int, value: int, stream: int,
    session: int, turn: int, wanted: bool,
) -> int:  # fmt: skip
    row = index_get(s.keys, s.values, key)
    if not wanted:
        return at
    start = s.allocator.offset[s.row_node[row]] + _HEADER_PAGES
    return add_op(
        ops, at, _READ, start * PAGE_BYTES, value * PAGE_BYTES, cls, stream, session, turn,
        ALL_LAYERS, key,
    )  # fmt: skip


@kernel
def serve(
    p: OffsetParams, s: OffsetState, ops: OpArray, sessions: NDArray[np.uint32],
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
            stream = p.threads + c % p.threads
            at = _read(
                s, ops, at, keys[first + c], _KV, p.chunk_pages, stream, session, turn, wanted,
            )  # fmt: skip
        if hit > 0 and p.state_pages > 0:
            at = _read(
                s, ops, at, state_key(keys[first + hit - 1]), _STATE, p.state_pages, p.threads,
                session, turn, wanted,
            )  # fmt: skip
        for c in range(first + hit, last):
            at = write_record(
                p, s, ops, at, keys[c], _KV, p.chunk_pages, (c - first) % p.threads, session,
                turn, request,
            )  # fmt: skip
        if last > first and p.state_pages > 0:
            at = write_record(
                p, s, ops, at, state_key(keys[last - 1]), _STATE, p.state_pages, 0, session, turn,
                request,
            )  # fmt: skip
    return at
