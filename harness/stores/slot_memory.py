"""LMCache's L1, the host memory before the slots, compiled.

Chunks enter it when they are stored; what is loaded from the slots is not kept (the default
prefetch policy), but needs room while it is loaded. The same controller that evicts slots evicts
here, once a second: at the watermark a share of the chunks goes, least recently used first.

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
    recency_oldest,
    recency_remove,
    recency_touch,
)
from harness.stores.jit import kernel
from harness.stores.slot_state import N, SlotParams, SlotState

_USED, _FREE, _FULL = int(N.MEMORY_USED), int(N.MEMORY_FREE), int(N.MEMORY_FULL)


@kernel
def touch_memory(s: SlotState, key: np.uint64) -> None:
    """Make a chunk that is held in memory the most recent one."""
    recency_touch(s.memory_nxt, s.memory_prv, index_get(s.memory_keys, s.memory_values, key))


@kernel
def keep_in_memory(p: SlotParams, s: SlotState, key: np.uint64) -> bool:
    """Take a chunk that is to be stored into memory; False if there is no room for it."""
    if p.memory_chunks == 0:
        return True
    if s.ints[_FREE] == 0:
        s.ints[_FULL] += 1
        return False
    s.ints[_FREE] -= 1
    row = s.memory_free[s.ints[_FREE]]
    s.memory_key[row] = key
    index_put(s.memory_keys, s.memory_values, key, row)
    recency_add(s.memory_nxt, s.memory_prv, row)
    s.ints[_USED] += 1
    return True


@kernel
def memory_is_due(p: SlotParams, s: SlotState) -> bool:
    """Whether the controller has to evict from memory."""
    return p.memory_chunks > 0 and s.ints[_USED] >= p.memory_watermark * p.memory_chunks


@kernel
def evict_memory(p: SlotParams, s: SlotState) -> None:
    """Forget the share of the chunks in memory that the policy says."""
    for _ in range(int(s.ints[_USED] * p.memory_ratio)):
        row = recency_oldest(s.memory_nxt, s.memory_prv)
        recency_remove(s.memory_nxt, s.memory_prv, row)
        index_remove(s.memory_keys, s.memory_values, s.memory_key[row])
        s.memory_free[s.ints[_FREE]] = row
        s.ints[_FREE] += 1
        s.ints[_USED] -= 1
