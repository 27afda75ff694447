"""The ring as user space reads it: whole records, in order, lap after lap."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pump

RECORDS = 128
RECORD_BYTES = 64


class Probe:
    """Writes records as ``ring.h`` does, each with its number."""

    def __init__(self, ring_fd: int, positions_fd: int) -> None:
        self._data = mmap.mmap(ring_fd, RECORDS * RECORD_BYTES)
        self._positions = mmap.mmap(positions_fd, mmap.PAGESIZE)

    def reserve(self) -> int:
        """The number of a record that is not whole yet."""
        (number,) = struct.unpack_from("<Q", self._positions)
        struct.pack_into("<Q", self._positions, 0, number + 1)
        return int(number)

    def commit(self, number: int) -> None:
        """Make the record whole."""
        at = number % RECORDS * RECORD_BYTES
        struct.pack_into("<QQ", self._data, at, number // RECORDS + 1, number)


@contextmanager
def ring() -> Iterator[tuple[Probe, pump.Ring]]:
    data, positions = os.memfd_create("ring"), os.memfd_create("positions")
    try:
        os.truncate(data, RECORDS * RECORD_BYTES)
        os.truncate(positions, mmap.PAGESIZE)
        yield Probe(data, positions), pump.Ring(data, positions, RECORDS)
    finally:
        os.close(data)
        os.close(positions)


def numbers(slots: memoryview) -> list[int]:
    """The numbers that the records carry."""
    return [number for _, number in struct.iter_unpack("<QQ48x", slots)]


def test_nothing_is_ready_before_the_first_record() -> None:
    with ring() as (probe, reader):
        assert not reader.ready()
        probe.reserve()
        assert not reader.ready() and reader.recorded == 1


def test_a_record_that_is_not_whole_holds_up_those_behind_it() -> None:
    with ring() as (probe, reader):
        first, second, third = (probe.reserve() for _ in range(3))
        probe.commit(first)
        probe.commit(third)
        assert numbers(reader.ready()) == [0]
        probe.commit(second)
        assert numbers(reader.ready()) == [0, 1, 2]


def test_every_record_is_read_once_over_more_laps_than_a_byte_counts() -> None:
    with ring() as (probe, reader):
        seen: list[int] = []
        for _ in range(300 * RECORDS // 48):
            for _ in range(48):
                probe.commit(probe.reserve())
            while slots := reader.ready():
                seen += numbers(slots)
                reader.release(len(slots))
        assert seen == list(range(len(seen))) and len(seen) == 300 * RECORDS // 48 * 48
        assert reader.recorded == reader.forwarded == len(seen)


def test_what_goes_on_at_the_start_of_a_lap_is_said_so() -> None:
    with ring() as (probe, reader):
        for _ in range(RECORDS):
            probe.commit(probe.reserve())
        reader.release(RECORD_BYTES)
        probe.commit(probe.reserve())
        slots = reader.ready()
        assert numbers(slots) == list(range(1, RECORDS)) and not reader.at_start
        reader.release(len(slots))
        assert reader.at_start and numbers(reader.ready()) == [RECORDS]
