"""Memory for direct I/O, and payloads that a drive can neither compress nor deduplicate.

Every block of a payload (a sector, or a page where that is enough) begins with a stamp — whose it
is, which sector it was written to, by which write, and which random bytes follow — so that any
block read back tells whether it is the one that was asked for, and whether every byte survived.
"""

from __future__ import annotations

import contextlib
import mmap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import MachineError, UsageError
from harness.core.jit import kernels
from harness.core.ops import PAGE_BYTES, SECTOR_BYTES
from harness.core.units import format_size

_kernel = kernels("device/buffers.py", "core/ops.py")

HUGE_PAGE_BYTES = 2 << 20
_MADV_HUGEPAGE, _MADV_NOHUGEPAGE, _MADV_COLLAPSE = 14, 15, 25

STAMP_WORDS = 3
"""Stamp of a block, uint64 each: LBA, sequence, origin in the pool; each looks like noise."""

_SECTOR_WORDS = SECTOR_BYTES // 8


class AlignedPool:
    """``slots`` buffers of ``slot_bytes`` in one piece of memory, on huge pages when possible.

    ``huge=False`` keeps them on ordinary pages.

    Ordinary pages are scattered in memory, so a large request needs a segment a page and is
    split by the block layer; on huge pages it stays whole.

    Attributes
    ----------
    memory : ndarray[uint8], shape (slots, slot_bytes)
    address
        Of slot 0; slot i is ``i * slot_bytes`` further.
    slot_bytes
        As asked, rounded up to whole pages.
    huge
        Whether all of it lies on huge pages.

    Raises
    ------
    MachineError
        There is not that much memory.
    """

    def __init__(self, slots: int, slot_bytes: int, *, huge: bool = True) -> None:
        if slots < 1 or slot_bytes < 1:
            raise UsageError(f"a pool needs slots of some size: {slots} of {slot_bytes} bytes")
        self.slots = slots
        self.slot_bytes = -(-slot_bytes // PAGE_BYTES) * PAGE_BYTES
        size = -(-slots * self.slot_bytes // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        try:
            # Anonymous memory starts on an ordinary page: take one huge page more and align.
            self._map = mmap.mmap(-1, size + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE)
        except OSError as error:
            raise MachineError(f"no memory for buffers of {format_size(size)}") from error
        whole = np.frombuffer(self._map, np.uint8)
        skip = -whole.ctypes.data % HUGE_PAGE_BYTES
        with contextlib.suppress(OSError, ValueError):
            self._map.madvise(_MADV_HUGEPAGE if huge else _MADV_NOHUGEPAGE, skip, size)
        whole[skip : skip + size : PAGE_BYTES] = 0  # touch: pages must exist before they are timed
        if huge:
            with contextlib.suppress(OSError, ValueError):
                self._map.madvise(_MADV_COLLAPSE, skip, size)
        self.address = whole.ctypes.data + skip
        self.size_bytes = size
        self.huge = _huge_bytes(self.address) >= size
        used = slots * self.slot_bytes
        self.memory = whole[skip : skip + used].reshape(slots, self.slot_bytes)

    @property
    def words(self) -> NDArray[np.uint64]:
        """The memory as uint64, shape (slots * slot_bytes / 8,)."""
        return self.memory.reshape(-1).view(np.uint64)

    def span(self) -> tuple[int, int]:
        """(address, bytes) of the whole pool, for ``Ring.register_buffers``."""
        return self.address, self.slots * self.slot_bytes


class PayloadPool(AlignedPool):
    """Buffers to write from: random content that depends on ``seed`` alone, stamped for use.

    The content of a slot stays as it is for the life of the pool, its stamps aside, so a sector
    read back can be compared with its origin to the last byte. The same arguments make the same
    pool in another process. Do not read into it.

    ``block_bytes`` is what carries a stamp: 512, or 4096 where every request is aligned to pages,
    which touches an eighth of the memory.
    """

    def __init__(
        self, slots: int, slot_bytes: int, seed: int, *, block_bytes: int = SECTOR_BYTES,
        huge: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(slots, slot_bytes, huge=huge)
        self.seed = seed
        self.block_bytes = block_bytes
        generator = np.random.Generator(np.random.SFC64(seed))
        for slot in self.memory:
            slot.view(np.uint64)[:] = generator.integers(
                0, 2**64, self.slot_bytes // 8, dtype=np.uint64
            )
        self.tag = np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])

    def stamp(self, slot: int, offset_bytes: int, size_bytes: int, sequence: int) -> None:
        """Mark the first ``size_bytes`` of ``slot`` as write ``sequence`` to ``offset_bytes``."""
        stamp_blocks(
            self.words, slot * self.slot_bytes, offset_bytes, size_bytes, np.uint64(sequence),
            self.tag, self.block_bytes,
        )  # fmt: skip

    def wrong_sectors(
        self, data: NDArray[np.uint8], offset_bytes: int, sequence: int | None = None
    ) -> int:
        """How many sectors of ``data``, read at ``offset_bytes``, are not what was written there.

        ``data`` is contiguous and whole blocks long; a block counts with all of its sectors.
        With ``sequence`` they must also come from that very write; without, from any write of
        this pool to that place.
        """
        expected = np.uint64(sequence or 0)
        words = data.reshape(-1).view(np.uint64)
        wrong = count_wrong(
            words, offset_bytes, data.size, expected, self.tag, self.words, self.block_bytes
        )
        return int(wrong) * (self.block_bytes // SECTOR_BYTES)


@_kernel
def _mix(value: np.uint64) -> np.uint64:
    """splitmix64's finisher: neighbouring LBAs and sequences become unlike words."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@_kernel
def stamp_blocks(
    words: NDArray[np.uint64],
    start_bytes: int,
    offset_bytes: int,
    size_bytes: int,
    sequence: np.uint64,
    tag: np.uint64,
    block_bytes: int,
) -> None:
    """Stamp the blocks of ``words`` (a payload pool) from ``start_bytes`` on, for a write."""
    for at in range(0, size_bytes, block_bytes):
        word = (start_bytes + at) // 8
        mask = _mix(tag ^ np.uint64((offset_bytes + at) // SECTOR_BYTES))
        words[word] = mask
        words[word + 1] = sequence ^ _mix(mask)
        words[word + 2] = np.uint64((start_bytes + at) // SECTOR_BYTES) ^ _mix(~mask)


@_kernel
def block_sequence(
    words: NDArray[np.uint64],
    at: int,
    lba: int,
    tag: np.uint64,
    origin: NDArray[np.uint64],
    block_bytes: int,
) -> np.uint64:
    """Which write the block at word ``at`` of ``words`` comes from; 0 if it is not whole.

    ``origin`` is the payload pool's memory. Sequences start at 1.
    """
    mask = _mix(tag ^ np.uint64(lba))
    if words[at] != mask:
        return np.uint64(0)
    source_sector = words[at + 2] ^ _mix(~mask)
    block_words = block_bytes // 8
    if source_sector > np.uint64((origin.size - block_words) // _SECTOR_WORDS):
        return np.uint64(0)
    source = np.int64(source_sector) * _SECTOR_WORDS
    difference = np.uint64(0)
    for word in range(STAMP_WORDS, block_words):
        difference |= words[at + word] ^ origin[source + word]
    if difference != np.uint64(0):
        return np.uint64(0)
    return words[at + 1] ^ _mix(mask)


@_kernel
def count_wrong(
    words: NDArray[np.uint64],
    offset_bytes: int,
    size_bytes: int,
    expected: np.uint64,
    tag: np.uint64,
    origin: NDArray[np.uint64],
    block_bytes: int,
) -> int:
    """Blocks of ``words`` that are not whole or, unless ``expected`` is 0, of another write."""
    wrong = 0
    for at in range(0, size_bytes, block_bytes):
        lba = (offset_bytes + at) // SECTOR_BYTES
        found = block_sequence(words, at // 8, lba, tag, origin, block_bytes)
        if found == np.uint64(0) or (expected != np.uint64(0) and found != expected):
            wrong += 1
    return wrong


def _huge_bytes(address: int) -> int:
    """Bytes on huge pages in the mapping that holds ``address`` (``/proc/self/smaps``)."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split(maxsplit=1)[0]
        if "-" in head and ":" not in head:
            low, high = (int(part, 16) for part in head.split("-"))
            inside = low <= address < high
        elif inside and head == "AnonHugePages:":
            total += int(line.split()[1]) * 1024
    return total
