"""Closed loops: which completion a command waited for in the recording, and how long after it.

Within a stream (a session where the trace carries one, else a process) a request follows the
last one that was complete when it was issued; the time in between is its think time. Requests
that were issued while none of their stream had completed yet keep their recorded time.
"""

from __future__ import annotations

import numpy as np

from harness.core.errors import UsageError
from harness.replay.heap import pop, push
from harness.replay.jit import kernel
from harness.replay.window import I64, NO_COMMAND, PART_FIRST, PART_LAST, Window

_STREAM_BITS = 24
"""A heap entry is command << 24 | stream: room for 5e11 commands."""
MAX_STREAMS = 1 << _STREAM_BITS


class Streams:
    """Links commands to those they follow, in trace order. Memory grows with streams, not rows."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._index: dict[int, int] = {}
        self._last = np.zeros((2, 0), np.int64)
        self._keys = np.zeros(1 << 10, np.int64)
        self._values = np.zeros(1 << 10, np.int64)
        self._size = np.zeros(1, np.int64)

    def link(self, window: Window, first: int, commands: int, streams: I64) -> None:
        """Fill ``after`` and ``think`` of ``commands`` commands; ``streams`` is by request."""
        numbers = self._numbers(streams)
        self._grow(int(self._size[0]) + len(numbers))
        _link(
            window, first, commands, numbers, self._last, self._keys, self._values, self._size,
            self._speed,
        )  # fmt: skip

    def _numbers(self, streams: I64) -> I64:
        """Stream keys as small numbers, new ones added."""
        keys, inverse = np.unique(streams, return_inverse=True)
        numbers = [self._index.setdefault(int(key), len(self._index)) for key in keys]
        if len(self._index) > MAX_STREAMS:
            raise UsageError(f"a closed loop has at most {MAX_STREAMS} streams")
        if len(self._index) > self._last.shape[1]:
            grown = np.full((2, 2 * len(self._index)), NO_COMMAND, np.int64)
            grown[:, : self._last.shape[1]] = self._last
            self._last = grown
        return np.array(numbers, np.int64)[inverse]

    def _grow(self, entries: int) -> None:
        if entries > len(self._keys):
            self._keys = np.resize(self._keys, 2 * entries)
            self._values = np.resize(self._values, 2 * entries)


@kernel
def _link(
    window: Window,
    first: int,
    commands: int,
    streams: I64,
    last: I64,
    keys: I64,
    values: I64,
    size: I64,
    speed: float,
) -> None:
    """``last[0]`` and ``last[1]``: completion time and command that a stream follows now."""
    row_mask = len(window.due) - 1
    request = -1
    for command in range(first, first + commands):
        row = command & row_mask
        at = window.recorded_at[row]
        if window.part[row] & PART_FIRST:
            request += 1
            while size[0] > 0 and keys[0] <= at:
                done = keys[0]
                value = pop(keys, values, size)
                stream = value & ((1 << _STREAM_BITS) - 1)
                last[0, stream] = done
                last[1, stream] = value >> _STREAM_BITS
        stream = streams[request]
        if last[1, stream] != NO_COMMAND:
            window.after[row] = last[1, stream]
            window.think[row] = at - last[0, stream]
            window.due[row] = 0
        if window.part[row] & PART_LAST and window.recorded_latency[row] >= 0:
            done = at + np.int64(window.recorded_latency[row] / speed)
            push(keys, values, size, done, (command << _STREAM_BITS) | stream)
