"""The probe's rings as user space sees them (ring.h), and how their records are forwarded.

The rings are mapped: their positions read-write, their records read-only. A record is ready when it
has the lap of its place; x86-64 keeps loads in order, which the loader has checked.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable

import frames

_CHUNK_BYTES = 1 << 20
# Words of a ring's struct positions: how many, and which count.
_POSITIONS, _RESERVED, _CONSUMED = 16, 0, 8
_TS_NS = struct.Struct("<8xq48x")  # of a struct record
# The probe's clock and ours are the same, but not while the kernel adjusts it. They differ by less.
_CLOCKS_DIFFER_NS = 1_000_000


class Ring:
    """One of the rings of 64-byte records."""

    def __init__(self, slots: memoryview, positions: memoryview) -> None:
        """``slots`` are bytes; ``positions`` u64, of which two count (``ring.h``)."""
        self._slots = slots
        self._positions = positions
        self.newest_ns = 0
        """The time of the last record that was given back."""

    def ready(self, end: int) -> memoryview:
        """The finished records before number ``end``, at most a chunk, as a view into the ring.

        Empty if the first of them is not finished; fewer than there are where a lap ends.
        """
        lap, start = divmod(self.forwarded * frames.RECORD_BYTES, len(self._slots))
        waiting = (end - self.forwarded) * frames.RECORD_BYTES
        slots = self._slots[start : start + min(waiting, _CHUNK_BYTES)]
        # A lap's lowest byte tells it from the lap before.
        laps = slots[:: frames.RECORD_BYTES].tobytes()
        finished = len(laps) - len(laps.lstrip(bytes([(lap + 1) & 0xFF])))
        return slots[: finished * frames.RECORD_BYTES]

    def release(self, slots: memoryview) -> None:
        """Give what was ``ready`` back to the probe."""
        (self.newest_ns,) = _TS_NS.unpack_from(slots, len(slots) - frames.RECORD_BYTES)
        self._positions[_CONSUMED] += len(slots) // frames.RECORD_BYTES

    @property
    def recorded(self) -> int:
        """Records that the probe has put in so far."""
        return self._positions[_RESERVED]

    @property
    def forwarded(self) -> int:
        """Records that were given back."""
        return self._positions[_CONSUMED]


def map_rings(fd: int, positions_fd: int, records: int, rings: int) -> list[Ring]:
    """The equal parts of an array of ``records``."""
    size = records * frames.RECORD_BYTES
    slots = memoryview(mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ))
    writable = mmap.PROT_READ | mmap.PROT_WRITE
    positions = memoryview(mmap.mmap(positions_fd, mmap.PAGESIZE, mmap.MAP_SHARED, writable))
    part, words = size // rings, positions.cast("Q")
    return [
        Ring(slots[part * i : part * (i + 1)], words[_POSITIONS * i : _POSITIONS * (i + 1)])
        for i in range(rings)
    ]


class Forwarder:
    """Sends what is in the rings, and marks.

    A mark is a time. Whatever is sent after it has no effect, in any ring, that is older: a
    record's program ends before its effect's begins, and the mark is from before that end. So the
    reader may put in order of time what is older than a mark. A record itself may be older than
    a mark sent before it, if its CPU stopped for long between reading the clock and recording.
    """

    def __init__(
        self, rings: list[Ring], sender: frames.Sender, clock_ns: Callable[[], int]
    ) -> None:
        """``clock_ns`` is the clock of the records."""
        self._rings = rings
        self._sender = sender
        self._clock_ns = clock_ns
        self._sent_ns = self._marked_ns = 0

    def forward(self) -> bool:
        """Send a chunk of each ring, and a mark; False if there was no more of what is ready."""
        mark_ns = self._clock_ns()
        ends = [ring.recorded for ring in self._rings]
        more = False
        for ring, end in zip(self._rings, ends, strict=True):
            slots = ring.ready(end)
            if slots:
                self._sender.data(slots)
                ring.release(slots)
                self._sent_ns = self._clock_ns()
                more |= ring.forwarded < end
            if ring.forwarded < end:
                mark_ns = min(mark_ns, ring.newest_ns)
        self._mark(mark_ns - _CLOCKS_DIFFER_NS)
        return more

    def _mark(self, ts_ns: int) -> None:
        """Send a mark, unless all that was sent is older than the last one."""
        if len(self._rings) > 1 and self._marked_ns <= self._sent_ns and self._marked_ns < ts_ns:
            self._sender.mark(ts_ns)
            self._marked_ns = ts_ns
