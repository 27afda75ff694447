"""The slot store's life, compiled: lookups, store workers, allocation, eviction, checkpoints.

Rules (LMCache 0.5.6 ``raw_block``, read in its source and confirmed on captures): a freed slot is
reused first, last freed first, and the bump pointer moves only while none is free; once a second,
if the used share has reached the watermark, a share of the keys is freed, least recent first, later
chunks of a request before earlier ones; an indexed key is never written again; a put that finds no
slot fails. Each store worker takes one request at a time, so two of them interleave slot by slot.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from harness.core.ops import PAGE_BYTES, Op
from harness.stores.front import add_op
from harness.stores.index import (
    ABSENT,
    STATE_SALT,
    index_get,
    index_put,
    index_remove,
    mix_pair,
    recency_add,
    recency_oldest,
    recency_remove,
    recency_touch,
)
from harness.stores.ops import ALL_LAYERS, NO_SESSION, ObjectClass, OpArray
from harness.stores.slot_memory import (
    evict_memory,
    keep_in_memory,
    memory_is_due,
    touch_memory,
)
from harness.stores.slot_state import PENDING, QUEUE_CHUNKS, N, SlotParams, SlotState, T

_READ, _WRITE = int(Op.READ), int(Op.WRITE)
_KV, _STATE = int(ObjectClass.FULL_ATTENTION), int(ObjectClass.FIXED_STATE)
_HEADER, _META = int(ObjectClass.HEADER), int(ObjectClass.METADATA)
_OPS, _BUMP, _FREE, _USED = int(N.OPS), int(N.BUMP), int(N.FREE), int(N.USED)
_CHECKPOINTS, _DIRTY, _SKIPPED = int(N.CHECKPOINTS), int(N.DIRTY), int(N.CHECKPOINTS_SKIPPED)
_EVICTED, _EVICTIONS, _FAILED = int(N.EVICTED), int(N.EVICTIONS), int(N.FAILED_PUTS)
_WANTED, _HIT, _MEMORY = int(N.CHUNKS_WANTED), int(N.CHUNKS_HIT), int(N.HIT_IN_MEMORY)
_KV_WRITTEN, _STATES_WRITTEN = int(N.CHUNKS_WRITTEN), int(N.STATES_WRITTEN)
_STATES_READ, _REQUESTS, _CUT = int(N.STATES_READ), int(N.REQUESTS), int(N.CUT_BY_STATE)
_MEMORY_FREE, _DROPPED = int(N.MEMORY_FREE), int(N.DROPPED_HITS)
_TICK, _LAST_IO, _LAST_CHECKPOINT = int(T.NEXT_TICK), int(T.LAST_IO), int(T.LAST_CHECKPOINT)
_NOW, _WORKERS = int(T.NOW), int(T.WORKERS)

_inlined = njit(cache=True, forceinline=True)
"""For small functions: handing the state's arrays over costs more than what they do."""


@_inlined
def _emit(
    s: SlotState, ops: OpArray, op: int, offset: int, length: int, cls: int, stream: int,
    session: int, turn: int, key: np.uint64,
) -> None:  # fmt: skip
    s.ints[_OPS] = add_op(
        ops, s.ints[_OPS], op, offset, length, cls, stream, session, turn, ALL_LAYERS, key
    )


@njit(cache=True)
def _evict(p: SlotParams, s: SlotState) -> None:
    """Free the share of the keys that the policy says, least recent first."""
    victims = int(s.ints[_USED] * p.eviction_ratio)
    for _ in range(victims):
        slot = recency_oldest(s.nxt, s.prv)
        recency_remove(s.nxt, s.prv, slot)
        index_remove(s.keys, s.values, s.slot_key[slot])
        s.free[s.ints[_FREE]] = slot
        s.ints[_FREE] += 1
    s.ints[_USED] -= victims
    s.ints[_EVICTED] += victims
    s.ints[_EVICTIONS] += 1
    s.ints[_DIRTY] = 1


