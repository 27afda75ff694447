"""From rows of a trace to commands in the window: what to issue, when, and in which parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.core.ops import PAGE_BYTES, Op
from harness.device.info import DeviceInfo
from harness.replay.jit import kernel
from harness.replay.options import ReplayOptions
from harness.replay.streams import Streams
from harness.replay.survey import ERASING, Rows, Survey, is_replayed, read_rows
from harness.replay.window import (
    FLAG_FUA,
    I64,
    NO_COMMAND,
    PART_FIRST,
    PART_LAST,
    Window,
)
from harness.trace.parquet import Trace
from harness.trace.schema import FLAG_FUA as TRACE_FUA

_HUGE_PAGE_CROSSINGS = 2
_NO_LIMIT = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Limits:
    """Largest command by ``Op`` code, bytes; larger requests are issued in parts."""

    by_op: NDArray[np.int64]

    @property
    def moving_bytes(self) -> int:
        """Of reads and writes."""
        return int(self.by_op[Op.READ])


def limits_of(info: DeviceInfo, huge_pages: bool) -> Limits:
    """What the block layer of a device takes as one request.

    On huge pages a buffer is contiguous, so a segment is as large as the device allows; on
    ordinary pages every page may be a segment.
    """
    segment, spare = PAGE_BYTES, 0
    if huge_pages:
        segment, spare = max(info.max_segment_size, PAGE_BYTES), _HUGE_PAGE_CROSSINGS
    largest = min(info.max_sectors_kb * 1024, max(info.max_segments - spare, 1) * segment)
    align = max(PAGE_BYTES, info.logical_block)
    by_op = np.full(len(Op), _NO_LIMIT, np.int64)
    by_op[[Op.READ, Op.WRITE]] = max(largest // align * align, info.logical_block)
    if info.discard_max_bytes:
        by_op[Op.DISCARD] = info.discard_max_bytes // align * align
    if info.write_zeroes_max_bytes:
        by_op[Op.WRITE_ZEROES] = info.write_zeroes_max_bytes // align * align
    return Limits(by_op)


class Planner:
    """Fills the window from the trace, pass after pass, as room appears.

    ``finished`` once everything is planned; ``commands``, ``requests``, ``splits`` (requests in
    parts) and ``bytes_moving`` (of reads and writes) count what was planned so far.
    """

    def __init__(
        self,
        trace: Trace,
        survey: Survey,
        options: ReplayOptions,
        limits: Limits,
        window: Window,
        stream_column: str | None = None,
    ) -> None:
        self._survey = survey
        self._options = options
        self._limits = limits.by_op
        self._window = window
        self._streams = Streams(options.speed) if options.mode == "closed-loop" else None
        self._rows = each_pass(trace, survey, options, stream_column)
        self._pending: Rows | None = None
        self._at = 0
        self.commands = 0
        self.requests = 0
        self.splits = 0
        self.bytes_moving = 0
        self.finished = False
        if options.until_bytes is not None and not survey.bytes[: Op.WRITE + 1].any():
            raise UsageError("--until counts bytes, and the trace reads and writes none")

    @property
    def passes(self) -> int:
        """Passes over the trace that were begun."""
        return -(-self.requests // self._survey.replayed)

    @property
    def total_requests(self) -> int | None:
        """Requests of all passes; None when a number of bytes decides."""
        if self._options.until_bytes is not None:
            return None
        return self._survey.replayed * self._options.repeat

    def fill(self, room: int) -> int:
        """Plan at most ``room`` commands, from one batch of the trace; how many."""
        while not self.finished and (self._pending is None or self._at == len(self._pending.op)):
            self._pending, self._at = next(self._rows, None), 0
            self.finished = self._pending is None
        if self.finished or self._pending is None:
            return 0
        rows, before = self._pending, self.commands
        taken, commands, splits = _plan(
            self._window, before, room, self._at, rows.ts_ns, rows.op, rows.offset, rows.length,
            rows.flags, rows.latency_ns, self._limits,
        )  # fmt: skip
        done = slice(self._at, self._at + taken)
        if self._streams is not None:
            self._streams.link(self._window, before, commands, rows.stream[done])
        self._at += taken
        self.commands += commands
        self.requests += taken
        self.splits += splits
        moving = rows.op[done] <= Op.WRITE
        self.bytes_moving += int(rows.length[done][moving].sum())
        return int(commands)


def one_pass(
    trace: Trace, survey: Survey, options: ReplayOptions, number: int, stream: str | None = None
) -> Iterator[Rows]:
    """The rows that pass ``number`` issues, with the times at which they are due."""
    for rows in read_rows(trace, stream):
        kept = _select(rows, is_replayed(rows, options.discard))
        if len(kept.op):
            yield _timed(kept, number * survey.period_ns, options.speed)


def each_pass(
    trace: Trace, survey: Survey, options: ReplayOptions, stream: str | None = None
) -> Iterator[Rows]:
    """The rows of all passes: so many as asked for, or until so many bytes are moved."""
    goal, moved, number = options.until_bytes, 0, 0
    goal_op = Op.WRITE if survey.bytes[Op.WRITE] else Op.READ
    while goal is not None or number < options.repeat:
        for rows in one_pass(trace, survey, options, number, stream):
            if goal is None:
                yield rows
                continue
            sums = moved + np.cumsum(np.where(rows.op == goal_op, rows.length, 0))
            yield _select(rows, slice(0, int(np.searchsorted(sums, goal)) + 1))
            moved = int(sums[-1])
            if moved >= goal:
                return
        number += 1


def refuse_impossible(survey: Survey, info: DeviceInfo) -> str | None:
    """Why ``survey`` cannot be replayed on the device as it is; None if it can."""
    if survey.requests[Op.DISCARD] and not info.discard_max_bytes:
        return f"{info.path} knows no discard, and the trace has {survey.requests[Op.DISCARD]}"
    return None


def largest_commands(survey: Survey, limits: Limits) -> tuple[int, int]:
    """Buffer sizes needed for reads and for writes, bytes; 0 where there are none."""
    read, write = (min(int(survey.largest[op]), limits.moving_bytes) for op in (Op.READ, Op.WRITE))
    return read, write


def erases(survey: Survey) -> bool:
    """Whether the trace discards or zeroes anything."""
    return any(survey.requests[op] for op in ERASING)


def _select(rows: Rows, keep: NDArray[np.bool_] | slice) -> Rows:
    return Rows(*(getattr(rows, name)[keep] for name in Rows.__dataclass_fields__))


def _timed(rows: Rows, base_ns: int, speed: float) -> Rows:
    ts_ns = rows.ts_ns + base_ns
    if speed != 1:
        ts_ns = (ts_ns / speed).astype(np.int64)
    return replace(rows, ts_ns=ts_ns)


@kernel
def _plan(
    window: Window,
    first: int,
    room: int,
    start: int,
    ts_ns: I64,
    op: NDArray[np.uint8],
    offset: I64,
    length: I64,
    flags: NDArray[np.uint16],
    latency: I64,
    limits: I64,
) -> tuple[int, int, int]:
    """Write rows from ``start`` on as commands from ``first`` on; (rows, commands, splits)."""
    row_mask = len(window.due) - 1
    command, splits, at = first, 0, start
    while at < len(op):
        limit = limits[op[at]]
        parts = max((length[at] + limit - 1) // limit, 1) if op[at] != 3 else 1
        if command + parts > first + room:
            break
        splits += parts > 1
        done = 0
        for part in range(parts):
            row = command & row_mask
            size = min(limit, length[at] - done) if op[at] != 3 else 0
            window.kind[row] = op[at]
            window.flags[row] = FLAG_FUA if flags[at] & TRACE_FUA else 0
            window.part[row] = (PART_FIRST if part == 0 else 0) | (
                PART_LAST if part == parts - 1 else 0
            )
            window.number[row] = command
            window.offset[row] = offset[at] + done
            window.length[row] = size
            window.due[row] = ts_ns[at]
            window.recorded_at[row] = ts_ns[at]
            window.recorded_latency[row] = latency[at]
            window.after[row] = NO_COMMAND
            window.think[row] = 0
            window.submitted[row] = 0
            window.issued[row] = 0
            window.result[row] = 0
            window.wrong[row] = 0
            window.done[row] = 0
            done += size
            command += 1
        at += 1
    return at - start, command - first, splits
