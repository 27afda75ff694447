"""The page tables that every policy shares, and the few loops that touch them.

``l2p[lpn]`` is a physical address ``line << shift | place`` or all ones for "unmapped".

The reverse map is lazy. Each line has ``pages_per_line`` words in ``p2l`` and notes there what
was programmed, in order: a single page is one word, its LPN; ``n >= 2`` consecutive LPNs are
two words, ``flag | first`` and ``n``, so it always fits. Nothing is ever erased from it: a
page is valid where the map still points at it. Overwriting therefore touches one table, and a
32 MiB extent costs two words of reverse map.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from harness.ftl.jit import inlined, inner, prefetch

NARROW_BELOW = 1 << 31
"""Addresses and LPNs below this fit 32-bit words with a bit to spare: 8 TiB of 4 KiB pages."""

BLOCK = 64
"""Pages looked at together; a block whose old pages share one line costs one update."""


_CACHE_LINE = 16
"""Entries of 4 bytes in one."""


class Pages(NamedTuple):
    """Tables of one drive; N lines of P pages, L logical pages.

    ``word`` is uint32 where addresses and flagged LPNs fit, else uint64.
    """

    l2p: np.ndarray  # word[L]
    p2l: np.ndarray  # word[N * P]
    const: np.ndarray  # word[2]: UNMAPPED, FLAG
    noted: np.ndarray  # int32[N]: words of p2l in use
    valid: np.ndarray  # int32[N]: pages the map points at
    erases: np.ndarray  # int64[N]
    run_line: np.ndarray  # int32[P]: scratch
    run_count: np.ndarray  # int32[P]: scratch
    lpns: np.ndarray  # word[P]: scratch
    moved: np.ndarray  # word[P]: scratch
    tags: np.ndarray  # uint8[L]: class of the data; empty where classes are not kept
    tally: np.ndarray  # int64[2, 256]: pages programmed for the host and by GC, by class


UNMAPPED, FLAG = 0, 1


def allocate(logical_pages: int, lines: int, pages_per_line: int, tagged: bool) -> Pages:
    """Empty tables: nothing mapped. 4 bytes a page each way up to 2^31 pages, else 8.

    ``tagged`` keeps the class of each logical page, one byte more.
    """
    word = _word(logical_pages, lines, pages_per_line)
    bits = np.iinfo(word).bits
    return Pages(
        l2p=np.full(logical_pages, np.iinfo(word).max, word),
        p2l=np.empty(lines * pages_per_line, word),
        const=np.array([np.iinfo(word).max, 1 << (bits - 1)], word),
        noted=np.zeros(lines, np.int32),
        valid=np.zeros(lines, np.int32),
        erases=np.zeros(lines, np.int64),
        run_line=np.zeros(pages_per_line, np.int32),
        run_count=np.zeros(pages_per_line, np.int32),
        lpns=np.zeros(pages_per_line, word),
        moved=np.zeros(pages_per_line, word),
        tags=np.zeros(logical_pages if tagged else 0, np.uint8),
        tally=np.zeros((2, 256), np.int64),
    )


def _word(logical_pages: int, lines: int, pages_per_line: int) -> type[np.uint32] | type[np.uint64]:
    largest = max(lines << place_bits(pages_per_line), logical_pages)
    return np.uint32 if largest < NARROW_BELOW else np.uint64


def table_bytes(logical_pages: int, lines: int, pages_per_line: int, tagged: bool) -> int:
    """Memory that ``allocate`` will take, in bytes."""
    width = np.dtype(_word(logical_pages, lines, pages_per_line)).itemsize
    words = logical_pages + lines * pages_per_line + 2 * pages_per_line
    return width * words + 16 * lines + (logical_pages if tagged else 0)


def place_bits(pages_per_line: int) -> int:
    """Bits of a physical address that say where in its line a page is."""
    return max(1, (pages_per_line - 1).bit_length())


@inlined
def page_of(byte: Any, unit: int, unit_bits: int) -> Any:
    """``byte // unit``; a shift where ``unit`` is 2 to the ``unit_bits`` (-1: it is not)."""
    return byte >> unit_bits if unit_bits >= 0 else byte // unit


def unit_bits(unit: int) -> int:
    """The third argument of ``page_of``."""
    return unit.bit_length() - 1 if unit & (unit - 1) == 0 else -1


