"""A drive as sold: GC only when a new line is needed, and never into the host's lines.

Each host stream has a line of its own; collected pages go to one line shared by all (FDP's
"initially isolated") or to one a stream ("persistently isolated"). A host stream may open a
line only while another stays free for GC, so a collection can always finish. Not modelled:
read disturb, retention and static wear levelling, which add writes of their own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from harness.core.ops import Op
from harness.core.profiles import DeviceProfile
from harness.ftl.jit import inlined, inner, kernel, prefetch
from harness.ftl.pages import (
    BLOCK,
    FLAG,
    UNMAPPED,
    Pages,
    allocate,
    count_moved,
    fill,
    note,
    note_singles,
    page_of,
    place_bits,
    prefetch_run,
    remap,
    tag_host,
    unit_bits,
    valid_stretch,
)
from harness.ftl.policy import (
    EMPTY_WRITE,
    ERASED,
    FREE,
    GC_PAGES,
    HOST_BYTES,
    HOST_PAGES,
    NO_FREE_LINES,
    OPS,
    OUTSIDE,
    SNAPSHOT,
    STATS,
    STOPPED,
    TRIMMED,
)
from harness.ftl.victims import CLOSED, FREED, NONE, OPEN, best_benefit, fewest_valid

FREE_HEAD, FG, BG = range(STATS, STATS + 3)
_WORDS = STATS + 3

P, SHIFT, UNIT, UNIT_BITS, LIMIT, STREAMS, PERSISTENT, KEEP_FREE, TRIM, BY_AGE = range(10)
"""Index into ``geometry``: pages a line, place bits, bytes an LPN and their log2,
bytes of the namespace, host write points, whether
GC has one write point a stream, lines that host writes leave free, whether discards count,
whether victims are weighed by age."""

_WRITE, _DISCARD, _ZEROES, _SNAP = (
    int(Op.WRITE), int(Op.DISCARD), int(Op.WRITE_ZEROES), int(Op.SNAP)
)  # fmt: skip
_AHEAD = 24
_BATCH = 512
_NOTES_AHEAD = 16


class DriveState(NamedTuple):
    """All of a drive's FTL. N lines, W write points: host streams, then GC's."""

    pages: Pages
    kind: np.ndarray  # uint8[N]: free, open or closed
    closed_at: np.ndarray  # int64[N]: pages programmed when the line closed
    owner: np.ndarray  # int16[N]: host stream whose data the line holds
    free: np.ndarray  # int32[N]: ring of free lines
    line: np.ndarray  # int64[W]: open line, -1 if none
    place: np.ndarray  # int64[W]: pages of it already programmed
    stats: np.ndarray  # int64
    geometry: np.ndarray  # int64


def create(profile: DeviceProfile, tagged: bool) -> DriveState:
    """An empty drive: all lines free, no write point has one."""
    settings, lines, per_line = profile.drive, profile.lines, profile.pages_per_line
    streams = 1 if settings.streams == "none" else settings.max_streams
    persistent = settings.isolation == "persistent"
    points = streams + (streams if persistent else 1)
    stats = np.zeros(_WORDS, np.int64)
    stats[FREE] = lines
    return DriveState(
        pages=allocate(profile.namespace_pages, lines, per_line, tagged),
        kind=np.zeros(lines, np.uint8),
        closed_at=np.zeros(lines, np.int64),
        owner=np.zeros(lines, np.int16),
        free=np.arange(lines, dtype=np.int32),
        line=np.full(points, NONE, np.int64),
        place=np.zeros(points, np.int64),
        stats=stats,
        geometry=np.array(
            [per_line, place_bits(per_line), profile.lpn_bytes,
             unit_bits(profile.lpn_bytes), profile.namespace_bytes, streams, persistent,
             settings.spare_lines, settings.trim, settings.victim == "cost-benefit"],
            np.int64,
        ),
    )  # fmt: skip


@inlined
def _open(st: DriveState, point: int, owner: int) -> bool:
    """Give a write point the line that has been free longest; False if there is none."""
    stats = st.stats
    if stats[FREE] == 0:
        return False
    line = st.free[stats[FREE_HEAD]]
    stats[FREE_HEAD] = (stats[FREE_HEAD] + 1) % len(st.free)
    stats[FREE] -= 1
    st.kind[line], st.owner[line] = OPEN, owner
    st.pages.noted[line] = 0
    st.line[point], st.place[point] = line, 0
    return True


@inlined
def _advance(st: DriveState, point: int, count: int) -> None:
    """``count`` pages were programmed at a write point; a full line closes."""
    line = st.line[point]
    st.pages.valid[line] += count
    st.place[point] += count
    if st.place[point] == st.geometry[P]:
        st.kind[line] = CLOSED
        st.closed_at[line] = st.stats[HOST_PAGES] + st.stats[GC_PAGES]
        st.line[point] = NONE


@inlined
def _room(st: DriveState, point: int, owner: int) -> int:
    """Pages that fit at a write point, a line opened if need be; 0 if there is none."""
    if st.line[point] == NONE and not _open(st, point, owner):
        return 0
    return st.geometry[P] - st.place[point]


@inner
def _move_singles(st: DriveState, point: int, owner: int, count: int) -> bool:
    """Program the LPNs ``moved[:count]`` at a GC write point; False if lines ran out."""
    done = 0
    while done < count:
        step = min(count - done, _room(st, point, owner))
        if step == 0:
            return False
        line = st.line[point]
        address = (line << st.geometry[SHIFT]) + st.place[point]
        note_singles(st.pages, line, line * st.geometry[P], done, step, address)
        st.stats[GC_PAGES] += step
        _advance(st, point, step)
        done += step
    return True


@inner
def _move_run(st: DriveState, point: int, owner: int, lpn: int, n: int) -> bool:
    """Program ``n`` consecutive LPNs at a GC write point; False if lines ran out."""
    while n > 0:
        step = min(n, _room(st, point, owner))
        if step == 0:
            return False
        line = st.line[point]
        address = (line << st.geometry[SHIFT]) + st.place[point]
        fill(st.pages.l2p[lpn : lpn + step], address, 0)
        note(st.pages, line, line * st.geometry[P], lpn, step)
        if len(st.pages.tags):
            count_moved(st.pages, lpn, step)
        st.stats[GC_PAGES] += step
        _advance(st, point, step)
        lpn += step
        n -= step
    return True


@inner
def _valid_singles(pages: Pages, start: int, end: int, address: int) -> int:
    """LPNs noted one a word in ``p2l[start:end]`` and still valid into ``moved``; how many."""
    count = 0
    for at in range(start, end):
        lpn = pages.p2l[at]
        # No branch: half of the guesses would be wrong and stall the loads behind.
        pages.moved[count] = lpn
        count += pages.l2p[lpn] == pages.l2p.dtype.type(address + (at - start))
    return count


@inner
def _evacuate(st: DriveState, victim: int, point: int, owner: int) -> bool:
    """Move every valid page out of ``victim``, in the order of programming."""
    pages, flag = st.pages, st.pages.const[FLAG]
    address = victim << st.geometry[SHIFT]
    at = victim * st.geometry[P]
    end = at + pages.noted[victim]
    while at < end:
        word = pages.p2l[at]
        if word & flag:
            # A word that is a length asks for a line of no use: harmless.
            ahead = pages.p2l[min(at + _NOTES_AHEAD, end - 1)]
            prefetch_run(pages, np.int64(ahead & ~flag), BLOCK)
            lpn: Any = np.int64(word ^ flag)
            left: Any = np.int64(pages.p2l[at + 1])
            while left > 0:
                stretch = valid_stretch(pages, lpn, left, address)
                if stretch > 0 and not _move_run(st, point, owner, lpn, stretch):
                    return False
                lpn += abs(stretch)
                address += abs(stretch)
                left -= abs(stretch)
            at += 2
            continue
        stop, limit = at, min(end, at + _BATCH)
        while stop < limit and not pages.p2l[stop] & flag:
            prefetch(pages.l2p, np.int64(pages.p2l[stop]))
            stop += 1
        if not _move_singles(st, point, owner, _valid_singles(pages, at, stop, address)):
            return False
        address += stop - at
        at = stop
    return True


@inner
def _collect(st: DriveState) -> bool:
    """Move what is valid out of the best victim and free it; False if that cannot be done."""
    pages, stats, geometry = st.pages, st.stats, st.geometry
    if geometry[BY_AGE]:
        now = stats[HOST_PAGES] + stats[GC_PAGES]
        victim = best_benefit(st.kind, pages.valid, st.closed_at, geometry[P], now)
    else:
        victim = fewest_valid(st.kind, pages.valid, st.closed_at)
    if victim == NONE or pages.valid[victim] == geometry[P]:
        return False
    owner = st.owner[victim]
    point = geometry[STREAMS] + (owner if geometry[PERSISTENT] else 0)
    if pages.valid[victim] and not _evacuate(st, victim, point, owner):
        return False
    pages.valid[victim] = 0
    pages.erases[victim] += 1
    stats[ERASED] += 1
    stats[FG] += 1
    st.kind[victim] = FREED
    st.free[(stats[FREE_HEAD] + stats[FREE]) % len(st.free)] = victim
    stats[FREE] += 1
    return True


@inlined
def _program(st: DriveState, point: int, lpn: int, n: int, kind: int) -> bool:
    """Host writes of ``n`` pages from ``lpn`` at a stream's write point."""
    pages, stats = st.pages, st.stats
    per_line, shift = st.geometry[P], st.geometry[SHIFT]
    while n > 0:
        if st.line[point] == NONE:
            while stats[FREE] <= st.geometry[KEEP_FREE]:
                if not _collect(st):
                    return False
            _open(st, point, point)
        line, place = st.line[point], st.place[point]
        step = min(n, per_line - place)
        address = (line << shift) + place
        if step == 1:
            old = pages.l2p[lpn]
            pages.l2p[lpn] = address
            if old != pages.const[UNMAPPED]:
                pages.valid[np.int64(old >> shift)] -= 1
        else:
            for run in range(remap(pages, lpn, step, address, shift)):
                pages.valid[pages.run_line[run]] -= pages.run_count[run]
        note(pages, line, line * per_line, lpn, step)
        if len(pages.tags):
            tag_host(pages, lpn, step, kind)
        stats[HOST_PAGES] += step
        _advance(st, point, step)
        lpn += step
        n -= step
    return True


