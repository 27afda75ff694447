"""A binary heap of (key, value) pairs of int64 in two arrays, for compiled loops.

``size`` is a one-element array. The arrays must have room; the smallest key is at the top.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.replay.jit import kernel

I64 = NDArray[np.int64]


@kernel
def push(keys: I64, values: I64, size: I64, key: int, value: int) -> None:
    """Add a pair."""
    at = size[0]
    size[0] += 1
    while at > 0:
        parent = (at - 1) >> 1
        if keys[parent] <= key:
            break
        keys[at], values[at] = keys[parent], values[parent]
        at = parent
    keys[at], values[at] = key, value


@kernel
def pop(keys: I64, values: I64, size: I64) -> int:
    """Remove the pair with the smallest key; its value. The heap must not be empty."""
    top = values[0]
    size[0] -= 1
    end = size[0]
    key, value = keys[end], values[end]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= end:
            break
        if child + 1 < end and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[at], values[at] = keys[child], values[child]
        at = child
    keys[at], values[at] = key, value
    return int(top)
