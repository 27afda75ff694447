"""The segment engine: LRU, written back, by whole chains of nodes, with the block engine's counts.

All nodes of a segment share each touch, so they share their stamp, and leave in a known order:
under the leaf rule, with hits staying where they are, the SSD holds the first nodes of a segment,
DRAM those after them, and the rest is nowhere. One case does not fit: chunks that find no room in
DRAM beside what is pinned and go straight to the SSD. Then the run is given up (``BYPASSED``) and
the block engine does it.
"""

from __future__ import annotations

from typing import Any

from harness.simulator.hooks import first_to_move
from harness.simulator.objects import STAMP_STEP
from harness.simulator.queues import bring_back, follow, keep_aside, peek, push
from harness.simulator.segment_state import (
    CHILDREN,
    EVER,
    HELD,
    HIT,
    ON_SSD,
    STAMP,
    USED_PART,
)
from harness.simulator.state import (
    BYPASSED,
    CAP_DRAM,
    CAP_SSD,
    CREATED,
    DIRECT,
    DRAM,
    DRAM_IN,
    DROP,
    DROPPED,
    EVICT,
    EVICTED,
    FIRST_WRITES,
    HERE,
    HITS_DRAM,
    HITS_SSD,
    KEEP,
    MOVE,
    MOVE_STATE,
    MOVED,
    NEVER_AGAIN,
    NODES,
    NOW,
    REFUSED,
    ROW_CREATED,
    ROW_HIT,
    ROW_HIT_SSD,
    ROW_STATE_FROM,
    ROW_STATES,
    ROW_STRANDED,
    ROW_WRITTEN,
    ROW_WRITTEN_STATES,
    SIZE_FULL,
    SIZE_STATE,
    SSD,
    SSD_HIT,
    STATES,
    SUPERSEDED,
    SUPERSEDED_WRITES,
    USED,
    USED_BEFORE,
    USED_DRAM,
    USED_SSD,
    USEFUL,
    WRITES,
    WRITTEN,
)


def order(s: Any, o: int) -> float:
    """LRU order of what a segment would give up next: see ``objects.order``.

    Its nodes share a stamp, and no other segment's come between them; so the deepest stands for
    all.
    """
    if o >= s.cfg[NODES]:
        g = o - s.cfg[NODES]
        depth = s.start_depth[g] + s.length[g] - 1
        return float(s.stamp[g]) * STAMP_STEP - 2.0 * float(depth) - 1.0
    depth = s.start_depth[o] + s.length[o] - 1
    return float(s.part[STAMP, o]) * STAMP_STEP - 2.0 * float(depth)


def key(s: Any, q: int, o: int) -> float:
    """LRU."""
    return order(s, o)


def pinned(s: Any, o: int) -> bool:
    """Whether the request being served uses it or has made it."""
    if o >= s.cfg[NODES]:
        return s.stamp[o - s.cfg[NODES]] == s.reg[NOW]
    return s.part[STAMP, o] == s.reg[NOW]


def candidate(s: Any, q: int, o: int) -> bool:
    """Whether something of the segment, or the state, may go by way of queue ``q``."""
    if o >= s.cfg[NODES]:
        return s.flag[o - s.cfg[NODES]] & (SSD if q == EVICT else DRAM) != 0
    on_ssd, held = s.part[ON_SSD, o], s.part[HELD, o]
    if q == EVICT:
        return on_ssd > 0 and held == on_ssd and s.part[CHILDREN, o] == 0
    if held == on_ssd:
        return False
    if q == DROP:
        return s.part[CHILDREN, o] == 0
    above = s.parent[o]
    return on_ssd > 0 or above < 0 or s.part[ON_SSD, above] == s.length[above]


def _queue_if(s: Any, q: int, gone: int, o: int) -> None:
    if o >= 0 and candidate(s, q, o):
        follow(s, q, gone, o)


def lost_all(s: Any, g: int) -> None:
    """A segment holds nothing any more: the one above may be a leaf."""
    above = s.parent[g]
    if above >= 0:
        s.part[CHILDREN, above] -= 1
        _queue_if(s, DROP, g, above)
        _queue_if(s, EVICT, g, above)


