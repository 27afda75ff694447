"""FEMU's own policy, operation for operation (femu.md section 2).

One write pointer for host and GC data; a write first collects while free lines are at or below
the high threshold; every command of any kind ends with at most one background collection.

Runs of pages that leave one line are subtracted at once. That equals FEMU's page by page
updates: between them nothing else in the heap moves, and sifting up twice by one ends where
sifting up once by two does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from harness.core.ops import Op
from harness.core.profiles import DeviceProfile
from harness.ftl import heap as queue
from harness.ftl.jit import inlined, inner, kernel, prefetch
from harness.ftl.pages import (
    UNMAPPED,
    Pages,
    allocate,
    note,
    note_singles,
    page_of,
    place_bits,
    prefetch_run,
    read_notes,
    remap,
    tag_host,
    unit_bits,
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

OPEN, PLACE, FREE_HEAD, HEAP_SIZE, FULL, FG, BG = range(STATS, STATS + 7)
_WORDS = STATS + 7

P, SHIFT, UNIT, UNIT_BITS, LIMIT, THRESHOLD, THRESHOLD_HIGH, STRIPE, DEPTH, CHANNELS = range(10)
"""Index into ``geometry``: pages a line, place bits, bytes an LPN and their log2,
bytes of the namespace, the two thresholds in lines,
pages of a line in one stripe over all LUNs, stripes a line, channels."""

_WRITE, _DISCARD, _SNAP = int(Op.WRITE), int(Op.DISCARD), int(Op.SNAP)
_AHEAD = 24


class FemuState(NamedTuple):
    """All of an emulated drive's FTL. N lines."""

    pages: Pages
    heap: np.ndarray  # int32[N + 1]
    slot: np.ndarray  # int32[N]
    free: np.ndarray  # int32[N]: ring of free lines
    stats: np.ndarray  # int64: counters and cursors, indexed by the names above
    geometry: np.ndarray  # int64


def create(profile: DeviceProfile, tagged: bool) -> FemuState:
    """A drive as FEMU starts it: line 0 open, all others free in order."""
    lines, per_line = profile.lines, profile.pages_per_line
    stats = np.zeros(_WORDS, np.int64)
    stats[FREE], stats[FREE_HEAD] = lines - 1, 1
    stripe = profile.nchs * profile.luns_per_ch
    return FemuState(
        pages=allocate(profile.namespace_pages, lines, per_line, tagged),
        heap=np.zeros(lines + 1, np.int32),
        slot=np.zeros(lines, np.int32),
        free=np.arange(lines, dtype=np.int32),
        stats=stats,
        geometry=np.array(
            [per_line, place_bits(per_line), profile.lpn_bytes,
             unit_bits(profile.lpn_bytes), profile.namespace_bytes, profile.gc_thres_lines,
             profile.gc_thres_lines_high, stripe, profile.pgs_per_blk, profile.nchs],
            np.int64,
        ),
    )  # fmt: skip


@inlined
def _invalidate(st: FemuState, line: Any, count: int) -> None:
    """``count`` pages of ``line`` lost their last reader."""
    before = st.pages.valid[line]
    st.pages.valid[line] = before - count
    if st.slot[line]:
        queue.sift_up(st.heap, st.slot, st.pages.valid, st.slot[line])
    elif before == st.geometry[P]:
        st.stats[FULL] -= 1
        queue.push(st.heap, st.slot, st.pages.valid, st.stats[HEAP_SIZE], line)
        st.stats[HEAP_SIZE] += 1


@inlined
def _advance(st: FemuState, count: int) -> bool:
    """``count`` pages were programmed; a line that is full closes and the next opens at once.

    False if there is no next line.
    """
    stats = st.stats
    line = stats[OPEN]
    st.pages.valid[line] += count
    stats[PLACE] += count
    if stats[PLACE] < st.geometry[P]:
        return True
    if st.pages.valid[line] == st.geometry[P]:
        stats[FULL] += 1
    else:
        queue.push(st.heap, st.slot, st.pages.valid, stats[HEAP_SIZE], line)
        stats[HEAP_SIZE] += 1
    if stats[FREE] == 0:
        return False
    line = st.free[stats[FREE_HEAD]]
    stats[FREE_HEAD] = (stats[FREE_HEAD] + 1) % len(st.free)
    stats[FREE] -= 1
    stats[OPEN], stats[PLACE] = line, 0
    st.pages.noted[line] = 0
    return True


@inlined
def _program(st: FemuState, lpn: int, n: int, kind: int) -> bool:
    """Host writes of ``n`` pages from ``lpn``; False if lines ran out."""
    pages, stats = st.pages, st.stats
    per_line, shift = st.geometry[P], st.geometry[SHIFT]
    stats[HOST_PAGES] += n
    while n > 0:
        line, place = stats[OPEN], stats[PLACE]
        step = min(n, per_line - place)
        address = (line << shift) + place
        if step == 1:
            old = pages.l2p[lpn]
            pages.l2p[lpn] = address
            if old != pages.const[UNMAPPED]:
                _invalidate(st, np.int64(old >> shift), 1)
        else:
            for run in range(remap(pages, lpn, step, address, shift)):
                _invalidate(st, pages.run_line[run], pages.run_count[run])
        note(pages, line, line * per_line, lpn, step)
        if len(pages.tags):
            tag_host(pages, lpn, step, kind)
        if not _advance(st, step):
            return False
        lpn += step
        n -= step
    return True


