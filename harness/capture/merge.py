"""Merge the records of the probe's rings by time, so that every cause comes before its effect.

Each ring comes in the order in which its places were handed out, whatever the others hold
(``ebpf/ring.h``). A mark of the pump is a time: what comes after it has no effect that is older. So
records are held until there is a younger mark.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from harness.capture.records import SLOT_DTYPE

Slots = npt.NDArray[np.void]

# As much as the rings hold, by default. That much waits only while a CPU stands still inside the
# probe; then the older half goes without a mark.
_MOST_HELD_BYTES = 32 << 20
_EVER_NS, _NEVER_NS = np.iinfo(np.int64).max, np.iinfo(np.int64).min


class Merge:
    """Records on their way; those of a single ring have no marks to wait for.

    ``ready_bytes`` is how much ``take`` may give, at most.
    """

    def __init__(self, rings: int) -> None:
        self._mark_ns = _EVER_NS if rings == 1 else _NEVER_NS
        self._held: list[bytes | bytearray | memoryview] = []
        self._bytes = 0
        self.ready_bytes = 0

    def add(self, payload: bytes | bytearray) -> None:
        """Take records of one ring, which follow those that it had before."""
        self._held.append(payload)
        self._bytes += len(payload)
        if self._mark_ns == _EVER_NS or self._bytes > _MOST_HELD_BYTES:
            self.ready_bytes = self._bytes

    def mark(self, ts_ns: int) -> None:
        """Whatever is added from now on has no effect that is older than ``ts_ns``."""
        self._mark_ns = ts_ns
        self.ready_bytes = self._bytes

    def take(self) -> Slots:
        """What is older than the mark, as SLOT_DTYPE in order of time."""
        slots, ts_ns = self._sorted()
        ready = int(np.searchsorted(ts_ns, self._mark_ns))
        if self._bytes > _MOST_HELD_BYTES:
            ready = max(ready, len(slots) // 2)
        left = slots[ready:]
        self._held, self._bytes = [left.data] if len(left) else [], left.nbytes
        self.ready_bytes = 0
        return slots[:ready]

    def rest(self) -> Slots:
        """All that is held, where nothing follows."""
        self._mark_ns = _EVER_NS
        return self.take()

    def _sorted(self) -> tuple[Slots, npt.NDArray[np.int64]]:
        """All that is held, and its times."""
        whole = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        slots = np.frombuffer(whole, SLOT_DTYPE)
        ts_ns = np.ascontiguousarray(slots["ts_ns"])
        if (ts_ns[1:] < ts_ns[:-1]).any():
            order = np.argsort(ts_ns, kind="stable")
            slots, ts_ns = slots.take(order), ts_ns.take(order)
        return slots, ts_ns
