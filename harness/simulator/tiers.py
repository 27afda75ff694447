"""Putting objects into the two tiers and taking them out, with all that must follow."""

from __future__ import annotations

from typing import Any

from harness.simulator.hooks import choose, entered, left, victim_ssd
from harness.simulator.objects import candidate, class_of, node_of, pinned, size_of
from harness.simulator.queues import follow, keep_aside, peek, push, remember
from harness.simulator.requestlog import SsdAction
from harness.simulator.state import (
    CAP_DRAM,
    CAP_SSD,
    COPIED,
    DRAM,
    DRAM_IN,
    DROP,
    DROPPED,
    EVICT,
    EVICTED,
    FIRST_WRITES,
    INVALIDATED,
    LEAF,
    LOG_CAPACITY,
    LOG_ROWS,
    MOVE,
    MOVE_STATE,
    MOVED,
    NEVER_AGAIN,
    NODES,
    NOW,
    RELEASED,
    SSD,
    SSD_HIT,
    SUPERSEDED,
    SUPERSEDED_WRITES,
    TICK,
    USED,
    USED_BEFORE,
    USED_DRAM,
    USED_SSD,
    WRITES,
    WRITTEN,
)

_WRITE, _EVICT = int(SsdAction.WRITE), int(SsdAction.EVICT)


def _queue_if(s: Any, q: int, gone: int, o: int) -> None:
    """Queue an object for which ``gone`` was in the way, if it is a candidate now."""
    if o >= 0 and candidate(s, q, o):
        follow(s, q, gone, o)


def _queue_new(s: Any, q: int, o: int) -> None:
    """Queue an object that came; if it is no candidate now, what stands in the way does later."""
    if not candidate(s, q, o):
        return
    if pinned(s, o):
        keep_aside(s, q, o)
    else:
        push(s, q, o)


def put_dram(s: Any, o: int) -> None:
    """Put an object for which there is room into DRAM."""
    s.reg[TICK] += 1
    elsewhere = s.flag[o] & SSD != 0
    s.flag[o] |= DRAM
    s.reg[USED_DRAM] += size_of(s, o)
    s.total[DRAM_IN, class_of(s, o)] += 1
    above = s.parent[o] if o < s.cfg[NODES] else -1
    if above >= 0:
        s.kids_dram[above] += 1
        if not elsewhere:
            s.kids[above] += 1
    entered(s, o, DRAM)
    if s.cfg[LEAF] != 0:
        _queue_new(s, MOVE if o < s.cfg[NODES] else MOVE_STATE, o)
    _queue_new(s, DROP, o)


def take_dram(s: Any, o: int) -> None:
    """Take an object out of DRAM."""
    remember(s, DROP, o)
    s.reg[TICK] += 1
    s.flag[o] &= 255 - DRAM
    s.reg[USED_DRAM] -= size_of(s, o)
    above = s.parent[o] if o < s.cfg[NODES] else -1
    if above >= 0:
        s.kids_dram[above] -= 1
        if s.flag[o] & SSD == 0:
            s.kids[above] -= 1
    left(s, o, DRAM)
    _queue_if(s, DROP, o, above)
    _queue_if(s, EVICT, o, above)
    if o < s.cfg[NODES] and s.cfg[LEAF] != 0 and s.kids_dram[o] > 0:
        below = s.first_child[o]
        while below >= 0:
            _queue_if(s, MOVE, o, below)
            below = s.next_child[below]


def put_ssd(s: Any, o: int) -> None:
    """Put an object for which there is room on the SSD."""
    s.reg[TICK] += 1
    elsewhere = s.flag[o] & DRAM != 0
    s.flag[o] |= SSD
    s.reg[USED_SSD] += size_of(s, o)
    above = s.parent[o] if o < s.cfg[NODES] else -1
    if above >= 0:
        if s.kids_ssd[above] == 0:
            remember(s, EVICT, above)
        s.kids_ssd[above] += 1
        if not elsewhere:
            s.kids[above] += 1
    entered(s, o, SSD)
    _queue_new(s, EVICT, o)


def take_ssd(s: Any, o: int) -> None:
    """Take an object off the SSD."""
    remember(s, EVICT, o)
    s.reg[TICK] += 1
    s.flag[o] &= 255 - SSD
    s.reg[USED_SSD] -= size_of(s, o)
    above = s.parent[o] if o < s.cfg[NODES] else -1
    if above >= 0:
        s.kids_ssd[above] -= 1
        if s.flag[o] & DRAM == 0:
            s.kids[above] -= 1
    note(s, _EVICT, o)
    left(s, o, SSD)
    _queue_if(s, EVICT, o, above)
    _queue_if(s, DROP, o, above)


