"""LMCache's L1, the host memory before the slots, compiled.

Chunks enter it when they are stored; what is loaded from the slots is not kept (the default
prefetch policy), but takes up room while it is loaded and used. Room is given to all chunks of a
request or to none. The same controller that evicts slots evicts here, once a second: at the
watermark a share of the chunks goes, least recently used first, but none that is still to be
stored.

Whether a chunk is held is asked of the index directly, for every chunk: handing the whole state to
a function costs more than the look-up.
"""

from __future__ import annotations

import numpy as np

from harness.stores.index import (
    index_get,
    index_put,
    index_remove,
    recency_add,
    recency_newer,
    recency_oldest,
    recency_remove,
    recency_touch,
)
from harness.stores.jit import inlined_kernel, kernel
from harness.stores.slot_state import PENDING, N, SlotParams, SlotState, T

_USED, _FREE, _LOADING = int(N.MEMORY_USED), int(N.MEMORY_FREE), int(N.LOADING)
_TICK, _LOADED, _LAST_IO = int(T.NEXT_TICK), int(T.LOADED), int(T.LAST_IO)


@kernel
def touch_memory(s: SlotState, key: np.uint64) -> None:
    """Make a chunk that is held in memory the most recent one."""
    recency_touch(s.memory_nxt, s.memory_prv, index_get(s.memory_keys, s.memory_values, key))


@inlined_kernel
def keep_in_memory(s: SlotState, key: np.uint64) -> None:
    """Take a chunk that is to be stored into memory, which has room for it."""
    s.ints[_FREE] -= 1
    row = s.memory_free[s.ints[_FREE]]
    s.memory_key[row] = key
    index_put(s.memory_keys, s.memory_values, key, row)
    recency_add(s.memory_nxt, s.memory_prv, row)
    s.ints[_USED] += 1


@inlined_kernel
def being_loaded(s: SlotState, now: float) -> int:
    """Chunks in memory at ``now`` only because they are being loaded or used."""
    return s.ints[_LOADING] if now < s.times[_LOADED] else 0


@inlined_kernel
def begin_loads(p: SlotParams, s: SlotState, chunks: int, now: float) -> None:
    """Read chunks from now on, after those being read already; they take up room meanwhile."""
    s.ints[_LOADING] = being_loaded(s, now) + chunks
    s.times[_LOADED] = max(now, s.times[_LOADED]) + chunks * p.chunk_read_s
    s.times[_LAST_IO] = max(s.times[_LAST_IO], s.times[_LOADED])


@inlined_kernel
def memory_is_due(p: SlotParams, s: SlotState) -> bool:
    """Whether the controller has to evict from memory at its next wake-up."""
    if p.memory_chunks == 0:
        return False
    used = s.ints[_USED] + being_loaded(s, s.times[_TICK])
    return used >= p.memory_watermark * p.memory_chunks


@kernel
def evict_memory(p: SlotParams, s: SlotState) -> None:
    """Forget the share of the chunks in memory that the policy says."""
    used = s.ints[_USED] + being_loaded(s, s.times[_TICK])
    victims = max(1, int(used * p.memory_ratio))
    row = recency_oldest(s.memory_nxt, s.memory_prv)
    while victims > 0 and row >= 0:
        newer = recency_newer(s.memory_nxt, s.memory_prv, row)
        key = s.memory_key[row]
        if index_get(s.keys, s.values, key) != PENDING:
            recency_remove(s.memory_nxt, s.memory_prv, row)
            index_remove(s.memory_keys, s.memory_values, key)
            s.memory_free[s.ints[_FREE]] = row
            s.ints[_FREE] += 1
            s.ints[_USED] -= 1
            victims -= 1
        row = newer
