"""Buffers: aligned, on huge pages where the kernel gives them; payloads that prove themselves."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.errors import UsageError
from harness.device.buffers import HUGE_PAGE_BYTES, AlignedPool, PayloadPool

SECTOR = 512
POOL = PayloadPool(3, 1280 << 10, seed=7)
PAGED = PayloadPool(1, 16 * 4096, seed=7, block_bytes=4096)


def test_slots_are_aligned_and_rounded_to_pages() -> None:
    pool = AlignedPool(5, 5000)
    assert pool.slot_bytes == 8192
    assert pool.memory.shape == (5, 8192)
    assert pool.address % HUGE_PAGE_BYTES == 0
    assert pool.memory[3].ctypes.data == pool.address + 3 * 8192
    assert pool.span() == (pool.address, 5 * 8192)


def test_a_pool_without_slots_is_refused() -> None:
    with pytest.raises(UsageError):
        AlignedPool(0, 4096)


def test_content_depends_on_the_seed_alone() -> None:
    assert np.array_equal(POOL.memory, PayloadPool(3, 1280 << 10, seed=7).memory)
    assert not np.array_equal(POOL.memory, PayloadPool(3, 1280 << 10, seed=8).memory)


def test_payload_cannot_be_compressed_or_deduplicated() -> None:
    """Ten writes of 64 KiB from one slot: no 512-byte sector twice, and nothing to squeeze."""
    pool = PayloadPool(1, 64 << 10, seed=1)
    written = bytearray()
    for sequence in range(1, 11):
        pool.stamp(0, sequence << 20, 64 << 10, sequence)
        written += pool.memory[0].tobytes()
        assert len(zlib.compress(pool.memory[0].tobytes(), 9)) > 64 << 10
    sectors = [bytes(written[i : i + SECTOR]) for i in range(0, len(written), SECTOR)]
    assert len(set(sectors)) == len(sectors)


@settings(max_examples=60, deadline=None)
@given(
    slot=st.integers(0, 2),
    lba=st.integers(0, 2**41),
    sectors=st.integers(1, 2560),
    sequence=st.integers(1, 2**63),
)
def test_what_was_written_is_recognised(slot: int, lba: int, sectors: int, sequence: int) -> None:
    POOL.stamp(slot, lba * SECTOR, sectors * SECTOR, sequence)
    data = POOL.memory[slot, : sectors * SECTOR].copy()
    assert POOL.wrong_sectors(data, lba * SECTOR, sequence) == 0
    assert POOL.wrong_sectors(data, lba * SECTOR) == 0
    assert POOL.wrong_sectors(data, (lba + 1) * SECTOR, sequence) == sectors
    assert POOL.wrong_sectors(data, lba * SECTOR, sequence + 1) == sectors


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, 64 * SECTOR - 1), bit=st.integers(0, 7))
def test_any_flipped_bit_is_found(at: int, bit: int) -> None:
    POOL.stamp(1, 4096, 64 * SECTOR, 5)
    data = POOL.memory[1, : 64 * SECTOR].copy()
    data[at] ^= np.uint8(1 << bit)
    assert POOL.wrong_sectors(data, 4096, 5) == 1


def test_zeros_and_foreign_payloads_are_wrong() -> None:
    assert POOL.wrong_sectors(np.zeros(4096, np.uint8), 0) == 8
    other = PayloadPool(1, 4096, seed=8)
    other.stamp(0, 0, 4096, 1)
    assert POOL.wrong_sectors(other.memory[0].copy(), 0) == 8


@settings(max_examples=30, deadline=None)
@given(at=st.integers(0, 16 * 4096 - 1), bit=st.integers(0, 7), lba=st.integers(0, 2**30))
def test_pages_may_carry_the_stamps(at: int, bit: int, lba: int) -> None:
    PAGED.stamp(0, lba * 4096, 16 * 4096, 3)
    data = PAGED.memory[0].copy()
    assert PAGED.wrong_sectors(data, lba * 4096, 3) == 0
    assert PAGED.wrong_sectors(data, lba * 4096 + 4096, 3) == 16 * 8
    data[at] ^= np.uint8(1 << bit)
    assert PAGED.wrong_sectors(data, lba * 4096, 3) == 8


def test_buffers_stay_on_ordinary_pages_where_that_is_asked_for() -> None:
    assert not AlignedPool(4, 2 << 20, huge=False).huge