def evict(s: Any, o: int) -> None:
    """The SSD gives an object up for room."""
    s.total[EVICTED, class_of(s, o)] += 1
    take_ssd(s, o)


def invalidate(s: Any, o: int) -> None:
    """The SSD's copy goes because the object moved to DRAM."""
    s.total[INVALIDATED, class_of(s, o)] += 1
    take_ssd(s, o)


def make_room_ssd(s: Any, size: int) -> bool:
    """Evict until ``size`` bytes are free on the SSD; False if what may go is not enough."""
    if size > s.cfg[CAP_SSD]:
        return False
    while s.reg[USED_SSD] + size > s.cfg[CAP_SSD]:
        o = victim_ssd(s)
        if o < 0:
            return False
        evict(s, o)
    return True


def write_ssd(s: Any, o: int) -> bool:
    """Write an object to the SSD, after room was made; False if it does not fit."""
    if not make_room_ssd(s, size_of(s, o)):
        return False
    kind, flag = class_of(s, o), s.flag[o]
    s.total[WRITES, kind] += 1
    s.total[FIRST_WRITES, kind] += 1 if flag & WRITTEN == 0 else 0
    s.total[USED_BEFORE, kind] += 1 if flag & USED != 0 else 0
    s.total[NEVER_AGAIN, kind] += 1 if s.last_asked[o] <= s.reg[NOW] else 0
    s.total[SUPERSEDED_WRITES, kind] += 1 if flag & SUPERSEDED != 0 else 0
    s.flag[o] = (flag | WRITTEN) & (255 - SSD_HIT)
    note(s, _WRITE, o)
    put_ssd(s, o)
    return True


def copy_to_ssd(s: Any, o: int) -> bool:
    """Write an object that stays in DRAM; False if the SSD has no room for it."""
    if not write_ssd(s, o):
        return False
    s.total[COPIED, class_of(s, o)] += 1
    return True


def make_room(s: Any, size: int) -> bool:
    """Let objects leave DRAM until ``size`` bytes are free; False if the rest is pinned."""
    if size > s.cfg[CAP_DRAM]:
        return False
    while s.reg[USED_DRAM] + size > s.cfg[CAP_DRAM]:
        o, write = choose(s)
        if o < 0:
            return False
        if s.flag[o] & SSD != 0:
            s.total[RELEASED, class_of(s, o)] += 1
        elif write and write_ssd(s, o):
            s.total[MOVED, class_of(s, o)] += 1
        else:
            if s.cfg[LEAF] != 0 and write:  # it was to move, which does not let it be dropped
                o = peek(s, DROP)
                if o < 0:
                    return False
            which = RELEASED if s.flag[o] & SSD != 0 else DROPPED
            s.total[which, class_of(s, o)] += 1
        take_dram(s, o)
    return True


def note(s: Any, action: int, o: int) -> None:
    """Log what happened to an object on the SSD; neighbours of a chain share a row.

    An eviction may join a row before the last one, written for the same room; a write never does,
    for it could come before the eviction that it needs.
    """
    if s.cfg[LOG_CAPACITY] == 0:
        return
    node, code = node_of(s, o), (action << 8) | class_of(s, o)
    rows = s.reg[LOG_ROWS]
    if _joins(s, rows - 1, code, node):
        return
    if (
        action == _EVICT
        and rows >= 2
        and not _covers(s, rows - 1, node)
        and _joins(s, rows - 2, code, node)
    ):
        return
    if rows < s.cfg[LOG_CAPACITY]:
        s.log[rows, 0] = s.reg[NOW]
        s.log[rows, 1] = code
        s.log[rows, 2] = node
        s.log[rows, 3] = 1
    s.reg[LOG_ROWS] = rows + 1


def _covers(s: Any, row: int, node: int) -> bool:
    if row >= s.cfg[LOG_CAPACITY]:
        return True
    first = s.log[row, 2]
    return first <= node and node < first + s.log[row, 3]


def _joins(s: Any, row: int, code: int, node: int) -> bool:
    """Make the node part of a row of the same request, if it continues that chain."""
    if row < 0 or row >= s.cfg[LOG_CAPACITY]:
        return False
    if s.log[row, 0] != s.reg[NOW] or s.log[row, 1] != code:
        return False
    first, count = s.log[row, 2], s.log[row, 3]
    if node == first + count and s.parent[node] == node - 1:
        s.log[row, 3] = count + 1
        return True
    if node + 1 == first and s.parent[first] == node:
        s.log[row, 2] = node
        s.log[row, 3] = count + 1
        return True
    return False
