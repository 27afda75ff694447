"""What compiled stores share: what a request can use of what is held, and adding an op."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.stores.index import ABSENT, STATE_SALT, index_get, mix_pair
from harness.stores.jit import kernel
from harness.stores.ops import OpArray


@kernel
def state_key(chunk: np.uint64) -> np.uint64:
    """Key of the fixed states that a prompt leaves at the end of ``chunk``."""
    return mix_pair(chunk, STATE_SALT)


@kernel
def leading(
    index_keys: NDArray[np.uint64], index_values: NDArray[np.int32], keys: NDArray[np.uint64],
    first: int, last: int, wants_state: bool,
) -> tuple[int, int]:  # fmt: skip
    """(chunks usable, chunks found) of the prompt ``keys[first:last]``.

    Found are the leading chunks held; usable those up to the last one whose state is held too.
    """
    found = 0
    while first + found < last and index_get(index_keys, index_values, keys[first + found]) >= 0:
        found += 1
    hit = found
    while wants_state and hit > 0:
        if index_get(index_keys, index_values, state_key(keys[first + hit - 1])) != ABSENT:
            break
        hit -= 1
    return hit, found


@kernel
def add_op(
    ops: OpArray, at: int, op: int, offset: int, length: int, object_class: int, stream: int,
    session: int, turn: int, layer: int, key: np.uint64,
) -> int:  # fmt: skip
    """Fill row ``at``; the number of the next one."""
    row = ops[at]
    row.offset = offset
    row.length = length
    row.op = op
    row.object_class = object_class
    row.stream = stream
    row.session = session
    row.turn = turn
    row.layer = layer
    row.key = key
    return at + 1
