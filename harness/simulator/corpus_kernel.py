"""Growing the prefix tree by one batch of requests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.simulator.jit import kernel
from harness.stores.index import ABSENT, index_put, mix_pair
from harness.stores.requests.marks import find_after

FINE = -1
"""What ``grow`` returns in place of a bad row."""


@kernel
def grow(
    keys: NDArray[np.uint64], values: NDArray[np.int32], node_key: NDArray[np.uint64],
    parent: NDArray[np.int32], depth: NDArray[np.int32], first_request: NDArray[np.uint32],
    starts: NDArray[np.int64], ids: NDArray[np.uint64], blocks: NDArray[np.int64],
    session: NDArray[np.uint32], scoped: bool, known: int, row: int,
    run_of: NDArray[np.int64], run_node: NDArray[np.uint32], run_length: NDArray[np.uint32],
) -> tuple[int, int]:  # fmt: skip
    """Add requests, of which number ``row`` is the first; (nodes known, bad row or FINE).

    ``run_of`` int64[n + 1] counts from 0 for this batch. A row is bad if one of its ids was seen
    after another prefix: then ids do not name prefixes.
    """
    runs = 0
    run_of[0] = 0
    for r in range(len(blocks)):
        before = ABSENT
        for at in range(starts[r], starts[r] + blocks[r]):
            key = mix_pair(ids[at], np.uint64(session[r])) if scoped else ids[at]
            node = find_after(keys, values, node_key, known, before, key)
            if node == ABSENT:
                node = known
                index_put(keys, values, key, node)
                node_key[node] = key
                parent[node] = before
                depth[node] = depth[before] + 1 if before >= 0 else 0
                first_request[node] = row + r
                known += 1
            elif parent[node] != before:
                return known, r
            goes_on = before >= 0 and node == before + 1
            if goes_on and first_request[node] == first_request[before]:
                run_length[runs - 1] += 1
            else:
                run_node[runs] = node
                run_length[runs] = 1
                runs += 1
            before = node
        run_of[r + 1] = runs
    return known, FINE