@inner
def _trim(st: FemuState, lpn: int, n: int) -> None:
    """Unmap ``n`` pages from ``lpn``, partly covered ones included."""
    pages = st.pages
    while n > 0:
        step = min(n, st.geometry[P])
        for run in range(remap(pages, lpn, step, -1, st.geometry[SHIFT])):
            st.stats[TRIMMED] += pages.run_count[run]
            _invalidate(st, pages.run_line[run], pages.run_count[run])
        lpn += step
        n -= step


@inner
def _still_valid(st: FemuState, place: int, address: int) -> int:
    """LPNs of the valid pages of one block of the victim into ``moved``; returns how many.

    ``place`` is the block's first page in the line. The next block's map entries are asked
    for meanwhile.
    """
    pages, stripe = st.pages, st.geometry[STRIPE]
    last = st.geometry[P] - 1
    count = 0
    for _ in range(st.geometry[DEPTH]):
        prefetch(pages.l2p, np.int64(pages.lpns[min(place + 1, last)]))
        lpn = pages.lpns[place]
        # No branch: half of the guesses would be wrong and stall the loads behind.
        pages.moved[count] = lpn
        count += pages.l2p[lpn] == pages.l2p.dtype.type(address + place)
        place += stripe
    return count


@inlined
def _reprogram(st: FemuState, count: int) -> bool:
    """Program ``moved[:count]`` at the write pointer; False if lines ran out."""
    stats, per_line = st.stats, st.geometry[P]
    done = 0
    while done < count:
        line, place = stats[OPEN], stats[PLACE]
        step = min(count - done, per_line - place)
        address = (line << st.geometry[SHIFT]) + place
        note_singles(st.pages, line, line * per_line, done, step, address)
        stats[GC_PAGES] += step
        if not _advance(st, step):
            return False
        done += step
    return True


@inner
def _collect(st: FemuState, least_invalid: int) -> int:
    """Collect one line. 1 done, 0 no victim with that many invalid pages, -1 out of lines.

    FEMU reads a victim block by block but writes stripe by stripe, so collected data comes out
    permuted.
    """
    pages, stats, geometry = st.pages, st.stats, st.geometry
    per_line, channels = geometry[P], geometry[CHANNELS]
    if stats[HEAP_SIZE] == 0 or per_line - pages.valid[st.heap[1]] < least_invalid:
        return 0
    victim: Any = np.int64(queue.pop(st.heap, st.slot, pages.valid, stats[HEAP_SIZE]))
    stats[HEAP_SIZE] -= 1
    if pages.valid[victim]:
        read_notes(pages, victim, victim * per_line)
        for channel in range(channels):
            for lun in range(geometry[STRIPE] // channels):
                place = channel + lun * channels
                count = _still_valid(st, place, victim << geometry[SHIFT])
                if not _reprogram(st, count):
                    return -1
    pages.valid[victim] = 0
    pages.erases[victim] += 1
    stats[ERASED] += 1
    st.free[(stats[FREE_HEAD] + stats[FREE]) % len(st.free)] = victim
    stats[FREE] += 1
    return 1


@inlined
def _write(st: FemuState, lpn: int, n: int, kind: int) -> bool:
    """One write command: forced collections, then its pages; False if lines ran out."""
    while st.stats[FREE] <= st.geometry[THRESHOLD_HIGH]:
        got = _collect(st, 0)
        if got < 0:
            return False
        if got == 0:
            break
        st.stats[FG] += 1
    return _program(st, lpn, n, kind)


@kernel
def serve(
    st: FemuState,
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

    ``offset``, ``length``: uint64 bytes, inside the namespace; ``op``: uint8 codes of ``Op``;
    ``kind``: uint8
    classes of the data; ``stream`` is not looked at, as FEMU has one write pointer. Stops early
    at a SNAP or a command that cannot be served (index of it), and after ``page_limit``
    programmed pages.
    """
    stats, unit, bits = st.stats, st.geometry[UNIT], st.geometry[UNIT_BITS]
    limit = np.uint64(st.geometry[LIMIT])
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
        if size:
            first = page_of(begin, unit, bits)
            n = page_of(begin + size - 1, unit, bits) - first + 1
            if code == _WRITE:
                stats[HOST_BYTES] += size
                if not _write(st, first, n, kind[i]):
                    return i, NO_FREE_LINES
            elif code == _DISCARD:
                _trim(st, first, n)
        elif code == _WRITE:
            return i, EMPTY_WRITE
        stats[OPS] += 1
        if stats[FREE] <= st.geometry[THRESHOLD]:
            got = _collect(st, st.geometry[P] // 8)
            if got < 0:
                return i, NO_FREE_LINES
            stats[BG] += got
        if stats[HOST_PAGES] + stats[GC_PAGES] >= page_limit:
            return i + 1, STOPPED
    return stop, STOPPED


def line_states(st: FemuState) -> dict[str, int]:
    """How many lines are open, free, full or waiting as victims."""
    return {
        "open": 1,
        "free": int(st.stats[FREE]),
        "full": int(st.stats[FULL]),
        "victims": int(st.stats[HEAP_SIZE]),
    }
