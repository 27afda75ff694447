"""Mooncake's bucket backend, compiled: objects concatenated into files, reclaimed file by file.

Objects wait in memory until a heartbeat finds enough for a bucket, 256 MB or 500 keys; incomplete
groups wait on. In a bucket they lie in a hash map's order, key and value without padding, so values
are unaligned and neighbours in a prompt are not neighbours in a file. Above the high watermark
whole buckets go, the first made or the one read least recently, down to the low one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.core.ops import PAGE_BYTES, Op
from harness.stores.file_space import FileSpace, mark_pages, new_space, take_run
from harness.stores.front import add_op, state_key
from harness.stores.index import (
    ABSENT,
    index_arrays,
    index_get,
    index_put,
    index_remove,
    mix64,
    recency_add,
    recency_arrays,
    recency_oldest,
    recency_remove,
    recency_touch,
)
from harness.stores.jit import inner_kernel, kernel
from harness.stores.ops import ALL_LAYERS, NO_SESSION, ObjectClass, OpArray

MOST_EXTENTS = 32
"""Extents that the files of a bucket may have."""

_READ, _WRITE = int(Op.READ), int(Op.WRITE)
_KV, _STATE = int(ObjectClass.FULL_ATTENTION), int(ObjectClass.FIXED_STATE)
_META = int(ObjectClass.METADATA)
_WAITING = -2
_NO_BUCKET = -1
_GONE = np.uint64(1) << np.uint64(63)


class BucketParams(NamedTuple):
    """Sizes in bytes; watermarks in pages; ``record_key_bytes`` before each value."""

    buckets: int
    objects: int
    bucket_bytes: int
    bucket_keys: int
    record_key_bytes: int
    entry_bytes: int
    chunk_bytes: int
    state_bytes: int
    heartbeat_s: float
    evicts: bool
    lru: bool
    high: int
    low: int
    load_streams: int


class B(IntEnum):
    """Counters in ``BucketState.ints``."""

    FREE_ROWS = 0
    FREE_BUCKETS = 1
    WAITING = 2
    USED_PAGES = 3
    REQUESTS = 4
    WANTED = 5
    HIT = 6
    CUT_BY_STATE = 7
    IN_MEMORY = 8
    BUCKETS_WRITTEN = 9
    BUCKETS_EVICTED = 10
    OBJECTS_EVICTED = 11
    FAILED = 12
    COUNT = 13


_ROWS, _BUCKETS, _HELD, _USED, _REQUESTS = 0, 1, 2, 3, 4
_WANTED, _HIT, _CUT, _MEMORY, _WRITTEN = 5, 6, 7, 8, 9
_BUCKETS_GONE, _OBJECTS_GONE, _FAILED = 10, 11, 12


class BucketState(NamedTuple):
    """A row an object: key, class, who brought it, bucket, offset in its file, next in it.

    ``waiting`` lists the rows that are in memory, in the order in which they came;
    ``bucket_live`` counts what of a bucket is still indexed.
    """

    space: FileSpace
    keys: NDArray[np.uint64]
    values: NDArray[np.int32]
    row_key: NDArray[np.uint64]
    row_class: NDArray[np.uint8]
    row_session: NDArray[np.uint32]
    row_turn: NDArray[np.uint32]
    row_bucket: NDArray[np.int32]
    row_start: NDArray[np.int64]
    row_next: NDArray[np.int32]
    free_rows: NDArray[np.int32]
    waiting: NDArray[np.int32]
    bucket_first: NDArray[np.int32]
    bucket_live: NDArray[np.int32]
    bucket_extents: NDArray[np.int64]
    free_buckets: NDArray[np.int32]
    nxt: NDArray[np.int32]
    prv: NDArray[np.int32]
    ints: NDArray[np.int64]
    next_heartbeat: NDArray[np.float64]


def new_buckets(p: BucketParams, capacity_bytes: int) -> BucketState:
    """No object, no bucket, an empty file system."""
    keys, values = index_arrays(p.objects)
    nxt, prv = recency_arrays(p.buckets)
    i4, i8 = np.int32, np.int64
    ints = np.zeros(B.COUNT, i8)
    ints[B.FREE_ROWS], ints[B.FREE_BUCKETS] = p.objects, p.buckets
    return BucketState(
        space=new_space(capacity_bytes), keys=keys, values=values,
        row_key=np.zeros(p.objects, np.uint64), row_class=np.zeros(p.objects, np.uint8),
        row_session=np.zeros(p.objects, np.uint32), row_turn=np.zeros(p.objects, np.uint32),
        row_bucket=np.full(p.objects, _WAITING, i4), row_start=np.zeros(p.objects, i8),
        row_next=np.zeros(p.objects, i4),
        free_rows=np.arange(p.objects - 1, -1, -1, dtype=i4), waiting=np.zeros(p.objects, i4),
        bucket_first=np.zeros(p.buckets, i4), bucket_live=np.zeros(p.buckets, i4),
        bucket_extents=np.zeros((p.buckets, 2 * MOST_EXTENTS), i8),
        free_buckets=np.arange(p.buckets - 1, -1, -1, dtype=i4), nxt=nxt, prv=prv, ints=ints,
        next_heartbeat=np.array([p.heartbeat_s]),
    )  # fmt: skip


@inner_kernel
def _value_bytes(p: BucketParams, s: BucketState, row: int) -> int:
    return p.chunk_bytes if s.row_class[row] == _KV else p.state_bytes


@inner_kernel
def _forget_row(s: BucketState, row: int) -> None:
    index_remove(s.keys, s.values, s.row_key[row])
    s.row_bucket[row] = _WAITING
    s.free_rows[s.ints[_ROWS]] = row
    s.ints[_ROWS] += 1


@inner_kernel
def remove_bucket(s: BucketState, bucket: int) -> None:
    row = s.bucket_first[bucket]
    while row >= 0:
        following = s.row_next[row]
        _forget_row(s, row)
        s.ints[_OBJECTS_GONE] += 1
        row = following
    _free_extents(s, bucket)
    recency_remove(s.nxt, s.prv, bucket)
    s.free_buckets[s.ints[_BUCKETS]] = bucket
    s.ints[_BUCKETS] += 1
    s.ints[_BUCKETS_GONE] += 1


@inner_kernel
def remove_object(s: BucketState, row: int) -> None:
    """Forget one object: what waits is not written; in a bucket its bytes stay until that goes.

    A bucket in which nothing is left goes at once.
    """
    bucket = s.row_bucket[row]
    if bucket == _WAITING:
        place = 0
        while s.waiting[place] != row:
            place += 1
        s.ints[_HELD] -= 1
        for i in range(place, s.ints[_HELD]):
            s.waiting[i] = s.waiting[i + 1]
        _forget_row(s, row)
        return
    index_remove(s.keys, s.values, s.row_key[row])
    s.row_key[row] = _GONE | np.uint64(row)
    s.bucket_live[bucket] -= 1
    if s.bucket_live[bucket] == 0:
        remove_bucket(s, bucket)


@inner_kernel
def _free_extents(s: BucketState, bucket: int) -> None:
    extents = s.bucket_extents[bucket]
    for e in range(MOST_EXTENTS):
        if extents[2 * e + 1] == 0:
            break
        mark_pages(s.space, extents[2 * e], extents[2 * e + 1], False)
        s.ints[_USED] -= extents[2 * e + 1]
    extents[:] = 0


@inner_kernel
def _take_bucket(p: BucketParams, s: BucketState, pages: int) -> int:
    """A bucket with ``pages`` pages of file, after reclaiming what the watermarks say; or none."""
    if p.evicts and s.ints[_USED] + pages > p.high:
        while s.ints[_USED] + pages > p.low and recency_oldest(s.nxt, s.prv) >= 0:
            remove_bucket(s, recency_oldest(s.nxt, s.prv))
    if s.ints[_USED] + pages > p.high or s.ints[_BUCKETS] == 0:
        return _NO_BUCKET
    s.ints[_BUCKETS] -= 1
    bucket = s.free_buckets[s.ints[_BUCKETS]]
    extents = s.bucket_extents[bucket]
    left = pages
    for e in range(MOST_EXTENTS):
        page, got = take_run(s.space, left)
        if got == 0:
            break
        extents[2 * e], extents[2 * e + 1] = page, got
        s.ints[_USED] += got
        left -= got
        if left == 0:
            return bucket
    _free_extents(s, bucket)
    s.free_buckets[s.ints[_BUCKETS]] = bucket
    s.ints[_BUCKETS] += 1
    return _NO_BUCKET


@inner_kernel
def _emit(
    s: BucketState, ops: OpArray, at: int, op: int, bucket: int, first_page: int, last_page: int,
    cls: int, stream: int, session: int, turn: int, key: np.uint64,
) -> int:  # fmt: skip
    """Ops for pages [first_page, last_page) of a bucket's file, an extent at a time."""
    extents = s.bucket_extents[bucket]
    base = 0
    for e in range(MOST_EXTENTS):
        size = extents[2 * e + 1]
        if size == 0 or base >= last_page:
            break
        low, high = max(first_page, base), min(last_page, base + size)
        if low < high:
            start = (extents[2 * e] + low - base) * PAGE_BYTES
            at = add_op(
                ops, at, op, start, (high - low) * PAGE_BYTES, cls, stream, session, turn,
                ALL_LAYERS, key,
            )  # fmt: skip
        base += size
    return at


