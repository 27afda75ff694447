"""The rings as user space reads them: whole records, in order, lap after lap, and how far."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import rings

RECORDS = 128
RINGS = 2
RECORD_BYTES = 64
POSITIONS_BYTES = 128
CONSUMED_AT = 64


class Probe:
    """Writes records to one ring as ``ring.h`` does, each with its number."""

    def __init__(self, ring_fd: int, positions_fd: int, ring: int) -> None:
        self._data = mmap.mmap(ring_fd, RINGS * RECORDS * RECORD_BYTES)
        self._positions = mmap.mmap(positions_fd, mmap.PAGESIZE)
        self._ring = ring

    def reserve(self) -> int:
        """The number of a record that is not whole yet."""
        at = self._ring * POSITIONS_BYTES
        (number,) = struct.unpack_from("<Q", self._positions, at)
        struct.pack_into("<Q", self._positions, at, number + 1)
        return int(number)

    def commit(self, number: int, ts_ns: int | None = None, key: int = 0, turn: int = 0) -> None:
        """Make the record whole; without ``ts_ns`` it is as old as its number says."""
        at = (self._ring * RECORDS + number % RECORDS) * RECORD_BYTES
        age = number if ts_ns is None else ts_ns
        struct.pack_into("<QqQQ", self._data, at, number // RECORDS + 1, age, key, turn)

    @property
    def full(self) -> bool:
        """Whether there is no place left."""
        (number,) = struct.unpack_from("<Q", self._positions, self._ring * POSITIONS_BYTES)
        return bool(number - self.consumed >= RECORDS)

    @property
    def consumed(self) -> int:
        """What the reader gave back."""
        at = self._ring * POSITIONS_BYTES + CONSUMED_AT
        return int(struct.unpack_from("<Q", self._positions, at)[0])


Pair = tuple[Probe, rings.Ring]


@contextmanager
def mapped() -> Iterator[list[Pair]]:
    data, positions = os.memfd_create("ring"), os.memfd_create("positions")
    try:
        os.truncate(data, RINGS * RECORDS * RECORD_BYTES)
        os.truncate(positions, mmap.PAGESIZE)
        readers = rings.map_rings(data, positions, RINGS * RECORDS, RINGS)
        yield [(Probe(data, positions, at), reader) for at, reader in enumerate(readers)]
    finally:
        os.close(data)
        os.close(positions)


def ready(reader: rings.Ring) -> memoryview:
    """All that is finished."""
    return reader.ready(reader.recorded)


def numbers(slots: memoryview) -> list[int]:
    """The numbers that the records carry."""
    return [number for _, number in struct.iter_unpack("<QQ48x", slots)]


def test_nothing_is_ready_before_the_first_record() -> None:
    with mapped() as ((probe, reader), _):
        assert not ready(reader)
        probe.reserve()
        assert not ready(reader) and reader.recorded == 1


def test_a_record_that_is_not_whole_holds_up_those_behind_it_in_its_ring() -> None:
    with mapped() as ((probe, reader), (other, other_reader)):
        first, second, third = (probe.reserve() for _ in range(3))
        probe.commit(first)
        probe.commit(third)
        other.commit(other.reserve())
        assert numbers(ready(reader)) == [0]
        assert numbers(ready(other_reader)) == [0]
        probe.commit(second)
        assert numbers(ready(reader)) == [0, 1, 2]


def test_every_record_is_read_once_over_more_laps_than_a_byte_counts() -> None:
    with mapped() as pairs:
        seen: list[list[int]] = [[] for _ in pairs]
        for turn in range(300 * RECORDS // 48):
            for (probe, reader), mine in zip(pairs, seen, strict=True):
                for _ in range(48 - 16 * (turn % 2)):
                    probe.commit(probe.reserve())
                while slots := ready(reader):
                    mine += numbers(slots)
                    reader.release(slots)
        for (probe, reader), mine in zip(pairs, seen, strict=True):
            assert mine == list(range(300 * RECORDS // 48 * 40))
            assert reader.recorded == reader.forwarded == probe.consumed == len(mine)


def test_a_lap_ends_where_the_next_ring_begins() -> None:
    with mapped() as ((probe, reader), (other, _)):
        other.commit(other.reserve())
        for _ in range(RECORDS):
            probe.commit(probe.reserve())
        slots = ready(reader)
        reader.release(slots[:RECORD_BYTES])
        probe.commit(probe.reserve())
        slots = ready(reader)
        assert numbers(slots) == list(range(1, RECORDS))
        reader.release(slots)
        assert numbers(ready(reader)) == [RECORDS]


def test_what_came_after_a_look_is_left_for_the_next() -> None:
    with mapped() as ((probe, reader), _):
        probe.commit(probe.reserve())
        end = reader.recorded
        probe.commit(probe.reserve())
        assert numbers(reader.ready(end)) == [0]


def test_a_ring_knows_the_time_of_the_last_record_that_it_gave_back() -> None:
    with mapped() as ((probe, reader), (_, other_reader)):
        for _ in range(5):
            probe.commit(probe.reserve())
        reader.release(ready(reader)[: 3 * RECORD_BYTES])
        assert (reader.newest_ns, other_reader.newest_ns) == (2, 0)