def make_room_ssd(s: Any, size: int) -> int:
    """Evict until ``size`` bytes are free on the SSD, or nothing may go any more; bytes free."""
    while s.cfg[CAP_SSD] - s.reg[USED_SSD] < size:
        o = peek(s, EVICT)
        if o < 0:
            break
        if o >= s.cfg[NODES]:
            s.flag[o - s.cfg[NODES]] &= 255 - SSD
            s.reg[USED_SSD] -= s.cfg[SIZE_STATE]
            s.total[EVICTED, 1] += 1
            continue
        each = s.cfg[SIZE_FULL]
        lacking = size - (s.cfg[CAP_SSD] - s.reg[USED_SSD])
        count = min(int(s.part[ON_SSD, o]), (lacking + each - 1) // each)
        left = s.part[ON_SSD, o] - count
        s.part[ON_SSD, o] = left
        s.part[HELD, o] = left
        s.part[HIT, o] = min(s.part[HIT, o], left)
        s.part[USED_PART, o] = min(s.part[USED_PART, o], left)
        s.reg[USED_SSD] -= count * each
        s.total[EVICTED, 0] += count
        if left == 0:
            lost_all(s, o)
    return s.cfg[CAP_SSD] - s.reg[USED_SSD]


def write_state(s: Any, g: int) -> bool:
    """Write a state; False if the SSD has no room for it."""
    size = s.cfg[SIZE_STATE]
    if size > s.cfg[CAP_SSD] or make_room_ssd(s, size) < size:
        return False
    flag = s.flag[g]
    s.total[WRITES, 1] += 1
    s.total[FIRST_WRITES, 1] += 1 if flag & WRITTEN == 0 else 0
    s.total[USED_BEFORE, 1] += 1 if flag & USED != 0 else 0
    s.total[NEVER_AGAIN, 1] += 1 if s.last_asked[s.cfg[NODES] + g] <= s.reg[NOW] else 0
    s.total[SUPERSEDED_WRITES, 1] += 1 if flag & SUPERSEDED != 0 else 0
    s.flag[g] = (flag | WRITTEN | SSD) & (255 - SSD_HIT)
    s.reg[USED_SSD] += size
    if pinned(s, s.cfg[NODES] + g):
        keep_aside(s, EVICT, s.cfg[NODES] + g)
    else:
        push(s, EVICT, s.cfg[NODES] + g)
    return True


def move_chunks(s: Any, g: int, wanted: int) -> int:
    """Move up to ``wanted`` chunks of a segment to the SSD, root side first; how many fitted."""
    each = s.cfg[SIZE_FULL]
    if each > s.cfg[CAP_SSD]:
        return 0
    count = min(wanted, make_room_ssd(s, wanted * each) // each)
    if count == 0:
        return 0
    before = s.part[ON_SSD, g]
    after = before + count
    s.total[WRITES, 0] += count
    s.total[MOVED, 0] += count
    s.total[FIRST_WRITES, 0] += max(after - max(before, s.part[EVER, g]), 0)
    s.total[USED_BEFORE, 0] += max(min(after, s.part[USED_PART, g]) - before, 0)
    s.total[NEVER_AGAIN, 0] += count if s.last_asked[g] <= s.reg[NOW] else 0
    s.part[ON_SSD, g] = after
    s.part[EVER, g] = max(s.part[EVER, g], after)
    s.reg[USED_SSD] += count * each
    s.reg[USED_DRAM] -= count * each
    if after == s.length[g]:
        below = s.first_child[g]
        while below >= 0:
            _queue_if(s, MOVE, g, below)
            below = s.next_child[below]
    if candidate(s, EVICT, g):
        push(s, EVICT, g)
    return count


def drop(s: Any, o: int, lacking: int) -> None:
    """Drop a state, or the last chunks of a segment, as many as free ``lacking`` bytes."""
    if o >= s.cfg[NODES]:
        s.flag[o - s.cfg[NODES]] &= 255 - DRAM
        s.reg[USED_DRAM] -= s.cfg[SIZE_STATE]
        s.total[DROPPED, 1] += 1
        return
    each = s.cfg[SIZE_FULL]
    count = min(int(s.part[HELD, o] - s.part[ON_SSD, o]), (lacking + each - 1) // each)
    left = s.part[HELD, o] - count
    s.part[HELD, o] = left
    s.part[USED_PART, o] = min(s.part[USED_PART, o], left)
    s.reg[USED_DRAM] -= count * each
    s.total[DROPPED, 0] += count
    if left == 0:
        lost_all(s, o)
    elif candidate(s, EVICT, o):
        push(s, EVICT, o)


def make_room(s: Any, size: int) -> bool:
    """Let objects leave DRAM until ``size`` bytes are free; False if the rest is pinned."""
    if size > s.cfg[CAP_DRAM]:
        return False
    while s.reg[USED_DRAM] + size > s.cfg[CAP_DRAM]:
        lacking = s.reg[USED_DRAM] + size - s.cfg[CAP_DRAM]
        o = first_to_move(s)
        if o >= s.cfg[NODES]:
            g = o - s.cfg[NODES]
            if write_state(s, g):
                s.flag[g] &= 255 - DRAM
                s.reg[USED_DRAM] -= s.cfg[SIZE_STATE]
                s.total[MOVED, 1] += 1
                continue
        elif o >= 0:
            each = s.cfg[SIZE_FULL]
            there = int(s.part[HELD, o] - s.part[ON_SSD, o])
            if move_chunks(s, o, min(there, (lacking + each - 1) // each)) > 0:
                continue
        o = peek(s, DROP)
        if o < 0:
            return False
        drop(s, o, lacking)
    return True


def make_state(s: Any, r: int, g: int) -> int:
    """Compute the state at a segment's end: 1 if that makes it, 0 if it was there."""
    o = s.cfg[NODES] + g
    s.stamp[g] = r
    if s.flag[g] & HERE != 0:
        return 0
    s.flag[g] &= KEEP
    s.total[CREATED, 1] += 1
    if make_room(s, s.cfg[SIZE_STATE]):
        s.flag[g] |= DRAM
        s.reg[USED_DRAM] += s.cfg[SIZE_STATE]
        s.total[DRAM_IN, 1] += 1
        keep_aside(s, MOVE_STATE, o)
        keep_aside(s, DROP, o)
    elif write_state(s, g):
        s.total[DIRECT, 1] += 1
    else:
        s.total[REFUSED, 1] += 1
    return 1


def make_chunks(s: Any, r: int, g: int) -> int:
    """Compute the chunks of a segment: those that were nowhere are made; how many."""
    s.part[STAMP, g] = r
    held = s.part[HELD, g]
    count = int(s.length[g] - held)
    if count == 0:
        return 0
    if not make_room(s, count * s.cfg[SIZE_FULL]):
        s.reg[BYPASSED] = 1
        return 0
    s.total[CREATED, 0] += count
    s.total[DRAM_IN, 0] += count
    s.reg[USED_DRAM] += count * s.cfg[SIZE_FULL]
    s.part[HELD, g] = s.length[g]
    above = s.parent[g]
    if held == 0 and above >= 0:
        s.part[CHILDREN, above] += 1
    keep_aside(s, MOVE, g)
    keep_aside(s, DROP, g)
    return count


def use_state(s: Any, r: int, g: int) -> int:
    """Count the state that the request goes on from; where it lay, 1 DRAM, 2 SSD."""
    flag = s.flag[g]
    s.stamp[g] = r
    if flag & DRAM != 0:
        s.total[HITS_DRAM, 1] += 1
        s.flag[g] = flag | USED
        return 1
    s.total[HITS_SSD, 1] += 1
    s.total[USEFUL, 1] += 1 if flag & SSD_HIT == 0 else 0
    s.flag[g] = flag | USED | SSD_HIT
    return 2


def supersede(s: Any, r: int, g: int) -> None:
    """The session of ``r`` has made a state after that of ``g``, which is -1 if there is none."""
    if g >= 0 and s.stamp[g] >= 0 and s.session[s.stamp[g]] == s.session[r]:
        s.flag[g] |= SUPERSEDED


def serve(s: Any, r: int) -> None:
    """Serve one request."""
    s.reg[NOW] = r
    writes, state_writes = s.total[WRITES, 0], s.total[WRITES, 1]
    first, last = s.path_of[r], s.path_of[r + 1]
    length, at = 0, first
    while at < last and length < s.chunks[r]:
        g = s.path_segment[at]
        length += s.part[HELD, g]
        if s.part[HELD, g] < s.length[g]:
            break
        at += 1
    usable, whole = length, at
    if s.cfg[STATES] != 0:
        if at < last and length < s.chunks[r]:
            usable -= s.part[HELD, s.path_segment[at]]
        while whole > first and s.flag[s.path_segment[whole - 1]] & HERE == 0:
            whole -= 1
            usable -= s.length[s.path_segment[whole]]
        if whole > first:
            s.row[r, ROW_STATE_FROM] = use_state(s, r, s.path_segment[whole - 1])
    hit_ssd = place = 0
    at = first
    while place < usable:
        g = s.path_segment[at]
        on_ssd, held = s.part[ON_SSD, g], s.part[HELD, g]
        s.part[STAMP, g] = r
        s.part[USED_PART, g] = held
        hit_ssd += on_ssd
        if s.part[HIT, g] != on_ssd:
            s.total[USEFUL, 0] += on_ssd - s.part[HIT, g]
            s.part[HIT, g] = on_ssd
        place += held
        at += 1
    s.total[HITS_SSD, 0] += hit_ssd
    s.total[HITS_DRAM, 0] += usable - hit_ssd
    if s.cfg[STATES] == 0 and at > first:
        g = s.path_segment[at - 1]
        if s.part[HELD, g] < s.length[g]:
            at -= 1
    made = states_made = 0
    while at < last:
        made += make_chunks(s, r, s.path_segment[at])
        at += 1
    if s.cfg[STATES] != 0:
        for k in range(s.made_of[r], s.made_of[r + 1]):
            g = s.made[k]
            if s.start_depth[g] + s.length[g] > usable:
                states_made += make_state(s, r, g)
                supersede(s, r, s.made_before[g])
    bring_back(s)
    s.row[r, ROW_HIT] = usable
    s.row[r, ROW_HIT_SSD] = hit_ssd
    s.row[r, ROW_STRANDED] = length - usable
    s.row[r, ROW_CREATED] = made
    s.row[r, ROW_STATES] = states_made
    s.row[r, ROW_WRITTEN] = s.total[WRITES, 0] - writes
    s.row[r, ROW_WRITTEN_STATES] = s.total[WRITES, 1] - state_writes


def play_segments(s: Any, first: int, last: int) -> None:
    """Serve requests ``first`` to ``last`` - 1, or those before chunks went past DRAM."""
    for r in range(first, last):
        if s.reg[BYPASSED] != 0:
            return
        serve(s, r)
