"""What the slot store does by itself, compiled: store workers, allocation, eviction, checkpoints.

Rules (LMCache 0.5.6 ``raw_block``, read in its source and confirmed on captures): a freed slot is
reused first, last freed first, and the bump pointer moves only while none is free; once a second,
if the used share has reached the watermark, a share of the keys is freed, least recent first, later
chunks of a request before earlier ones; a put that finds no slot fails. Each store worker takes one
request at a time, so two of them interleave slot by slot with the posix engine; with io_uring a
worker takes the slots of a whole batch and hands all of it over, to begin in about that order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.core.ops import PAGE_BYTES, Op
from harness.stores.front import add_op
from harness.stores.index import (
    index_get,
    index_put,
    index_remove,
    mix_pair,
    recency_add,
    recency_oldest,
    recency_remove,
    recency_touch,
)
from harness.stores.jit import inlined_kernel, inner_kernel, kernel
from harness.stores.ops import ALL_LAYERS, NO_SESSION, ObjectClass, OpArray
from harness.stores.slot_memory import evict_memory, memory_is_due
from harness.stores.slot_state import (
    NO_SLOT,
    PENDING,
    QUEUE_CHUNKS,
    N,
    SlotParams,
    SlotState,
    T,
)

_WRITE = int(Op.WRITE)
_KV = int(ObjectClass.FULL_ATTENTION)
_HEADER, _META = int(ObjectClass.HEADER), int(ObjectClass.METADATA)
_OPS, _BUMP, _FREE, _USED = int(N.OPS), int(N.BUMP), int(N.FREE), int(N.USED)
_CHECKPOINTS, _DIRTY, _SKIPPED = int(N.CHECKPOINTS), int(N.DIRTY), int(N.CHECKPOINTS_SKIPPED)
_EVICTED, _EVICTIONS, _FAILED = int(N.EVICTED), int(N.EVICTIONS), int(N.FAILED_PUTS)
_KV_WRITTEN, _STATES_WRITTEN = int(N.CHUNKS_WRITTEN), int(N.STATES_WRITTEN)
_TICK, _LAST_IO, _LAST_CHECKPOINT = int(T.NEXT_TICK), int(T.LAST_IO), int(T.LAST_CHECKPOINT)
_WORKERS = int(T.WORKERS)


@inlined_kernel
def emit_slot_op(
    s: SlotState, ops: OpArray, op: int, offset: int, length: int, cls: int, stream: int,
    session: int, turn: int, key: np.uint64,
) -> None:  # fmt: skip
    s.ints[_OPS] = add_op(
        ops, s.ints[_OPS], op, offset, length, cls, stream, session, turn, ALL_LAYERS, key
    )


@inlined_kernel
def free_slot(s: SlotState, slot: int) -> None:
    """Forget what a slot holds: only the index changes, and the slot is the next to be reused."""
    recency_remove(s.nxt, s.prv, slot)
    index_remove(s.keys, s.values, s.slot_key[slot])
    s.free[s.ints[_FREE]] = slot
    s.ints[_FREE] += 1
    s.ints[_USED] -= 1


@inner_kernel
def _evict(p: SlotParams, s: SlotState) -> None:
    """Free the share of the keys that the policy says, least recent first."""
    victims = max(1, int(s.ints[_USED] * p.eviction_ratio))
    for _ in range(victims):
        slot = recency_oldest(s.nxt, s.prv)
        free_slot(s, slot)
    s.ints[_EVICTED] += victims
    s.ints[_EVICTIONS] += 1
    s.ints[_DIRTY] = 1


@inner_kernel
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


@inlined_kernel
def slots_left(p: SlotParams, s: SlotState) -> int:
    """Slots that a put may take without an eviction."""
    return s.ints[_FREE] + p.slots - s.ints[_BUMP]


@inlined_kernel
def take_slot(p: SlotParams, s: SlotState) -> int:
    """A slot: the one freed last, else the next untouched one. One must be left."""
    if s.ints[_FREE] > 0:
        s.ints[_FREE] -= 1
        return s.free[s.ints[_FREE]]
    s.ints[_BUMP] += 1
    return s.ints[_BUMP] - 1


@inner_kernel
def _drop(s: SlotState, key: np.uint64) -> None:
    """A put that failed: the chunk is forgotten."""
    s.ints[_FAILED] += 1
    index_remove(s.keys, s.values, key)


@inlined_kernel
def _put(
    p: SlotParams, s: SlotState, ops: OpArray, worker: int, place: int, slot: int
) -> None:  # fmt: skip
    """Write the chunk at ``place`` of ``worker``'s queue; without a slot it is forgotten."""
    at = (s.queue_head[worker] + place) % QUEUE_CHUNKS
    if slot == NO_SLOT:
        _drop(s, s.queue_key[worker, at])
        return
    put_in_slot(
        p, s, ops, worker * p.batch + place, slot, s.queue_key[worker, at],
        s.queue_class[worker, at], s.queue_length[worker, at], s.queue_session[worker, at],
        s.queue_turn[worker, at],
    )  # fmt: skip


