"""The window of commands that the planner fills, the engines issue and the collector empties.

A command is what is submitted at once: a request of the trace, or a part of one that was above
the device's limits. Commands are numbered from 0 in trace order; command i lives in row
``i & (size - 1)`` of every column from when it is planned until it is collected. So memory is
bounded by the window, however long the trace is.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
U8 = NDArray[np.uint8]

PART_FIRST, PART_LAST = 1, 2
FLAG_FUA = 1
NO_COMMAND = -1
WINDOW_ROWS = 1 << 18


class Window(NamedTuple):
    """Columns of ``size`` rows; times in ns since the start of the replay, sizes in bytes.

    Planned: number of the command, kind (``harness.core.ops.Op``), flags (FLAG_FUA), part (bits
    PART_FIRST, PART_LAST), offset, length, due, and what the recording says of the whole request
    (recorded_at, recorded_latency; -1 unknown). Closed loop: ``after`` is the command that
    must be complete ``think`` ns before this one (NO_COMMAND: none).

    Measured: submitted (before the system call), issued (after it), done (0 until complete),
    result (bytes or 0, or minus errno), wrong (sectors that failed verification), unsure (ns
    before ``done`` in which the engine was held up: the device may have been done as early).
    """

    kind: U8
    flags: U8
    part: U8
    number: I64
    offset: I64
    length: I64
    due: I64
    recorded_at: I64
    recorded_latency: I64
    after: I64
    think: I64
    submitted: I64
    issued: I64
    done: I64
    result: I64
    wrong: I64
    unsure: I64

    @property
    def size(self) -> int:
        """Rows; a power of two."""
        return len(self.kind)


def make_window(size: int = WINDOW_ROWS) -> Window:
    """An empty window of ``size`` rows, a power of two."""
    if size < 1 or size & (size - 1):
        raise ValueError(f"a window's size is a power of two: {size}")
    small = {"kind", "flags", "part"}
    columns: list[Any] = [
        np.zeros(size, np.uint8 if name in small else np.int64) for name in Window._fields
    ]
    window = Window(*columns)
    window.number.fill(NO_COMMAND)
    return window


class Control(IntEnum):
    """Words shared between the main thread and the engines (indices into int64)."""

    PRODUCED = 0
    FINISHED = 1
    STOP = 2
    START_NS = 3


RUNNING, DRAIN, ABANDON = 0, 1, 2
"""Values of ``Control.STOP``: go on; issue nothing more; also stop waiting for completions."""


class Meter(IntEnum):
    """Counters that one engine keeps (indices into int64)."""

    ISSUED = 0
    COMPLETED = 1
    EAGAIN = 2
    STARVED_NS = 3
    ENTERS = 4
    ENTER_ERROR = 5
    BYTES = 6
    ERRORS = 7
    LAST_LAG_NS = 8
    PEAK = 9
    CHECKED = 10
    UNKNOWN = 11
    WRONG = 12
    RACING = 13
    BLOCKING = 14
    STALLS = 15
    STALLED_NS = 16
    LONGEST_STALL_NS = 17
    REALTIME_NS = 18
    LONE_CALLS = 19
    LONE_CALLS_NS = 20
    LATE = 21
    REFUSED = 22
