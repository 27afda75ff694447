"""Session-contiguous extents under a policy of others: a session's space goes with the session.

What a request puts of one session is one segment, layer by layer. An evicted object leaves its
bytes in its session's extents: they come back when the session's last object goes, or when no
extent is left and the session idle longest goes whole, its surviving objects lost. A session is
the one that made the object, so a shared prefix lies with whoever asked for it first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.core.ops import Op
from harness.simulator.wearing.events import FREE, PUT
from harness.simulator.wearing.jit import inner_kernel, kernel
from harness.simulator.wearing.state import Cut, Lost
from harness.stores.index import ABSENT, index_get, index_remove, recency_touch
from harness.stores.ops import ObjectClass, OpArray
from harness.stores.session_kernel import (
    append_chunks,
    append_state,
    forget_session,
    open_session,
)
from harness.stores.session_state import S, SessionParams, SessionState

_WRITE = int(Op.WRITE)
_KV, _STATE = int(ObjectClass.FULL_ATTENTION), int(ObjectClass.FIXED_STATE)
_UNWRITTEN, _FREED, _USED = int(Lost.UNWRITTEN), int(Lost.FREED), int(Lost.USED)
_OPS, _GROUP, _FAILED = int(S.OPS), int(S.GROUP), int(S.FAILED_PUTS)
_NONE = -1
_GONE = np.uint64(1) << np.uint64(63)
MOST_CHUNKS = 4096
"""Chunks of a session that are gathered into segments at once."""


class Gathered(NamedTuple):
    """Chunks of one session that are about to be appended; ``ints``: count, session, turn.

    ``live``: objects of each live session; ``order``: scratch, one word an op.
    """

    keys: NDArray[np.uint64]
    ints: NDArray[np.int64]
    live: NDArray[np.int64]
    order: NDArray[np.int64]


_COUNT, _SESSION, _TURN = range(3)


def new_gathered(p: SessionParams, ops: int) -> Gathered:
    """Nothing gathered."""
    return Gathered(
        np.zeros(MOST_CHUNKS, np.uint64), np.zeros(3, np.int64), np.zeros(p.extents, np.int64),
        np.zeros(ops, np.int64),
    )  # fmt: skip


@inner_kernel
def _open(p: SessionParams, s: SessionState, g: Gathered, session: int) -> int:
    """The session's row, in use by the request in hand; -1 without room."""
    known = index_get(s.session_keys, s.session_values, np.uint64(session)) != ABSENT
    who = open_session(p, s, session)
    if who >= 0:
        if not known:
            g.live[who] = 0
        s.session_group[who] = s.ints[_GROUP]
        recency_touch(s.nxt, s.prv, who)
    return who


@inner_kernel
def _flush(p: SessionParams, s: SessionState, c: Cut, g: Gathered, ops: OpArray) -> None:
    """Append what is gathered."""
    count = g.ints[_COUNT]
    if count == 0:
        return
    g.ints[_COUNT] = 0
    session, turn = g.ints[_SESSION], g.ints[_TURN]
    who = _open(p, s, g, session)
    if who < 0:
        c.lost[_UNWRITTEN, _KV] += count
        return
    failed = s.ints[_FAILED]
    append_chunks(p, s, ops, g.order, who, g.keys, count, session, turn)
    failed = s.ints[_FAILED] - failed
    c.lost[_UNWRITTEN, _KV] += failed
    g.live[who] += count - failed


@inner_kernel
def _gather(
    p: SessionParams, s: SessionState, c: Cut, g: Gathered, ops: OpArray, key: np.uint64,
    session: int, turn: int,
) -> None:  # fmt: skip
    if g.ints[_COUNT] == len(g.keys) or g.ints[_SESSION] != session:
        _flush(p, s, c, g, ops)
    g.ints[_SESSION], g.ints[_TURN] = session, turn
    g.keys[g.ints[_COUNT]] = key
    g.ints[_COUNT] += 1


@inner_kernel
def _put_state(
    p: SessionParams, s: SessionState, c: Cut, g: Gathered, ops: OpArray, key: np.uint64,
    session: int, turn: int,
) -> None:  # fmt: skip
    who = _open(p, s, g, session)
    before = s.ints[_OPS]
    if who >= 0:
        append_state(p, s, ops, g.order, who, key, session, turn, 0)
    if s.ints[_OPS] == before:
        c.lost[_UNWRITTEN, _STATE] += 1
    else:
        g.live[who] += 1


@inner_kernel
def _free(p: SessionParams, s: SessionState, g: Gathered, key: np.uint64, row: int) -> None:
    who = s.row_owner[row]
    index_remove(s.keys, s.values, key)
    s.row_key[row] = _GONE | np.uint64(row)
    g.live[who] -= 1
    if g.live[who] == 0:
        forget_session(p, s, who)


@kernel
def drive_sessions(
    p: SessionParams, s: SessionState, c: Cut, g: Gathered, ops: OpArray,
    events: NDArray[np.void], first: int,
) -> tuple[int, int]:  # fmt: skip
    """Serve events from ``first`` on while ``ops`` has room: (ops made, the next event)."""
    s.ints[_OPS] = 0
    layers = len(p.layer_bytes)
    at = first
    while at < len(events):
        # A gathered chunk may become a segment of its own, where extents end.
        if s.ints[_OPS] + layers * (g.ints[_COUNT] + 2) + 2 > len(ops):
            _flush(p, s, c, g, ops)
            if s.ints[_OPS] + 2 * layers + 2 > len(ops):
                break
        event = events[at]
        cls, key = int(event.object_class), event.key
        if event.request != c.now[0]:
            _flush(p, s, c, g, ops)
            c.now[0] = event.request
            s.ints[_GROUP] += 1
        if event.action == PUT and cls == _KV:
            _gather(p, s, c, g, ops, key, event.session, event.turn)
            at += 1
            continue
        row = index_get(s.keys, s.values, key)
        if g.ints[_COUNT] > 0 and (event.action == PUT or row == ABSENT):
            _flush(p, s, c, g, ops)  # it may be among what is gathered
            row = index_get(s.keys, s.values, key)
        if event.action == PUT:
            _put_state(p, s, c, g, ops, key, event.session, event.turn)
        elif row == ABSENT:
            c.lost[_FREED if event.action == FREE else _USED, cls] += 1
        elif event.action == FREE:
            _free(p, s, g, key, row)
        elif s.session_group[s.row_owner[row]] != s.ints[_GROUP]:
            recency_touch(s.nxt, s.prv, s.row_owner[row])
        at += 1
    _flush(p, s, c, g, ops)
    return s.ints[_OPS], at