@njit(cache=True)
def _tick(p: SlotParams, s: SlotState, until: float) -> None:
    """Run the eviction controllers' wake-ups up to ``until``."""
    while s.times[_TICK] <= until:
        due = s.ints[_USED] >= p.watermark * p.slots
        memory_due = memory_is_due(p, s)
        if not due and not memory_due:
            missed = np.floor((until - s.times[_TICK]) / p.tick_s) + 1
            s.times[_TICK] += missed * p.tick_s
            return
        if due:
            _evict(p, s)
        if memory_due:
            evict_memory(p, s)
        s.times[_TICK] += p.tick_s


@_inlined
def _slots_left(p: SlotParams, s: SlotState) -> int:
    return s.ints[_FREE] + p.slots - s.ints[_BUMP]


@_inlined
def _allocate(p: SlotParams, s: SlotState) -> int:
    """A slot: the one freed last, else the next untouched one. One must be left."""
    if s.ints[_FREE] > 0:
        s.ints[_FREE] -= 1
        return s.free[s.ints[_FREE]]
    s.ints[_BUMP] += 1
    return s.ints[_BUMP] - 1


@_inlined
def _pop(s: SlotState, worker: int) -> int:
    """Take the chunk at the head of ``worker``'s queue; its place in the ring."""
    at = s.queue_head[worker]
    s.queue_head[worker] = (at + 1) % QUEUE_CHUNKS
    s.queue_held[worker] -= 1
    s.queue_run[worker] += 1
    return at


@njit(cache=True)
def _drop(s: SlotState, worker: int) -> None:
    """A put that failed: the chunk is forgotten."""
    at = _pop(s, worker)
    s.ints[_FAILED] += 1
    index_remove(s.keys, s.values, s.queue_key[worker, at])


@_inlined
def _put(p: SlotParams, s: SlotState, ops: OpArray, worker: int, place: int) -> None:
    """Write the chunk at the head of ``worker``'s queue; ``place`` is its number in the batch."""
    slot = _allocate(p, s)
    at = _pop(s, worker)
    key, cls = s.queue_key[worker, at], s.queue_class[worker, at]
    session, turn = s.queue_session[worker, at], s.queue_turn[worker, at]
    start = p.data_start + slot * p.slot_bytes
    lane = worker * p.batch + place
    _emit(s, ops, _WRITE, start, p.header_bytes, _HEADER, lane, session, turn, key)
    length = s.queue_length[worker, at]
    _emit(s, ops, _WRITE, start + p.header_bytes, length, cls, lane, session, turn, key)
    s.slot_key[slot] = key
    s.writes[slot] += 1
    index_put(s.keys, s.values, key, slot)
    recency_add(s.nxt, s.prv, slot)
    s.ints[_USED] += 1
    s.ints[_DIRTY] = 1
    s.ints[_KV_WRITTEN if cls == _KV else _STATES_WRITTEN] += 1


@_inlined
def _touch(s: SlotState, key: np.uint64) -> None:
    slot = index_get(s.keys, s.values, key)
    if slot >= 0:
        recency_touch(s.nxt, s.prv, slot)


@njit(cache=True)
def _rank_request(s: SlotState, worker: int) -> None:
    """Once a request is stored, make its earlier chunks more recent than its later ones."""
    head = s.queue_head[worker]
    for back in range(1, s.queue_run[worker] + 1):
        _touch(s, s.queue_key[worker, (head - back) % QUEUE_CHUNKS])
    s.queue_run[worker] = 0


@_inlined
def _next_worker(p: SlotParams, s: SlotState) -> tuple[int, float]:
    """The worker that allocates next and when, or (-1, inf) when none holds anything."""
    best, when = -1, np.inf
    for w in range(p.store_workers):
        if s.queue_held[w] > 0:
            start = max(s.times[_WORKERS + w], s.queue_ready[w, s.queue_head[w]])
            if start < when:
                best, when = w, start
    return best, when