@inner_kernel
def _write_bucket(p: BucketParams, s: BucketState, ops: OpArray, at: int, count: int) -> int:
    """Write the ``count`` objects that have waited longest as one bucket."""
    rows = s.waiting[:count].copy()
    order = np.empty(count, np.uint64)
    total = 0
    for i in range(count):
        order[i] = mix64(s.row_key[rows[i]])
        total += p.record_key_bytes + _value_bytes(p, s, rows[i])
    rows = rows[np.argsort(order)]
    held = s.ints[_HELD]
    s.waiting[: held - count] = s.waiting[count:held].copy()
    s.ints[_HELD] = held - count
    data_pages = -(-total // PAGE_BYTES)
    meta_pages = -(-count * p.entry_bytes // PAGE_BYTES)
    bucket = _take_bucket(p, s, data_pages + meta_pages)
    if bucket == _NO_BUCKET:
        for i in range(count):
            _forget_row(s, rows[i])
        s.ints[_FAILED] += count
        return at
    recency_add(s.nxt, s.prv, bucket)
    s.bucket_first[bucket], s.bucket_live[bucket] = rows[0], count
    offset = 0
    for i in range(count):
        row = rows[i]
        start = offset // PAGE_BYTES
        s.row_bucket[row], s.row_start[row] = bucket, offset + p.record_key_bytes
        s.row_next[row] = rows[i + 1] if i + 1 < count else -1
        offset += p.record_key_bytes + _value_bytes(p, s, row)
        end = offset // PAGE_BYTES if i + 1 < count else data_pages
        at = _emit(
            s, ops, at, _WRITE, bucket, start, end, s.row_class[row], 0, s.row_session[row],
            s.row_turn[row], s.row_key[row],
        )  # fmt: skip
    at = _emit(
        s, ops, at, _WRITE, bucket, data_pages, data_pages + meta_pages, _META, 0, NO_SESSION, 0,
        np.uint64(0),
    )  # fmt: skip
    s.ints[_WRITTEN] += 1
    return at


@kernel
def heartbeat(p: BucketParams, s: BucketState, ops: OpArray, at: int, until: float) -> int:
    """Heartbeats up to ``until``: write as many whole buckets as are waiting."""
    if until < s.next_heartbeat[0]:
        return at
    missed = np.floor((until - s.next_heartbeat[0]) / p.heartbeat_s) + 1
    s.next_heartbeat[0] += missed * p.heartbeat_s
    return write_full(p, s, ops, at)


@kernel
def write_full(p: BucketParams, s: BucketState, ops: OpArray, at: int) -> int:
    """Write whole buckets while there are objects for one."""
    while True:
        size = count = 0
        for i in range(s.ints[_HELD]):
            size += p.record_key_bytes + _value_bytes(p, s, s.waiting[i])
            count += 1
            if size > p.bucket_bytes and count > 1:
                count -= 1
                break
            if count == p.bucket_keys or size >= p.bucket_bytes:
                break
        full = count == p.bucket_keys or size >= p.bucket_bytes
        if not full:
            return at
        at = _write_bucket(p, s, ops, at, count)


@inner_kernel
def hold_object(
    p: BucketParams, s: BucketState, key: np.uint64, cls: int, session: int, turn: int
) -> None:
    """Keep an object in memory until its bucket is written."""
    if index_get(s.keys, s.values, key) != ABSENT:
        return
    if s.ints[_ROWS] == 0:
        s.ints[_FAILED] += 1
        return
    s.ints[_ROWS] -= 1
    row = s.free_rows[s.ints[_ROWS]]
    s.row_key[row], s.row_class[row], s.row_bucket[row] = key, cls, _WAITING
    s.row_session[row], s.row_turn[row] = session, turn
    index_put(s.keys, s.values, key, row)
    s.waiting[s.ints[_HELD]] = row
    s.ints[_HELD] += 1


@inner_kernel
def _read(
    p: BucketParams, s: BucketState, ops: OpArray, at: int, key: np.uint64, stream: int,
    session: int, turn: int, wanted: bool,
) -> int:  # fmt: skip
    row = index_get(s.keys, s.values, key)
    bucket = s.row_bucket[row]
    if bucket == _WAITING:
        s.ints[_MEMORY] += 1
        return at
    if p.lru:
        recency_touch(s.nxt, s.prv, bucket)
    if not wanted:
        return at
    start = s.row_start[row]
    end = start + _value_bytes(p, s, row)
    return _emit(
        s, ops, at, _READ, bucket, start // PAGE_BYTES, -(-end // PAGE_BYTES), s.row_class[row],
        stream, session, turn, key,
    )  # fmt: skip


@kernel
def serve(
    p: BucketParams, s: BucketState, ops: OpArray, times: NDArray[np.float64],
    sessions: NDArray[np.uint32], turns: NDArray[np.uint32], starts: NDArray[np.int64],
    keys: NDArray[np.uint64], wanted: bool,
) -> int:  # fmt: skip
    """Serve requests in turn; the number of ops."""
    at = 0
    for r in range(len(times)):
        at = heartbeat(p, s, ops, at, times[r])
        first, last = starts[r], starts[r + 1]
        session, turn = sessions[r], turns[r]
        found = 0
        while first + found < last:
            if index_get(s.keys, s.values, keys[first + found]) == ABSENT:
                break
            found += 1
        hit = found
        while p.state_bytes > 0 and hit > 0:
            if index_get(s.keys, s.values, state_key(keys[first + hit - 1])) != ABSENT:
                break
            hit -= 1
        s.ints[_REQUESTS] += 1
        s.ints[_WANTED] += last - first
        s.ints[_HIT] += hit
        s.ints[_CUT] += found - hit
        for c in range(hit):
            stream = 1 + c % p.load_streams
            at = _read(p, s, ops, at, keys[first + c], stream, session, turn, wanted)
        if hit > 0 and p.state_bytes > 0:
            key = state_key(keys[first + hit - 1])
            at = _read(p, s, ops, at, key, 1 + hit % p.load_streams, session, turn, wanted)
        for c in range(first + hit, last):
            hold_object(p, s, keys[c], _KV, session, turn)
        if last > first and p.state_bytes > 0:
            hold_object(p, s, state_key(keys[last - 1]), _STATE, session, turn)
    return at
