"""Where a file system puts files: a bitmap of pages, groups, and a pointer that walks the device.

A model of ext4's allocator for large files (mballoc's stream allocation): the search goes on where
the last one ended, takes the first group with a free run that holds the whole file, and only if no
group has one cuts the file into the largest runs. Groups are 128 MiB; the first of every 16 begins
with the flex group's inode tables and bitmaps, and the first of all with the journal too. Measured
on the real thing: a cap of 5 GiB touched 7,552 of 8,192 MiB, and 34 of 40 files had one extent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.core.ops import PAGE_BYTES
from harness.stores.jit import inner_kernel, kernel

GROUP_PAGES = 32768
_WORDS = GROUP_PAGES // 64
_FLEX_GROUPS = 16
_FLEX_PAGES = (32 << 20) // PAGE_BYTES + 2 * _FLEX_GROUPS
_JOURNAL_SHARE = 64
_JOURNAL_MOST = (1 << 30) // PAGE_BYTES
_GROUP, _PAGE, _FREE = 0, 1, 2
_FULL = np.uint64(0xFFFFFFFFFFFFFFFF)
_ONE = np.uint64(1)


class FileSpace(NamedTuple):
    """``bits`` uint64[groups, 512]: page used. ``longest`` int64[groups]: no free run is longer.
    ``ints``: group and page where the next search begins, pages free."""

    bits: NDArray[np.uint64]
    longest: NDArray[np.int64]
    ints: NDArray[np.int64]


def new_space(capacity_bytes: int) -> FileSpace:
    """An empty file system on a device; its own structures are taken."""
    total = capacity_bytes // PAGE_BYTES
    groups = -(-total // GROUP_PAGES)
    space = FileSpace(
        np.zeros((groups, _WORDS), np.uint64),
        np.full(groups, GROUP_PAGES, np.int64),
        np.array([0, 0, groups * GROUP_PAGES], np.int64),
    )
    for group in range(0, groups, _FLEX_GROUPS):
        share = min(_FLEX_GROUPS, groups - group) / _FLEX_GROUPS
        mark_pages(space, group * GROUP_PAGES, int(_FLEX_PAGES * share), True)
    journal = min(total // _JOURNAL_SHARE, _JOURNAL_MOST, GROUP_PAGES // 2)
    mark_pages(space, int(_FLEX_PAGES), journal, True)
    mark_pages(space, total, groups * GROUP_PAGES - total, True)
    return space


@kernel
def mark_pages(space: FileSpace, start: int, count: int, used: bool) -> None:
    """Mark pages used or free; all of them must be the other so far."""
    end = start + count
    at = start
    flat = space.bits.reshape(-1)
    while at < end:
        bit = at & 63
        length = min(64 - bit, end - at)
        word = _FULL if length == 64 else ((_ONE << np.uint64(length)) - _ONE) << np.uint64(bit)
        flat[at >> 6] ^= word
        at += length
    space.ints[_FREE] += -count if used else count
    if not used:
        for group in range(start // GROUP_PAGES, (end - 1) // GROUP_PAGES + 1):
            space.longest[group] = GROUP_PAGES


@inner_kernel
def _find(words: NDArray[np.uint64], begin: int, need: int) -> tuple[int, int]:
    """First free run of ``need`` pages from ``begin`` on, else the longest: (page, length)."""
    best, best_length = -1, 0
    run_start, run = begin, 0
    at = begin
    while at < GROUP_PAGES:
        word = words[at >> 6]
        if (at & 63) == 0 and (word == np.uint64(0) or word == _FULL):
            step, free = 64, word == np.uint64(0)
        else:
            step, free = 1, (word >> np.uint64(at & 63)) & _ONE == np.uint64(0)
        if free:
            if run == 0:
                run_start = at
            run += step
            if run >= need:
                return run_start, need
        else:
            if run > best_length:
                best, best_length = run_start, run
            run = 0
        at += step
    if run > best_length:
        best, best_length = run_start, run
    return best, best_length


@kernel
def take_run(space: FileSpace, need: int) -> tuple[int, int]:
    """Take up to ``need`` pages in one run: (page, pages); (-1, 0) when all are used.

    A whole run wherever one is; else the longest that the walk meets.
    """
    groups = len(space.longest)
    best_group, best_page, best_length = -1, -1, 0
    for step in range(groups + 1):
        group = (space.ints[_GROUP] + step) % groups
        begin = space.ints[_PAGE] if step == 0 else 0
        most = space.longest[group]
        if most < need and most <= best_length:
            continue
        page, length = _find(space.bits[group], begin, min(need, GROUP_PAGES))
        if length >= min(need, GROUP_PAGES):
            best_group, best_page, best_length = group, page, length
            break
        if begin == 0:
            space.longest[group] = length
        if length > best_length:
            best_group, best_page, best_length = group, page, length
    if best_length == 0:
        return -1, 0
    start = best_group * GROUP_PAGES + best_page
    mark_pages(space, start, best_length, True)
    space.ints[_GROUP], space.ints[_PAGE] = best_group, best_page + best_length
    if space.ints[_PAGE] >= GROUP_PAGES:
        space.ints[_GROUP], space.ints[_PAGE] = (best_group + 1) % groups, 0
    return start, best_length