@_inlined
def _batch_size(p: SlotParams, s: SlotState, worker: int, ready: float) -> int:
    """Chunks of one request that ``worker`` stores in one go; it holds at least one."""
    size = 1
    while size < p.batch and size < s.queue_held[worker]:
        if s.queue_ready[worker, (s.queue_head[worker] + size) % QUEUE_CHUNKS] != ready:
            break
        size += 1
    return size


@njit(cache=True)
def _step(p: SlotParams, s: SlotState, ops: OpArray, worker: int, when: float) -> None:
    """Let ``worker`` store its next chunk, or its next batch of one request, all or none."""
    _tick(p, s, when)
    ready = s.queue_ready[worker, s.queue_head[worker]]
    size = _batch_size(p, s, worker, ready)
    if _slots_left(p, s) < size:
        for _ in range(size):
            _drop(s, worker)
    else:
        for place in range(size):
            _put(p, s, ops, worker, place)
    if s.queue_held[worker] == 0 or s.queue_ready[worker, s.queue_head[worker]] != ready:
        _rank_request(s, worker)
    end = when + size * p.chunk_write_s
    s.times[_WORKERS + worker] = end
    s.times[_LAST_IO] = max(s.times[_LAST_IO], end)


@njit(cache=True)
def advance(p: SlotParams, s: SlotState, ops: OpArray, until: float) -> None:
    """Everything that the store does by itself up to time ``until``."""
    while True:
        worker, when = _next_worker(p, s)
        if worker < 0 or when > until:
            break
        _step(p, s, ops, worker, when)
    if worker < 0:
        _checkpoint_if_quiet(p, s, ops, until)
    _tick(p, s, until)


@njit(cache=True)
def drain(p: SlotParams, s: SlotState, ops: OpArray) -> None:
    """Let the workers store all that they hold."""
    worker, when = _next_worker(p, s)
    while worker >= 0:
        _step(p, s, ops, worker, when)
        worker, when = _next_worker(p, s)


@njit(cache=True)
def _checkpoint_if_quiet(p: SlotParams, s: SlotState, ops: OpArray, until: float) -> None:
    """The periodic checkpoint: only when due, dirty and quiet; else it waits (and starves)."""
    due = s.times[_LAST_CHECKPOINT] + p.checkpoint_interval_s
    quiet = s.times[_LAST_IO] + p.checkpoint_quiet_s
    if s.ints[_DIRTY] and max(due, quiet) <= until:
        s.times[_LAST_CHECKPOINT] = max(due, quiet)
        checkpoint(p, s, ops)


