"""Which 4 KiB pages of a device were touched: bit maps in chunks made on demand.

A chunk covers 512 MiB with 16 KiB of bits, so memory grows with the address space touched
(32 MiB per terabyte and map), not with the trace.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from harness.core.ops import PAGE_BYTES
from harness.trace.jit import kernel

CHUNK_PAGES = 1 << 17
WORDS = CHUNK_PAGES // 64
_ALL = np.uint64(2**64 - 1)

I64 = npt.NDArray[np.int64]


def outer_pages(start: npt.NDArray[np.uint64], size: npt.NDArray[np.uint64]) -> tuple[I64, I64]:
    """Pages [first, end) that byte extents touch (``size`` > 0)."""
    page = np.uint64(PAGE_BYTES)
    end = (start + size + (page - np.uint64(1))) // page
    return (start // page).astype(np.int64), end.astype(np.int64)


def inner_pages(start: npt.NDArray[np.uint64], size: npt.NDArray[np.uint64]) -> tuple[I64, I64]:
    """Pages [first, end) that byte extents cover entirely; end <= first where there is none."""
    page = np.uint64(PAGE_BYTES)
    first = (start + (page - np.uint64(1))) // page
    return first.astype(np.int64), ((start + size) // page).astype(np.int64)


def chunk_parts(first: I64, end: I64) -> tuple[I64, I64, I64, I64]:
    """Page extents cut at chunks: (row of each part, chunk, low page in it, high page)."""
    chunk = first // CHUNK_PAGES
    parts = (end - 1) // CHUNK_PAGES - chunk + 1
    row = np.repeat(np.arange(len(first)), parts)
    number = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts) + chunk[row]
    low = np.maximum(first[row], number * CHUNK_PAGES) - number * CHUNK_PAGES
    high = np.minimum(end[row], (number + 1) * CHUNK_PAGES) - number * CHUNK_PAGES
    return row, number, low, high


class ChunkIndex:
    """Numbers the chunks that have bits, in order of appearance."""

    def __init__(self) -> None:
        self.slots: dict[tuple[int, int], int] = {}

    def find(
        self, dev: npt.NDArray[np.uint32], chunk: I64, create: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int64]:
        """Number of each (device, chunk); -1 where there is none and ``create`` never asks."""
        key = dev.astype(np.uint64) << np.uint64(32) | chunk.astype(np.uint64)
        distinct, index = np.unique(key, return_inverse=True)
        wanted = np.zeros(len(distinct), bool)
        wanted[index[create]] = True
        found = np.full(len(distinct), -1, np.int64)
        for position, value in enumerate(distinct.tolist()):
            name = (value >> 32, value & 0xFFFFFFFF)
            if wanted[position]:
                found[position] = self.slots.setdefault(name, len(self.slots))
            else:
                found[position] = self.slots.get(name, -1)
        return found[index]

    def grown(self, bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """``bits`` (slot, word) with rows for every slot."""
        missing = len(self.slots) - len(bits)
        if missing <= 0:
            return bits
        more = max(missing, len(bits), 4)
        return np.vstack([bits, np.zeros((more, WORDS), np.uint64)])


def no_bits() -> npt.NDArray[np.uint64]:
    """An empty map, for ``ChunkIndex.grown``."""
    return np.zeros((0, WORDS), np.uint64)


class Footprint:
    """The set of touched pages of one or more devices."""

    def __init__(self) -> None:
        self._index = ChunkIndex()
        self._bits = no_bits()
        self._counted = np.zeros(1, np.int64)

    @property
    def pages(self) -> int:
        """Distinct pages touched."""
        return int(self._counted[0])

    def add(self, dev: npt.NDArray[np.uint32], first: I64, end: I64) -> None:
        """Touch pages [first, end) of ``dev`` (end > first)."""
        row, chunk, low, high = chunk_parts(first, end)
        slot = self._index.find(dev[row], chunk, np.ones(len(row), bool))
        self._bits = self._index.grown(self._bits)
        _touch(slot, low, high, self._bits, self._counted)

    def ranker(self) -> Ranker:
        """Numbers the touched pages of the only device from 0, in address order."""
        devices = {dev for dev, _ in self._index.slots}
        assert len(devices) <= 1
        order = sorted((chunk, slot) for (_, chunk), slot in self._index.slots.items())
        chunks = np.array([chunk for chunk, _ in order], np.int64)
        bits = self._bits[np.array([slot for _, slot in order], np.int64)]
        return Ranker(chunks, bits)


class Ranker:
    """Dense numbers of touched pages, in address order."""

    def __init__(self, chunks: I64, bits: npt.NDArray[np.uint64]) -> None:
        self._chunks = chunks
        self._bits = bits
        counts = np.bitwise_count(bits).astype(np.int64).reshape(-1)
        self._before = np.cumsum(counts) - counts

    def rank(self, page: I64) -> I64:
        """How many touched pages lie below each touched ``page``."""
        chunk = np.searchsorted(self._chunks, page // CHUNK_PAGES)
        within = page % CHUNK_PAGES
        word = within // 64
        below = (np.uint64(1) << (within % 64).astype(np.uint64)) - np.uint64(1)
        partial = np.bitwise_count(self._bits[chunk, word] & below).astype(np.int64)
        return np.asarray(self._before[chunk * WORDS + word] + partial, np.int64)


@kernel
def bits_set(word: Any) -> Any:
    """How many bits of a uint64 are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def page_mask(word: int, low: int, high: int) -> Any:
    """Bits of pages [low, high) that fall in 64-page word ``word``."""
    begin, end = max(low - word * 64, 0), min(high - word * 64, 64)
    mask = _ALL << np.uint64(begin)
    if end < 64:
        mask &= (np.uint64(1) << np.uint64(end)) - np.uint64(1)
    return mask


@kernel
def _touch(slot: Any, low: Any, high: Any, bits: Any, counted: Any) -> None:
    for i in range(len(slot)):
        for word in range(low[i] // 64, (high[i] - 1) // 64 + 1):
            mask = page_mask(word, low[i], high[i])
            counted[0] += bits_set(~bits[slot[i], word] & mask)
            bits[slot[i], word] |= mask
