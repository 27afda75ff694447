"""Mooncake's buckets under a policy of others: files that are reclaimed whole.

Objects wait in memory until a heartbeat finds enough for a bucket; one that leaves before is never
written. An evicted object leaves its bytes in its bucket: they come back when the bucket's last
object goes, or when the disk is full and the oldest bucket (or the one read least recently) goes
whole, its surviving objects lost. That is the store's own rule: it moves no survivors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.simulator.wearing.events import FREE, PUT
from harness.simulator.wearing.jit import kernel
from harness.simulator.wearing.state import Cut, Lost
from harness.stores.bucket_kernel import (
    MOST_EXTENTS,
    B,
    BucketParams,
    BucketState,
    heartbeat,
    hold_object,
    remove_object,
)
from harness.stores.index import ABSENT, index_get, recency_touch
from harness.stores.ops import OpArray

_UNWRITTEN, _FREED, _USED = int(Lost.UNWRITTEN), int(Lost.FREED), int(Lost.USED)
_HELD, _FAILED = int(B.WAITING), int(B.FAILED)


@kernel
def drive_buckets(
    p: BucketParams, s: BucketState, c: Cut, ops: OpArray, events: NDArray[np.void], first: int
) -> tuple[int, int]:
    """Serve events from ``first`` on while ``ops`` has room: (ops made, the next event).

    A heartbeat may write all that waits; no event is served where ``ops`` has no room for that.
    """
    at, n = first, 0
    while at < len(events):
        event = events[at]
        cls, key = int(event.object_class), event.key
        if event.request != c.now[0]:
            if n + (MOST_EXTENTS + 2) * (s.ints[_HELD] + 1) > len(ops):
                break
            c.now[0] = event.request
            n = heartbeat(p, s, ops, n, event.time_s)
        row = index_get(s.keys, s.values, key)
        if event.action == PUT:
            before = s.ints[_FAILED]
            hold_object(p, s, key, cls, event.session, event.turn)
            c.lost[_UNWRITTEN, cls] += s.ints[_FAILED] - before
        elif row == ABSENT:
            c.lost[_FREED if event.action == FREE else _USED, cls] += 1
        elif event.action == FREE:
            c.lost[_UNWRITTEN, cls] += s.row_bucket[row] < 0
            remove_object(s, row)
        elif p.lru and s.row_bucket[row] >= 0:
            recency_touch(s.nxt, s.prv, s.row_bucket[row])
        at += 1
    return n, at