@njit(cache=True)
def checkpoint(p: SlotParams, s: SlotState, ops: OpArray) -> None:
    """Write the index as JSON, then its header block, into the copy whose turn it is."""
    size = -(-(s.ints[_USED] * p.entry_bytes + 1) // PAGE_BYTES) * PAGE_BYTES
    s.ints[_DIRTY] = 0
    if size + PAGE_BYTES > p.checkpoint_half:
        s.ints[_SKIPPED] += 1
        return
    half = (s.ints[_CHECKPOINTS] % 2) * p.checkpoint_half
    lane = p.store_workers * p.batch + p.load_lanes
    none = np.uint64(0)
    _emit(s, ops, _WRITE, half + PAGE_BYTES, size, _META, lane, NO_SESSION, 0, none)
    _emit(s, ops, _WRITE, half, PAGE_BYTES, _META, lane, NO_SESSION, 0, none)
    s.ints[_CHECKPOINTS] += 1


@_inlined
def _hold(
    s: SlotState, worker: int, key: np.uint64, cls: int, length: int, session: int, turn: int,
    ready: float,
) -> None:  # fmt: skip
    """Give ``worker`` a chunk to store; from now on it counts as indexed."""
    at = (s.queue_head[worker] + s.queue_held[worker]) % QUEUE_CHUNKS
    s.queue_key[worker, at] = key
    s.queue_class[worker, at] = cls
    s.queue_length[worker, at] = length
    s.queue_session[worker, at] = session
    s.queue_turn[worker, at] = turn
    s.queue_ready[worker, at] = ready
    s.queue_held[worker] += 1
    index_put(s.keys, s.values, key, PENDING)


@_inlined
def _idlest(p: SlotParams, s: SlotState) -> int:
    """The store worker that will be done first."""
    best, soonest = 0, np.inf
    for w in range(p.store_workers):
        done = s.times[_WORKERS + w] + s.queue_held[w] * p.chunk_write_s
        if done < soonest:
            best, soonest = w, done
    return best


@_inlined
def _held(s: SlotState, key: np.uint64) -> bool:
    return (
        index_get(s.memory_keys, s.memory_values, key) != ABSENT
        or index_get(s.keys, s.values, key) != ABSENT
    )


@njit(cache=True)
def _state_there(p: SlotParams, s: SlotState, chunk: np.uint64) -> bool:
    """Whether every piece of the state at the end of ``chunk`` is held."""
    base = mix_pair(chunk, STATE_SALT)
    missing = 0
    for piece in range(p.state_pieces):
        missing += not _held(s, mix_pair(base, np.uint64(piece)))
    return missing == 0


@njit(cache=True)
def _leading(p: SlotParams, s: SlotState, keys: NDArray[np.uint64], first: int, last: int) -> int:
    """Chunks that can be used: the leading ones held, back to the last one with its state.

    What is loaded from slots needs room in memory; hits beyond it are dropped and recomputed.
    """
    hit = 0
    while first + hit < last:
        key = keys[first + hit]
        indexed = index_get(s.keys, s.values, key) != ABSENT
        if not indexed and index_get(s.memory_keys, s.memory_values, key) == ABSENT:
            break
        hit += 1
    found = hit
    if p.state_pieces > 0:
        while hit > 0 and not _state_there(p, s, keys[first + hit - 1]):
            hit -= 1
    s.ints[_CUT] += found - hit
    if p.memory_chunks == 0:
        return hit
    room, found = s.ints[_MEMORY_FREE], hit
    for c in range(found):
        if index_get(s.memory_keys, s.memory_values, keys[first + c]) == ABSENT:
            room -= 1
            if room < 0:
                hit = c
                break
    s.ints[_DROPPED] += found - hit
    return hit


@_inlined
def _load_one(
    p: SlotParams, s: SlotState, ops: OpArray, key: np.uint64, cls: int, length: int, place: int,
    session: int, turn: int, wanted: bool,
) -> None:  # fmt: skip
    """Read an object that is held: from memory, from a worker that has it, or from its slot."""
    slot = index_get(s.keys, s.values, key)
    if slot == PENDING or index_get(s.memory_keys, s.memory_values, key) != ABSENT:
        s.ints[_MEMORY] += 1
        return
    if wanted:
        start = p.data_start + slot * p.slot_bytes + p.header_bytes
        lane = p.store_workers * p.batch + place % p.load_lanes
        _emit(s, ops, _READ, start, length, cls, lane, session, turn, key)


@_inlined
def _refresh(s: SlotState, key: np.uint64) -> None:
    """Make an object that was used recent, in the tier that it came from."""
    if index_get(s.memory_keys, s.memory_values, key) != ABSENT:
        touch_memory(s, key)
        return
    slot = index_get(s.keys, s.values, key)
    if slot >= 0:
        recency_touch(s.nxt, s.prv, slot)


@njit(cache=True)
def _piece_bytes(p: SlotParams, piece: int) -> int:
    return p.state_tail_bytes if piece == p.state_pieces - 1 else p.state_piece_bytes


@_inlined
def _load_group(
    p: SlotParams, s: SlotState, ops: OpArray, keys: NDArray[np.uint64], first: int, size: int,
    place: int, session: int, turn: int, wanted: bool,
) -> None:  # fmt: skip
    """Read chunks whose loads begin at once: their first requests race each other."""
    if size == 1:
        key = keys[first]
        _load_one(p, s, ops, key, _KV, p.payload_bytes, place, session, turn, wanted)
        return
    order = np.empty(size, np.uint64)
    for c in range(size):
        order[c] = mix_pair(keys[first + c], np.uint64(turn))
    for c in np.argsort(order):
        key = keys[first + c]
        _load_one(p, s, ops, key, _KV, p.payload_bytes, place + c, session, turn, wanted)


@njit(cache=True)
def _load(
    p: SlotParams, s: SlotState, ops: OpArray, keys: NDArray[np.uint64], first: int, hit: int,
    session: int, turn: int, wanted: bool,
) -> None:  # fmt: skip
    """Read the ``hit`` leading chunks and the state behind them; make them recent."""
    for group in range(0, hit, p.load_race):
        size = min(p.load_race, hit - group)
        _load_group(p, s, ops, keys, first + group, size, group, session, turn, wanted)
    if hit > 0 and p.state_pieces > 0:
        base = mix_pair(keys[first + hit - 1], STATE_SALT)
        s.ints[_STATES_READ] += 1
        for piece in range(p.state_pieces):
            key = mix_pair(base, np.uint64(piece))
            length = _piece_bytes(p, piece)
            _load_one(p, s, ops, key, _STATE, length, hit + piece, session, turn, wanted)
            _refresh(s, key)
    for c in range(hit - 1, -1, -1):
        _refresh(s, keys[first + c])


@_inlined
def _store_one(
    p: SlotParams, s: SlotState, ops: OpArray, worker: int, key: np.uint64, cls: int, length: int,
    session: int, turn: int, now: float,
) -> None:  # fmt: skip
    """Give a missing object to ``worker``, through memory."""
    if index_get(s.memory_keys, s.memory_values, key) != ABSENT:
        return
    indexed = index_get(s.keys, s.values, key) != ABSENT
    if not keep_in_memory(p, s, key) or indexed:
        return
    _hold(s, worker, key, cls, length, session, turn, now)
    if s.queue_held[worker] == QUEUE_CHUNKS:
        _step(p, s, ops, worker, max(now, s.times[_WORKERS + worker]))


@njit(cache=True)
def _store(
    p: SlotParams, s: SlotState, ops: OpArray, keys: NDArray[np.uint64], first: int, last: int,
    session: int, turn: int, now: float,
) -> None:  # fmt: skip
    """Queue what is missing of ``keys[first:last]`` and the state at its end."""
    worker = _idlest(p, s)
    need = last - first + p.state_pieces
    while s.queue_held[worker] > 0 and s.queue_held[worker] + need > QUEUE_CHUNKS:
        busy, when = _next_worker(p, s)
        _step(p, s, ops, busy, when)
        worker = _idlest(p, s)
    for c in range(first, last):
        _store_one(p, s, ops, worker, keys[c], _KV, p.payload_bytes, session, turn, now)
    if p.state_pieces > 0:
        base = mix_pair(keys[last - 1], STATE_SALT)
        for piece in range(p.state_pieces):
            key = mix_pair(base, np.uint64(piece))
            length = _piece_bytes(p, piece)
            _store_one(p, s, ops, worker, key, _STATE, length, session, turn, now)


@njit(cache=True)
def serve(
    p: SlotParams, s: SlotState, ops: OpArray, times: NDArray[np.float64],
    sessions: NDArray[np.uint32], turns: NDArray[np.uint32], starts: NDArray[np.int64],
    keys: NDArray[np.uint64], wanted: bool,
) -> None:  # fmt: skip
    """Serve requests in turn; ``ops`` has room for all that they can cause."""
    for r in range(len(times)):
        advance(p, s, ops, times[r])
        s.times[_NOW] = times[r]
        first, last = starts[r], starts[r + 1]
        hit = _leading(p, s, keys, first, last)
        s.ints[_REQUESTS] += 1
        s.ints[_WANTED] += last - first
        s.ints[_HIT] += hit
        _load(p, s, ops, keys, first, hit, sessions[r], turns[r], wanted)
        if hit > 0:
            s.times[_LAST_IO] = max(s.times[_LAST_IO], times[r])
        if last > first:
            _store(p, s, ops, keys, first + hit, last, sessions[r], turns[r], times[r])
