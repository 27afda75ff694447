"""Mooncake's offset allocator and stores of one file an object, under a policy of others.

Ranges and files are any size, so an object is one piece. Watermarks and caps are off: the policy
evicts. Where no range or page is left, the store's own rule acts: its oldest record, or its least
recently used file, goes, and a store that never evicts fails the put. Nothing is discarded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.core.ops import PAGE_BYTES
from harness.simulator.wearing.events import FREE, PUT
from harness.simulator.wearing.jit import kernel
from harness.simulator.wearing.state import Cut, Lost
from harness.stores.file_kernel import MOST_EXTENTS, FileParams, FileState, unlink_file, write_file
from harness.stores.index import ABSENT, index_get, recency_touch
from harness.stores.offset_kernel import OffsetParams, OffsetState, drop_record, write_record
from harness.stores.ops import OpArray

_UNWRITTEN, _FREED, _USED = int(Lost.UNWRITTEN), int(Lost.FREED), int(Lost.USED)


@kernel
def drive_records(
    p: OffsetParams, s: OffsetState, c: Cut, ops: OpArray, events: NDArray[np.void], first: int
) -> tuple[int, int]:
    """Serve events from ``first`` on while ``ops`` has room: (ops made, the next event)."""
    at, n = first, 0
    while at < len(events) and n < len(ops):
        event = events[at]
        cls, key = int(event.object_class), event.key
        row = index_get(s.keys, s.values, key)
        if event.action == PUT:
            before = n
            n = write_record(
                p, s, ops, n, key, cls, c.tail[cls] // PAGE_BYTES, c.now[1] % p.threads,
                event.session, event.turn, event.request,
            )  # fmt: skip
            c.now[1] += 1
            c.lost[_UNWRITTEN, cls] += n == before
        elif row == ABSENT:
            c.lost[_FREED if event.action == FREE else _USED, cls] += 1
        elif event.action == FREE:
            drop_record(s, row)
        at += 1
    return n, at


@kernel
def drive_files(
    p: FileParams, s: FileState, c: Cut, ops: OpArray, events: NDArray[np.void], first: int
) -> tuple[int, int]:
    """As ``drive_records``, a file an object."""
    at, n = first, 0
    while at < len(events) and n <= len(ops) - MOST_EXTENTS:
        event = events[at]
        cls, key = int(event.object_class), event.key
        row = index_get(s.keys, s.values, key)
        if event.action == PUT:
            before = n
            n = write_file(
                p, s, ops, n, key, cls, c.tail[cls] // PAGE_BYTES, c.now[1] % p.store_streams,
                event.session, event.turn, event.request,
            )  # fmt: skip
            c.now[1] += 1
            c.lost[_UNWRITTEN, cls] += n == before
        elif row == ABSENT:
            c.lost[_FREED if event.action == FREE else _USED, cls] += 1
        elif event.action == FREE:
            unlink_file(s, row)
        else:
            recency_touch(s.nxt, s.prv, row)
        at += 1
    return n, at
