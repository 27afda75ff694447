"""State and parameters of a slot store, in the form that compiled code takes."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.stores.index import index_arrays, recency_arrays

PENDING = -2
"""Index value of a chunk that a store worker holds but has not written yet."""

NO_SLOT = -1
"""What a worker's chunk has instead of a slot where none was left."""

QUEUE_CHUNKS = 8192
"""Chunks a store worker may hold; then the next request waits for it."""


class SlotParams(NamedTuple):
    """What does not change: sizes in bytes, times in seconds.

    Chunks of a batch that are up to a ``race`` apart may begin in another order; ``memory_chunks``
    0 is no memory tier, of which a chunk that is read takes up room for ``chunk_read_s``.
    """

    slots: int
    slot_bytes: int
    data_start: int
    header_bytes: int
    payload_bytes: int
    state_pieces: int
    state_piece_bytes: int
    state_tail_bytes: int
    store_workers: int
    write_race: float
    read_race: float
    load_workers: int
    batch: int
    watermark: float
    eviction_ratio: float
    tick_s: float
    chunk_write_s: float
    chunk_read_s: float
    checkpoint_half: int
    checkpoint_interval_s: float
    checkpoint_quiet_s: float
    entry_bytes: int
    memory_chunks: int
    memory_watermark: float
    memory_ratio: float


class N(IntEnum):
    """Places in ``SlotState.ints``."""

    OPS = 0
    BUMP = 1
    FREE = 2
    USED = 3
    CHECKPOINTS = 4
    DIRTY = 5
    CHECKPOINTS_SKIPPED = 6
    EVICTED = 7
    FAILED_PUTS = 8
    CHUNKS_WANTED = 9
    CHUNKS_HIT = 10
    HIT_IN_MEMORY = 11
    CHUNKS_WRITTEN = 12
    STATES_WRITTEN = 13
    STATES_READ = 14
    EVICTIONS = 15
    REQUESTS = 16
    CUT_BY_STATE = 17
    MEMORY_USED = 18
    MEMORY_FREE = 19
    DROPPED_HITS = 20
    MEMORY_FULL = 21
    LOADING = 22
    COUNT = 23


class T(IntEnum):
    """Places in ``SlotState.times``; the workers' own times follow."""

    NEXT_TICK = 0
    LAST_IO = 1
    LAST_CHECKPOINT = 2
    NOW = 3
    LOADED = 4
    WORKERS = 5


class SlotState(NamedTuple):
    """What changes. Queues are rings of ``QUEUE_CHUNKS`` a worker: head, count held, and how many
    chunks of the request in hand the worker has stored."""

    keys: NDArray[np.uint64]
    values: NDArray[np.int32]
    slot_key: NDArray[np.uint64]
    nxt: NDArray[np.int32]
    prv: NDArray[np.int32]
    free: NDArray[np.int32]
    writes: NDArray[np.uint32]
    memory_keys: NDArray[np.uint64]
    memory_values: NDArray[np.int32]
    memory_key: NDArray[np.uint64]
    memory_nxt: NDArray[np.int32]
    memory_prv: NDArray[np.int32]
    memory_free: NDArray[np.int32]
    queue_key: NDArray[np.uint64]
    queue_session: NDArray[np.uint32]
    queue_turn: NDArray[np.uint32]
    queue_length: NDArray[np.uint32]
    queue_class: NDArray[np.uint8]
    queue_ready: NDArray[np.float64]
    queue_head: NDArray[np.int64]
    queue_held: NDArray[np.int64]
    queue_run: NDArray[np.int64]
    ints: NDArray[np.int64]
    times: NDArray[np.float64]


def new_state(params: SlotParams) -> SlotState:
    """An empty store."""
    workers, slots = params.store_workers, params.slots
    keys, values = index_arrays(slots + workers * QUEUE_CHUNKS)
    nxt, prv = recency_arrays(slots)
    ring = (workers, QUEUE_CHUNKS)
    memory = params.memory_chunks
    memory_keys, memory_values = index_arrays(max(1, memory))
    memory_nxt, memory_prv = recency_arrays(memory)
    ints = np.zeros(N.COUNT, np.int64)
    ints[N.MEMORY_FREE] = memory
    times = np.zeros(T.WORKERS + workers, np.float64)
    times[T.NEXT_TICK] = params.tick_s
    return SlotState(
        keys=keys,
        values=values,
        slot_key=np.zeros(slots, np.uint64),
        nxt=nxt,
        prv=prv,
        free=np.zeros(slots, np.int32),
        writes=np.zeros(slots, np.uint32),
        memory_keys=memory_keys,
        memory_values=memory_values,
        memory_key=np.zeros(memory, np.uint64),
        memory_nxt=memory_nxt,
        memory_prv=memory_prv,
        memory_free=np.arange(memory - 1, -1, -1, dtype=np.int32),
        queue_key=np.zeros(ring, np.uint64),
        queue_session=np.zeros(ring, np.uint32),
        queue_turn=np.zeros(ring, np.uint32),
        queue_length=np.zeros(ring, np.uint32),
        queue_class=np.zeros(ring, np.uint8),
        queue_ready=np.zeros(ring, np.float64),
        queue_head=np.zeros(workers, np.int64),
        queue_held=np.zeros(workers, np.int64),
        queue_run=np.zeros(workers, np.int64),
        ints=ints,
        times=times,
    )
