"""The block engine: one request after another, object by object, exactly as specified.

Match, boundary, count, touch, pin, create, make room (see ``tiers``). Effects of a request are
atomic: the next one sees all of them. What a request uses, and what it has made, cannot leave
before the request is over.
"""

from __future__ import annotations

from typing import Any

from harness.simulator.hooks import (
    admit,
    begin,
    created,
    demote,
    finish,
    recomputed,
    superseded,
    used,
    write_now,
)
from harness.simulator.objects import class_of, node_of, resident, size_of, state_at
from harness.simulator.queues import bring_back
from harness.simulator.requestlog import SsdAction
from harness.simulator.state import (
    ASKED,
    BLOCK_TOKENS,
    CREATED,
    DIRECT,
    DRAM,
    HERE,
    HITS_DRAM,
    HITS_SSD,
    KEEP,
    LAST_TOKEN,
    LEAF,
    LOG_CAPACITY,
    MOVE_UP,
    NOW,
    ON_HIT,
    PROMOTED,
    REFUSED,
    ROW_CREATED,
    ROW_HIT,
    ROW_HIT_SSD,
    ROW_STATE_FROM,
    ROW_STATES,
    ROW_STRANDED,
    ROW_WRITTEN,
    ROW_WRITTEN_STATES,
    SSD,
    SSD_HIT,
    STATES,
    STAY,
    SUPERSEDED,
    TICK,
    USED,
    USEFUL,
    WRITES,
)
from harness.simulator.tiers import copy_to_ssd, invalidate, make_room, note, put_dram, write_ssd

_READ = int(SsdAction.READ)


def absent(s: Any, first: int, last: int) -> int:
    """How many of the chunks ``first`` to ``last`` - 1 are nowhere."""
    count = 0
    for flag in s.flag[first:last]:
        count += 1 if flag & HERE == 0 else 0
    return count


