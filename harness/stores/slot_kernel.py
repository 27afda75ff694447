"""What a request does to the slot store, compiled: look-ups, loads, and what is given to store.

An indexed key is never written again. Hits are the leading chunks held; with fixed states, back to
the last chunk whose state is held too. Where memory has no room for all that is to be loaded,
nothing is: the hits are the leading chunks that memory itself holds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.core.ops import Op
from harness.stores.index import ABSENT, STATE_SALT, index_get, mix_pair, recency_touch
from harness.stores.jit import inlined_kernel, inner_kernel, kernel
from harness.stores.ops import ObjectClass, OpArray
from harness.stores.slot_memory import (
    begin_loads,
    being_loaded,
    keep_in_memory,
    touch_memory,
)
from harness.stores.slot_state import PENDING, QUEUE_CHUNKS, N, SlotParams, SlotState, T
from harness.stores.slot_workers import (
    advance,
    emit_slot_op,
    hold,
    idlest,
    next_worker,
    race,
    step,
)

_READ = int(Op.READ)
_KV, _STATE = int(ObjectClass.FULL_ATTENTION), int(ObjectClass.FIXED_STATE)
_WANTED, _HIT, _MEMORY = int(N.CHUNKS_WANTED), int(N.CHUNKS_HIT), int(N.HIT_IN_MEMORY)
_STATES_READ, _REQUESTS, _CUT = int(N.STATES_READ), int(N.REQUESTS), int(N.CUT_BY_STATE)
_MEMORY_FREE, _DROPPED = int(N.MEMORY_FREE), int(N.DROPPED_HITS)
_MEMORY_FULL = int(N.MEMORY_FULL)
_NOW, _WORKERS = int(T.NOW), int(T.WORKERS)


@inlined_kernel
def _held(s: SlotState, key: np.uint64) -> bool:
    return (
        index_get(s.memory_keys, s.memory_values, key) != ABSENT
        or index_get(s.keys, s.values, key) != ABSENT
    )


@inner_kernel
def _state_there(p: SlotParams, s: SlotState, chunk: np.uint64) -> bool:
    """Whether every piece of the state at the end of ``chunk`` is held."""
    base = mix_pair(chunk, STATE_SALT)
    missing = 0
    for piece in range(p.state_pieces):
        missing += not _held(s, mix_pair(base, np.uint64(piece)))
    return missing == 0


@inlined_kernel
def _in_memory(s: SlotState, key: np.uint64) -> bool:
    return index_get(s.memory_keys, s.memory_values, key) != ABSENT


@inlined_kernel
def _back_to_state(
    p: SlotParams, s: SlotState, keys: NDArray[np.uint64], first: int, found: int
) -> int:  # fmt: skip
    """Of the ``found`` leading chunks, those up to the last one whose state is held."""
    hit = found
    if p.state_pieces > 0:
        while hit > 0 and not _state_there(p, s, keys[first + hit - 1]):
            hit -= 1
    s.ints[_CUT] += found - hit
    return hit


@inner_kernel
def _missing_in_memory(
    p: SlotParams, s: SlotState, keys: NDArray[np.uint64], first: int, last: int
) -> int:  # fmt: skip
    """How many of the chunks and of the pieces of the state at their end memory does not hold."""
    missing = 0
    for c in range(first, last):
        missing += not _in_memory(s, keys[c])
    base = mix_pair(keys[last - 1], STATE_SALT)
    for piece in range(p.state_pieces):
        missing += not _in_memory(s, mix_pair(base, np.uint64(piece)))
    return missing


@inner_kernel
def _leading(
    p: SlotParams, s: SlotState, keys: NDArray[np.uint64], first: int, last: int, now: float
) -> int:  # fmt: skip
    """Chunks that can be used: the leading ones held, if memory has room for what is to be read."""
    found = 0
    while first + found < last and _held(s, keys[first + found]):
        found += 1
    hit = _back_to_state(p, s, keys, first, found)
    if hit == 0:
        return hit
    reads = hit if p.memory_chunks == 0 else _missing_in_memory(p, s, keys, first, first + hit)
    if p.memory_chunks > 0 and reads > s.ints[_MEMORY_FREE] - being_loaded(s, now):
        kept = 0
        while kept < hit and _in_memory(s, keys[first + kept]):
            kept += 1
        s.ints[_DROPPED] += hit - kept
        return _back_to_state(p, s, keys, first, kept)
    if reads > 0:
        begin_loads(p, s, reads, now)
    return hit


@inlined_kernel
def _load_one(
    p: SlotParams, s: SlotState, ops: OpArray, key: np.uint64, cls: int, length: int, place: int,
    session: int, turn: int, wanted: bool,
) -> None:  # fmt: skip
    """Read an object that is held: from memory, from a worker that has it, or from its slot.

    All loads of a request are one load worker's: one after the other, or a batch at once.
    """
    slot = index_get(s.keys, s.values, key)
    if slot == PENDING or index_get(s.memory_keys, s.memory_values, key) != ABSENT:
        s.ints[_MEMORY] += 1
        return
    if wanted:
        start = p.data_start + slot * p.slot_bytes + p.header_bytes
        worker = p.store_workers + s.ints[_REQUESTS] % p.load_workers
        lane = worker * p.batch + place % p.batch
        emit_slot_op(s, ops, _READ, start, length, cls, lane, session, turn, key)


@inlined_kernel
def _refresh(s: SlotState, key: np.uint64) -> None:
    """Make an object that was used recent, in the tier that it came from."""
    if index_get(s.memory_keys, s.memory_values, key) != ABSENT:
        touch_memory(s, key)
        return
    slot = index_get(s.keys, s.values, key)
    if slot >= 0:
        recency_touch(s.nxt, s.prv, slot)


@inner_kernel
def _piece_bytes(p: SlotParams, piece: int) -> int:
    return p.state_tail_bytes if piece == p.state_pieces - 1 else p.state_piece_bytes


@inner_kernel
def _load(
    p: SlotParams, s: SlotState, ops: OpArray, keys: NDArray[np.uint64], first: int, hit: int,
    session: int, turn: int, wanted: bool,
) -> None:  # fmt: skip
    """Read the ``hit`` leading chunks and the state behind them; make them recent."""
    if hit > 1 and p.read_race > 0:
        for c in race(hit, p.read_race, mix_pair(keys[first], np.uint64(turn))):
            key = keys[first + c]
            _load_one(p, s, ops, key, _KV, p.payload_bytes, c, session, turn, wanted)
    else:
        for c in range(hit):
            key = keys[first + c]
            _load_one(p, s, ops, key, _KV, p.payload_bytes, c, session, turn, wanted)
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


@inlined_kernel
def _store_one(
    p: SlotParams, s: SlotState, ops: OpArray, worker: int, key: np.uint64, cls: int, length: int,
    session: int, turn: int, now: float,
) -> None:  # fmt: skip
    """Give an object to ``worker`` unless it is held already."""
    if _held(s, key):
        return
    hold(s, worker, key, cls, length, session, turn, now)
    if s.queue_held[worker] == QUEUE_CHUNKS:
        step(p, s, ops, worker, max(now, s.times[_WORKERS + worker]))


@inner_kernel
def _keep_all(
    p: SlotParams, s: SlotState, keys: NDArray[np.uint64], first: int, last: int
) -> None:  # fmt: skip
    """Keep in memory what it does not hold, earlier chunks as the more recent ones."""
    base = mix_pair(keys[last - 1], STATE_SALT)
    for piece in range(p.state_pieces):
        key = mix_pair(base, np.uint64(piece))
        if not _in_memory(s, key):
            keep_in_memory(s, key)
    for c in range(last - 1, first - 1, -1):
        if not _in_memory(s, keys[c]):
            keep_in_memory(s, keys[c])


@inner_kernel
def _store(
    p: SlotParams, s: SlotState, ops: OpArray, keys: NDArray[np.uint64], first: int, last: int,
    session: int, turn: int, now: float,
) -> None:  # fmt: skip
    """Queue what is missing of ``keys[first:last]`` and the state at its end, through memory."""
    worker = idlest(p, s)
    need = last - first + p.state_pieces
    while s.queue_held[worker] > 0 and s.queue_held[worker] + need > QUEUE_CHUNKS:
        busy, when = next_worker(p, s)
        step(p, s, ops, busy, when)
        worker = idlest(p, s)
    if p.memory_chunks > 0:
        missing = _missing_in_memory(p, s, keys, first, last)
        if missing > s.ints[_MEMORY_FREE]:
            s.ints[_MEMORY_FULL] += missing
            return
    for c in range(first, last):
        _store_one(p, s, ops, worker, keys[c], _KV, p.payload_bytes, session, turn, now)
    if p.state_pieces > 0:
        base = mix_pair(keys[last - 1], STATE_SALT)
        for piece in range(p.state_pieces):
            key = mix_pair(base, np.uint64(piece))
            length = _piece_bytes(p, piece)
            _store_one(p, s, ops, worker, key, _STATE, length, session, turn, now)
    if p.memory_chunks > 0:
        _keep_all(p, s, keys, first, last)


@kernel
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
        hit = _leading(p, s, keys, first, last, times[r])
        s.ints[_REQUESTS] += 1
        s.ints[_WANTED] += last - first
        s.ints[_HIT] += hit
        _load(p, s, ops, keys, first, hit, sessions[r], turns[r], wanted)
        if last > first:
            _store(p, s, ops, keys, first + hit, last, sessions[r], turns[r], times[r])