@inlined_kernel
def put_in_slot(
    p: SlotParams, s: SlotState, ops: OpArray, lane: int, slot: int, key: np.uint64, cls: int,
    length: int, session: int, turn: int,
) -> None:  # fmt: skip
    """Write header and payload into a slot that was taken."""
    start = p.data_start + slot * p.slot_bytes
    emit_slot_op(s, ops, _WRITE, start, p.header_bytes, _HEADER, lane, session, turn, key)
    emit_slot_op(s, ops, _WRITE, start + p.header_bytes, length, cls, lane, session, turn, key)
    s.slot_key[slot] = key
    s.writes[slot] += 1
    index_put(s.keys, s.values, key, slot)
    recency_add(s.nxt, s.prv, slot)
    s.ints[_USED] += 1
    s.ints[_DIRTY] = 1
    s.ints[_KV_WRITTEN if cls == _KV else _STATES_WRITTEN] += 1


@inlined_kernel
def _touch(s: SlotState, key: np.uint64) -> None:
    slot = index_get(s.keys, s.values, key)
    if slot >= 0:
        recency_touch(s.nxt, s.prv, slot)


@inner_kernel
def _rank_request(s: SlotState, worker: int) -> None:
    """Once a request is stored, make its earlier chunks more recent than its later ones."""
    head = s.queue_head[worker]
    for back in range(1, s.queue_run[worker] + 1):
        _touch(s, s.queue_key[worker, (head - back) % QUEUE_CHUNKS])
    s.queue_run[worker] = 0


@inlined_kernel
def next_worker(p: SlotParams, s: SlotState) -> tuple[int, float]:
    """The worker that allocates next and when, or (-1, inf) when none holds anything."""
    best, when = -1, np.inf
    for w in range(p.store_workers):
        if s.queue_held[w] > 0:
            start = max(s.times[_WORKERS + w], s.queue_ready[w, s.queue_head[w]])
            if start < when:
                best, when = w, start
    return best, when


@inlined_kernel
def _batch_size(p: SlotParams, s: SlotState, worker: int, ready: float) -> int:
    """Chunks of one request that ``worker`` stores in one go; it holds at least one."""
    size = 1
    while size < p.batch and size < s.queue_held[worker]:
        if s.queue_ready[worker, (s.queue_head[worker] + size) % QUEUE_CHUNKS] != ready:
            break
        size += 1
    return size


@kernel
def race(size: int, width: float, seed: np.uint64) -> NDArray[np.int64]:
    """The order in which ``size`` calls made at once begin, none by ``width`` places or more."""
    arrival = np.empty(size)
    for place in range(size):
        noise = mix_pair(seed, np.uint64(place)) >> np.uint64(11)
        arrival[place] = place + width * (noise / 9007199254740992.0)
    return np.argsort(arrival)


@inlined_kernel
def _slot_or_none(p: SlotParams, s: SlotState) -> int:
    return take_slot(p, s) if slots_left(p, s) > 0 else NO_SLOT