@inner
def remap(pages: Pages, lpn: int, n: int, address: int, shift: int) -> int:
    """Point ``n`` pages from ``lpn`` at ``address`` onwards.

    Leaves in ``run_line``/``run_count`` which lines lost how many pages, in order, joined while
    the line stays the same; returns how many such runs.
    """
    unmapped = pages.const[UNMAPPED]
    line: Any = np.int64(-1)
    count, runs = 0, 0
    start = 0
    while start < n:
        size = min(BLOCK, n - start)
        block = pages.l2p[lpn + start : lpn + start + size]
        low, high = block[0], block[0]
        for i in range(size):
            low = min(low, block[i])
            high = max(high, block[i])
        if low != unmapped:
            if (low >> shift) == (high >> shift):
                now: Any = np.int64(low >> shift)
                if now == line:
                    count += size
                else:
                    if count:
                        pages.run_line[runs], pages.run_count[runs] = line, count
                        runs += 1
                    line, count = now, size
            else:
                for i in range(size):
                    if block[i] == unmapped:
                        continue
                    now = np.int64(block[i] >> shift)
                    if now == line:
                        count += 1
                    else:
                        if count:
                            pages.run_line[runs], pages.run_count[runs] = line, count
                            runs += 1
                        line, count = now, 1
        fill(block, address, start)
        start += size
    if count:
        pages.run_line[runs], pages.run_count[runs] = line, count
        runs += 1
    return runs


@inlined
def prefetch_run(pages: Pages, lpn: Any, n: Any) -> None:
    """Ask for the map entries of ``n`` pages from ``lpn``, of the first ``BLOCK`` at most.

    The processor sees by itself that a longer run goes on.
    """
    prefetch(pages.l2p, lpn)
    for step in range(_CACHE_LINE, min(n, BLOCK), _CACHE_LINE):
        prefetch(pages.l2p, lpn + step)


@inlined
def fill(block: np.ndarray, address: int, start: int) -> None:
    """Consecutive addresses into ``block``; a negative ``address`` unmaps."""
    if address < 0:
        for i in range(len(block)):
            block[i] = ~block.dtype.type(0)
        return
    first = address + start
    for i in range(len(block)):
        block[i] = first + i


@inlined
def note(pages: Pages, line: int, base: int, lpn: int, n: int) -> None:
    """Append ``n`` consecutive LPNs to the notes of ``line``, whose words start at ``base``."""
    at = base + pages.noted[line]
    if n == 1:
        pages.p2l[at] = lpn
        pages.noted[line] += 1
    else:
        pages.p2l[at] = pages.const[FLAG] | pages.p2l.dtype.type(lpn)
        pages.p2l[at + 1] = n
        pages.noted[line] += 2


@inlined
def tag_host(pages: Pages, lpn: int, n: int, kind: int) -> None:
    """Remember that ``n`` pages from ``lpn`` now hold data of class ``kind``."""
    pages.tally[0, kind] += n
    for i in range(lpn, lpn + n):
        pages.tags[i] = kind


@inlined
def count_moved(pages: Pages, lpn: int, n: int) -> None:
    """Count pages that GC moved by their class."""
    for i in range(lpn, lpn + n):
        pages.tally[1, pages.tags[i]] += 1


@inlined
def note_singles(pages: Pages, line: int, base: int, start: int, n: int, address: int) -> None:
    """Point LPNs ``moved[start:start+n]`` at ``address`` onwards and note them for ``line``."""
    at = base + pages.noted[line]
    for i in range(n):
        lpn = pages.moved[start + i]
        pages.l2p[lpn] = address + i
        pages.p2l[at + i] = lpn
    pages.noted[line] += n
    if len(pages.tags):
        for i in range(start, start + n):
            pages.tally[1, pages.tags[pages.moved[i]]] += 1


@inner
def read_notes(pages: Pages, line: int, base: int) -> int:
    """Expand the notes of ``line`` into ``lpns``, one a page; returns how many pages."""
    flag = pages.const[FLAG]
    lpns = pages.lpns
    at, end = base, base + pages.noted[line]
    place: Any = 0
    while at < end:
        word = pages.p2l[at]
        if word & flag:
            first, n = np.int64(word ^ flag), np.int64(pages.p2l[at + 1])
            for i in range(n):
                lpns[place + i] = first + i
            place += n
            at += 2
        else:
            lpns[place] = word
            place += 1
            at += 1
    return place


@inner
def valid_stretch(pages: Pages, lpn: int, n: int, address: int) -> int:
    """How many of ``n`` pages from ``lpn`` in a row are still at ``address`` onwards.

    Negative where the first ones are not: minus the length of that stretch.
    """
    l2p, done = pages.l2p, 0
    word = l2p.dtype.type
    good = l2p[lpn] == word(address)
    while done + BLOCK <= n:
        same, first = 0, address + done
        block = l2p[lpn + done : lpn + done + BLOCK]
        for i in range(BLOCK):
            same += block[i] == word(first + i)
        if same != (BLOCK if good else 0):
            break
        done += BLOCK
    while done < n and (l2p[lpn + done] == word(address + done)) == good:
        done += 1
    return done if good else -done