@inner
def _trim(st: DriveState, lpn: int, n: int) -> None:
    """Unmap ``n`` pages from ``lpn``."""
    pages = st.pages
    while n > 0:
        step = min(n, st.geometry[P])
        for run in range(remap(pages, lpn, step, -1, st.geometry[SHIFT])):
            st.stats[TRIMMED] += pages.run_count[run]
            pages.valid[pages.run_line[run]] -= pages.run_count[run]
        lpn += step
        n -= step


@kernel
def serve(
    st: DriveState,
    offset: np.ndarray,
    length: np.ndarray,
    op: np.ndarray,
    stream: np.ndarray,
    kind: np.ndarray,
    start: int,
    stop: int,
    page_limit: int,
) -> tuple[int, int]:
    """Serve commands ``start``..``stop``; returns (index, why it stopped there).

    As ``femu.serve``, with ``stream``: uint8 host stream of each command. A discard frees the
    pages it covers whole, and so do zeroes written by command.
    """
    stats, unit, bits = st.stats, st.geometry[UNIT], st.geometry[UNIT_BITS]
    limit = np.uint64(st.geometry[LIMIT])
    last_stream = st.geometry[STREAMS] - 1
    page_limit += stats[HOST_PAGES] + stats[GC_PAGES]
    for i in range(start, stop):
        if i + _AHEAD < stop:
            prefetch_run(
                st.pages,
                page_of(np.int64(offset[i + _AHEAD]), unit, bits),
                page_of(np.int64(length[i + _AHEAD]), unit, bits),
            )
        code = op[i]
        if code == _SNAP:
            return i, SNAPSHOT
        if offset[i] > limit or length[i] > limit - offset[i]:
            return i, OUTSIDE
        begin, size = np.int64(offset[i]), np.int64(length[i])
        if code == _WRITE:
            if size == 0:
                return i, EMPTY_WRITE
            first = page_of(begin, unit, bits)
            n = page_of(begin + size - 1, unit, bits) - first + 1
            stats[HOST_BYTES] += size
            point = min(np.int64(stream[i]), last_stream)
            if not _program(st, point, first, n, kind[i]):
                return i, NO_FREE_LINES
        elif code in (_DISCARD, _ZEROES) and st.geometry[TRIM]:
            first = page_of(begin + unit - 1, unit, bits)
            _trim(st, first, page_of(begin + size, unit, bits) - first)
        stats[OPS] += 1
        if stats[HOST_PAGES] + stats[GC_PAGES] >= page_limit:
            return i + 1, STOPPED
    return stop, STOPPED


def line_states(st: DriveState) -> dict[str, int]:
    """How many lines are open, free, full or waiting as victims."""
    closed = st.kind == CLOSED
    full = int(np.count_nonzero(closed & (st.pages.valid == st.geometry[P])))
    return {
        "open": int(np.count_nonzero(st.kind == OPEN)),
        "free": int(st.stats[FREE]),
        "full": full,
        "victims": int(np.count_nonzero(closed)) - full,
    }
