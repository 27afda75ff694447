"""FEMU's victim queue: which of several equally good lines is collected decides the counters.

A 1-based binary min-heap of line ids keyed by ``valid``; every comparison is strict, so an
element never passes an equal one (femu.md section 2.6). ``slot[line]`` is 0 outside the heap.
"""

from __future__ import annotations

import numpy as np

from harness.ftl.jit import inlined, inner


@inlined
def sift_up(heap: np.ndarray, slot: np.ndarray, valid: np.ndarray, at: int) -> None:
    """Move the line in slot ``at`` towards the root past every larger key."""
    line = heap[at]
    key = valid[line]
    while at > 1:
        parent = heap[at >> 1]
        if valid[parent] <= key:
            break
        heap[at] = parent
        slot[parent] = at
        at >>= 1
    heap[at] = line
    slot[line] = at


@inlined
def push(heap: np.ndarray, slot: np.ndarray, valid: np.ndarray, size: int, line: int) -> None:
    """Add ``line`` to a heap of ``size`` elements."""
    heap[size + 1] = line
    sift_up(heap, slot, valid, size + 1)


@inner
def pop(heap: np.ndarray, slot: np.ndarray, valid: np.ndarray, size: int) -> int:
    """Remove and return the line with the smallest key from a heap of ``size`` elements."""
    first, line = heap[1], heap[size]
    slot[first] = 0
    size -= 1
    if size == 0:
        return first
    key = valid[line]
    at = 1
    while 2 * at <= size:
        child = 2 * at
        if child < size and valid[heap[child]] > valid[heap[child + 1]]:
            child += 1
        if key <= valid[heap[child]]:
            break
        heap[at] = heap[child]
        slot[heap[at]] = at
        at = child
    heap[at] = line
    slot[line] = at
    return first