@inner_kernel
def _put_batch(p: SlotParams, s: SlotState, ops: OpArray, worker: int, size: int) -> None:
    """Write the ``size`` chunks at the head of ``worker``'s queue, in about their order."""
    slots = np.empty(size, np.int64)
    for place in range(size):
        slots[place] = _slot_or_none(p, s)
    for place in race(size, p.write_race, s.queue_key[worker, s.queue_head[worker]]):
        _put(p, s, ops, worker, place, slots[place])


@kernel
def step(p: SlotParams, s: SlotState, ops: OpArray, worker: int, when: float) -> None:
    """Let ``worker`` store its next chunk, or its next batch of one request."""
    _tick(p, s, when)
    ready = s.queue_ready[worker, s.queue_head[worker]]
    size = _batch_size(p, s, worker, ready)
    if size == 1:
        _put(p, s, ops, worker, 0, _slot_or_none(p, s))
    else:
        _put_batch(p, s, ops, worker, size)
    s.queue_head[worker] = (s.queue_head[worker] + size) % QUEUE_CHUNKS
    s.queue_held[worker] -= size
    s.queue_run[worker] += size
    if s.queue_held[worker] == 0 or s.queue_ready[worker, s.queue_head[worker]] != ready:
        _rank_request(s, worker)
    end = when + size * p.chunk_write_s
    s.times[_WORKERS + worker] = end
    s.times[_LAST_IO] = max(s.times[_LAST_IO], end)


@kernel
def advance(p: SlotParams, s: SlotState, ops: OpArray, until: float) -> None:
    """Everything that the store does by itself up to time ``until``."""
    while True:
        worker, when = next_worker(p, s)
        if worker < 0 or when > until:
            break
        step(p, s, ops, worker, when)
    if worker < 0:
        _checkpoint_if_quiet(p, s, ops, until)
    _tick(p, s, until)


@kernel
def drain(p: SlotParams, s: SlotState, ops: OpArray) -> None:
    """Let the workers store all that they hold."""
    worker, when = next_worker(p, s)
    while worker >= 0:
        step(p, s, ops, worker, when)
        worker, when = next_worker(p, s)


@inner_kernel
def _checkpoint_if_quiet(p: SlotParams, s: SlotState, ops: OpArray, until: float) -> None:
    """The periodic checkpoint: only when due, dirty and quiet; else it waits (and starves)."""
    due = s.times[_LAST_CHECKPOINT] + p.checkpoint_interval_s
    quiet = s.times[_LAST_IO] + p.checkpoint_quiet_s
    if s.ints[_DIRTY] and max(due, quiet) <= until:
        s.times[_LAST_CHECKPOINT] = max(due, quiet)
        checkpoint(p, s, ops)


@kernel
def checkpoint(p: SlotParams, s: SlotState, ops: OpArray) -> None:
    """Write the index as JSON, then its header block, into the copy whose turn it is."""
    size = -(-(s.ints[_USED] * p.entry_bytes + 1) // PAGE_BYTES) * PAGE_BYTES
    s.ints[_DIRTY] = 0
    if size + PAGE_BYTES > p.checkpoint_half:
        s.ints[_SKIPPED] += 1
        return
    half = (s.ints[_CHECKPOINTS] % 2) * p.checkpoint_half
    lane = (p.store_workers + p.load_workers) * p.batch
    none = np.uint64(0)
    emit_slot_op(s, ops, _WRITE, half + PAGE_BYTES, size, _META, lane, NO_SESSION, 0, none)
    emit_slot_op(s, ops, _WRITE, half, PAGE_BYTES, _META, lane, NO_SESSION, 0, none)
    s.ints[_CHECKPOINTS] += 1


@inlined_kernel
def hold(
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


@inlined_kernel
def idlest(p: SlotParams, s: SlotState) -> int:
    """The store worker that will be done first."""
    best, soonest = 0, np.inf
    for w in range(p.store_workers):
        done = s.times[_WORKERS + w] + s.queue_held[w] * p.chunk_write_s
        if done < soonest:
            best, soonest = w, done
    return best
