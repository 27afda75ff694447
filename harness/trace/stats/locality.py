"""Sequentiality and jump distances.

A request is sequential when it starts exactly where the previous one of the same operation and
device ended; against several streams, when it starts where one of the last eight streams of
that operation and device stands (interleaved writers look random one by one).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.core.ops import Op
from harness.trace.jit import kernel
from harness.trace.stats.histogram import LogHistogram
from harness.trace.stats.view import OP_NAMES, View

STREAMS = 8
_NONE = np.uint64(2**64 - 1)
_OPS = (Op.READ, Op.WRITE)


class Locality:
    """Reads and writes each on their own, each device on its own."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._ends = np.zeros((0, STREAMS), np.uint64)
        self._ages = np.zeros((0, STREAMS), np.int64)
        self._clock = 0
        self._per_op = {op: _Jumps() for op in _OPS}

    def add(self, view: View) -> None:
        """Add a batch."""
        chosen = view.where((view.op <= Op.WRITE) & (view.size > 0))
        if len(chosen) == 0:
            return
        key = chosen.dev.astype(np.int64) * 2 + chosen.op
        slot = self._slots_of(key)
        distance = np.zeros(len(chosen), np.int64)
        found = np.zeros(len(chosen), np.uint8)
        self._clock = _walk(
            slot,
            chosen.start,
            chosen.size,
            self._ends,
            self._ages,
            self._clock,
            distance,
            found,
        )
        for op, jumps in self._per_op.items():
            mine = chosen.op == op
            jumps.add(distance[mine], found[mine])

    def _slots_of(self, key: np.ndarray) -> np.ndarray:
        distinct, index = np.unique(key, return_inverse=True)
        numbers = [self._slots.setdefault(int(value), len(self._slots)) for value in distinct]
        missing = len(self._slots) - len(self._ends)
        if missing > 0:
            self._ends = np.vstack([self._ends, np.full((missing, STREAMS), _NONE)])
            self._ages = np.vstack([self._ages, np.zeros((missing, STREAMS), np.int64)])
        return np.array(numbers, np.int64)[index]

    def result(self) -> dict[str, Any]:
        """Per operation: sequential shares and jump distances in bytes."""
        return {OP_NAMES[op]: jumps.result() for op, jumps in self._per_op.items() if jumps.count}

    def jumps(self, op: Op) -> LogHistogram:
        """Distances (bytes, not 0) between one request's end and the next one's start."""
        return self._per_op[op].distance


class _Jumps:
    def __init__(self) -> None:
        self.count = self.sequential = self.in_streams = self.forward = 0
        self.distance = LogHistogram()

    def add(self, distance: np.ndarray, found: np.ndarray) -> None:
        self.count += len(distance)
        self.sequential += int(np.count_nonzero(found & 1))
        self.in_streams += int(np.count_nonzero(found & 2))
        jumped = (found & 5) == 0
        self.forward += int(np.count_nonzero(jumped & (distance > 0)))
        self.distance.add(np.abs(distance[jumped]))

    def result(self) -> dict[str, Any]:
        jumps = self.distance.count
        return {
            "sequential_share": self.sequential / self.count,
            "sequential_share_8_streams": self.in_streams / self.count,
            "jumps_forward_share": self.forward / jumps if jumps else None,
            "jump_bytes": self.distance.summary(),
        }


@kernel
def _walk(
    slot: Any, start: Any, size: Any, ends: Any, ages: Any, clock: int, distance: Any, found: Any
) -> int:
    """Follow the streams; fills ``distance`` (signed bytes) and ``found``.

    Bits of ``found``: 1 sequential, 2 continues one of the streams, 4 first of its kind.
    ``ends`` holds where each stream stands, ``ages`` when it was last used.
    """
    for i in range(len(slot)):
        own_ends, own_ages = ends[slot[i]], ages[slot[i]]
        newest, oldest, match = 0, 0, -1
        for stream in range(STREAMS):
            if own_ages[stream] > own_ages[newest]:
                newest = stream
            if own_ages[stream] < own_ages[oldest]:
                oldest = stream
            if own_ends[stream] == start[i]:
                match = stream
        if own_ages[newest] == 0:
            found[i] = 4
        else:
            distance[i] = np.int64(start[i]) - np.int64(own_ends[newest])
            found[i] = (1 if distance[i] == 0 else 0) | (2 if match >= 0 else 0)
        clock += 1
        target = match if match >= 0 else oldest
        own_ends[target] = start[i] + size[i]
        own_ages[target] = clock
    return clock
