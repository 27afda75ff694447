"""LMCache's slots under a policy of others: a slot freed last is reused first, no discard.

The store's watermark is off: the policy evicts. Only where no slot is left does the store's own
rule act, and the least recently used piece goes. Objects larger than a slot are cut into pieces.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.simulator.wearing.events import FREE, PUT
from harness.simulator.wearing.jit import inner_kernel, kernel
from harness.simulator.wearing.state import Cut, Lost, piece_bytes, piece_key, use_pieces
from harness.stores.index import ABSENT, index_get, recency_oldest
from harness.stores.ops import OpArray
from harness.stores.slot_state import N, SlotParams, SlotState, T
from harness.stores.slot_workers import advance, free_slot, put_in_slot, slots_left, take_slot

_OPS, _LAST_IO = int(N.OPS), int(T.LAST_IO)
_FREED = int(Lost.FREED)


@inner_kernel
def _write(
    p: SlotParams, s: SlotState, c: Cut, ops: OpArray, cls: int, key: np.uint64, session: int,
    turn: int, worker: int, time_s: float,
) -> None:  # fmt: skip
    for piece in range(c.pieces[cls]):
        if slots_left(p, s) == 0:
            free_slot(s, recency_oldest(s.nxt, s.prv))
        lane = worker * p.batch + c.now[1] % p.batch
        c.now[1] += 1
        put_in_slot(
            p, s, ops, lane, take_slot(p, s), piece_key(c, cls, key, piece), cls,
            piece_bytes(c, cls, piece), session, turn,
        )  # fmt: skip
    s.times[_LAST_IO] = max(s.times[_LAST_IO], time_s) + c.pieces[cls] * p.chunk_write_s


@inner_kernel
def _free(s: SlotState, c: Cut, cls: int, key: np.uint64) -> None:
    found = 0
    for piece in range(c.pieces[cls] - 1, -1, -1):
        slot = index_get(s.keys, s.values, piece_key(c, cls, key, piece))
        if slot != ABSENT:
            free_slot(s, slot)
            found += 1
    if found < c.pieces[cls]:
        c.lost[_FREED, cls] += 1


@kernel
def drive_slots(
    p: SlotParams, s: SlotState, c: Cut, ops: OpArray, events: NDArray[np.void], first: int
) -> tuple[int, int]:
    """Serve events from ``first`` on while ``ops`` has room: (ops made, the next event)."""
    s.ints[_OPS] = 0
    most = len(ops) - 2 * (c.pieces[0] + c.pieces[1]) - 2
    at = first
    while at < len(events) and s.ints[_OPS] <= most:
        event = events[at]
        cls, key = int(event.object_class), event.key
        if event.action == PUT:
            if event.request != c.now[0]:
                c.now[0] = event.request
                advance(p, s, ops, event.time_s)
            worker = event.request % p.store_workers
            _write(p, s, c, ops, cls, key, event.session, event.turn, worker, event.time_s)
        elif event.action == FREE:
            _free(s, c, cls, key)
        else:
            use_pieces(s, c, cls, key)
        at += 1
    return s.ints[_OPS], at