def matched(s: Any, r: int) -> int:
    """Leading chunks of the prompt that are resident."""
    limit = int(s.chunks[r])
    if s.cfg[LAST_TOKEN] != 0:
        limit = min(limit, max(int(s.input_tokens[r]) - 1, 0) // s.cfg[BLOCK_TOKENS])
    length = 0
    for run in range(s.path_of[r], s.path_of[r + 1]):
        first = int(s.path_first[run])
        last = first + min(int(s.path_length[run]), limit - length)
        if absent(s, first, last) != 0:
            while s.flag[first] & HERE != 0:
                first += 1
                length += 1
            return length
        length += last - first
        if length == limit:
            break
    return length


def boundary(s: Any, r: int, length: int) -> tuple[int, int]:
    """Usable chunks among the first ``length``, and the state behind them (-1 for none).

    A model without states can use all; another one goes on from the last resident state.
    """
    if s.cfg[STATES] == 0:
        return length, -1
    node, ends = -1, 0
    for run in range(s.path_of[r], s.path_of[r + 1]):
        if ends >= length:
            break
        count = min(int(s.path_length[run]), length - ends)
        node = s.path_first[run] + count - 1
        ends += count
    if node >= 0 and state_at(s, node) < 0:
        node = s.made_before[node]
    while node >= 0:
        state = state_at(s, node)
        if resident(s, state):
            return s.depth[node] + 1, state
        node = s.made_before[node]
    return 0, -1


def touch(s: Any, r: int, first: int, last: int) -> int:
    """Count and stamp the used objects ``first`` to ``last`` - 1; how many lay on the SSD alone."""
    from_ssd = fresh = 0
    flags, stamps = s.flag[first:last], s.stamp[first:last]
    # Three loops without branches, of which each becomes one over many objects at a time.
    for flag in flags:
        from_ssd += 1 if flag & HERE == SSD else 0
        fresh += 1 if flag & (HERE | SSD_HIT) == SSD else 0
    for at in range(len(flags)):
        flag = flags[at]
        hit = SSD_HIT if flag & HERE == SSD else 0
        flags[at] = (flag | USED | hit) & (255 - ASKED)
    for at in range(len(stamps)):
        stamps[at] = r
    kind = class_of(s, first)
    s.total[USEFUL, kind] += fresh
    s.total[HITS_SSD, kind] += from_ssd
    s.total[HITS_DRAM, kind] += last - first - from_ssd
    if from_ssd > 0 and s.cfg[LOG_CAPACITY] != 0:
        for o in range(first, last):
            if s.flag[o] & HERE == SSD:
                note(s, _READ, o)
    used(s, first, last - first)
    return from_ssd


def bring_up(s: Any, first: int, last: int) -> None:
    """Copy or move what was hit on the SSD to DRAM, as far as there is room."""
    for o in range(first, last):
        if s.flag[o] & HERE == SSD and make_room(s, size_of(s, o)):
            s.total[PROMOTED, class_of(s, o)] += 1
            put_dram(s, o)
            if s.cfg[ON_HIT] == MOVE_UP:
                invalidate(s, o)


def insert(s: Any, o: int) -> None:
    """Place an object that the request has made: DRAM, or past it to the SSD, or nowhere."""
    kind = class_of(s, o)
    s.total[CREATED, kind] += 1
    created(s, o)
    tier = admit(s, o)
    if s.cfg[LEAF] != 0:
        above = s.parent[o] if kind == 0 else node_of(s, o)
        if above >= 0 and s.flag[above] & HERE == 0:
            tier = 0
    if tier == DRAM and make_room(s, size_of(s, o)):
        put_dram(s, o)
        if write_now(s, o):
            copy_to_ssd(s, o)
    elif (tier == SSD or (tier == DRAM and demote(s, o))) and write_ssd(s, o):
        s.total[DIRECT, kind] += 1
    else:
        s.total[REFUSED, kind] += 1


def compute(s: Any, r: int, o: int) -> int:
    """The request computes an object: 1 if that makes it, 0 if it was there, merely unusable."""
    s.stamp[o] = r
    if s.flag[o] & HERE != 0:
        s.flag[o] &= 255 - ASKED
        recomputed(s, o)
        return 0
    s.flag[o] &= KEEP
    insert(s, o)
    return 1


def supersede(s: Any, r: int, node: int) -> None:
    """The session of ``r`` has made the state of ``node``: the one before it has a successor."""
    above = s.made_before[node]
    if above >= 0:
        before = state_at(s, above)
        same = s.stamp[before] >= 0 and s.session[s.stamp[before]] == s.session[r]
        if same and s.flag[before] & SUPERSEDED == 0:
            s.reg[TICK] += 1
            s.flag[before] |= SUPERSEDED
            superseded(s, before)


def serve(s: Any, r: int) -> None:
    """Serve one request."""
    s.reg[NOW] = r
    begin(s, r)
    writes, state_writes = s.total[WRITES, 0], s.total[WRITES, 1]
    length = matched(s, r)
    usable, state = boundary(s, r, length)
    if state >= 0:
        from_ssd = touch(s, r, state, state + 1)
        s.row[r, ROW_STATE_FROM] = 1 + from_ssd
    place = hit_ssd = 0
    for run in range(s.path_of[r], s.path_of[r + 1]):
        if place >= usable:
            break
        count = min(int(s.path_length[run]), usable - place)
        hit_ssd += touch(s, r, s.path_first[run], s.path_first[run] + count)
        place += count
    if s.cfg[ON_HIT] != STAY:
        place = 0
        for run in range(s.path_of[r], s.path_of[r + 1]):
            if place >= usable:
                break
            count = min(int(s.path_length[run]), usable - place)
            bring_up(s, s.path_first[run], s.path_first[run] + count)
            place += count
        if state >= 0:
            bring_up(s, state, state + 1)
    made = states_made = place = 0
    for run in range(s.path_of[r], s.path_of[r + 1]):
        count = s.path_length[run]
        for at in range(max(usable - place, 0), count):
            made += compute(s, r, s.path_first[run] + at)
        place += count
    if s.cfg[STATES] != 0:
        for at in range(s.made_of[r], s.made_of[r + 1]):
            node = s.made[at]
            if s.depth[node] >= usable:
                states_made += compute(s, r, state_at(s, node))
                supersede(s, r, node)
    finish(s, r)
    bring_back(s)
    s.row[r, ROW_HIT] = usable
    s.row[r, ROW_HIT_SSD] = hit_ssd
    s.row[r, ROW_STRANDED] = length - usable
    s.row[r, ROW_CREATED] = made
    s.row[r, ROW_STATES] = states_made
    s.row[r, ROW_WRITTEN] = s.total[WRITES, 0] - writes
    s.row[r, ROW_WRITTEN_STATES] = s.total[WRITES, 1] - state_writes


def play(s: Any, first: int, last: int) -> None:
    """Serve requests ``first`` to ``last`` - 1."""
    for r in range(first, last):
        serve(s, r)
