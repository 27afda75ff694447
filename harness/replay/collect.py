"""From finished commands in the window to what a replay was like: counts, lags, latencies."""

from __future__ import annotations

import errno
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.ops import OP_LETTERS, PAGE_BYTES, Op
from harness.replay.depth import Shape
from harness.replay.floor import LagFloor, service_times
from harness.replay.histogram import Histogram
from harness.replay.window import I64, PART_FIRST, PART_LAST, Window

SHORT = "short"
BLOCK_ROWS = 1 << 14


class Collector:
    """Empties the window from the front and keeps what a result is made of.

    ``retired`` commands were taken. ``requests``, ``bytes`` and ``failed`` are by ``Op`` code
    and count requests of the trace; ``commands`` counts their parts. ``errors`` is by name.
    ``recorded_ns`` is from the first to the last of them in the recording. ``shape``,
    ``recorded_shape`` and ``ideal_shape`` are those of the replay, of the recording, and of a
    perfect replayer on this device.
    """

    def __init__(self, window: Window, depth: int) -> None:
        self._window = window
        self.retired = 0
        self.requests = np.zeros(len(Op), np.int64)
        self.commands = np.zeros(len(Op), np.int64)
        self.bytes = np.zeros(len(Op), np.int64)
        self.failed = np.zeros(len(Op), np.int64)
        self.errors: Counter[str] = Counter()
        self.overtaken = 0
        self.lag = Histogram()
        self.first_issue: int | None = None
        self.recorded_ns = 0
        self._first_recorded = 0
        self.last_issue = 0
        self.last_due = 0
        self.last_done = 0
        self._last_seen = 0
        self.floor = LagFloor(depth)
        self.latency: dict[tuple[int, int], Histogram] = {}
        self.recorded_latency: dict[tuple[int, int], Histogram] = {}
        self.shape = Shape()
        self.recorded_shape = Shape()
        self.ideal_shape = Shape()
        self.unknown_latencies = 0

    def collect(self, produced: int) -> None:
        """Take finished requests from the front of ``produced`` planned commands, in blocks."""
        size = BLOCK_ROWS
        while self.retired + size <= produced:
            rows = self._rows(self.retired + size)
            if not self._window.done[rows].all():
                return
            if not self._take_whole(rows):
                size *= 2  # a request of very many parts

    def collect_rest(self, produced: int) -> int:
        """At the end take every finished command; how many are still in flight."""
        self.collect(produced)
        rows = self._rows(produced)
        done = self._window.done[rows] > 0
        if done.any():
            self._account(rows[done])
        self.retired = produced
        return int(np.count_nonzero((self._window.submitted[rows] > 0) & ~done))

    def oldest_wait_ns(self, produced: int, now_ns: int) -> int:
        """How long the oldest command in flight has been waiting for its completion."""
        rows = self._rows(produced)
        issued = self._window.issued[rows]
        waiting = (issued > 0) & (self._window.done[rows] == 0)
        return int(now_ns - issued[waiting].min()) if waiting.any() else 0

    def _rows(self, end: int) -> I64:
        return np.arange(self.retired, end) & (self._window.size - 1)

    def _take_whole(self, rows: I64) -> bool:
        """Account for ``rows`` up to the end of the last whole request; whether there is one."""
        ends = np.flatnonzero(self._window.part[rows] & PART_LAST)
        if not ends.size:
            return False
        taken = int(ends[-1]) + 1
        self._account(rows[:taken])
        self.retired += taken
        return True

    def _account(self, rows: I64) -> None:
        w = self._window
        kind, issued, due, done = w.kind[rows], w.issued[rows], w.due[rows], w.done[rows]
        running = np.maximum.accumulate(np.concatenate(([self.last_issue], issued)))
        self.overtaken += int(np.count_nonzero(issued < running[:-1]))
        order = np.argsort(issued, kind="stable")
        seen = np.maximum(done - w.unsure[rows], issued)  # what we slept through is not its time
        service = service_times(issued[order], seen[order], self._last_seen)
        self._last_seen = max(self._last_seen, int(seen.max()))
        ideal = self.floor.add(due[order], service)
        self.commands += np.bincount(kind, minlength=len(Op))
        self._count_results(rows, kind)
        self._count_requests(rows, ideal[0][np.argsort(order)], ideal[1][np.argsort(order)])
        if self.first_issue is None:
            self.first_issue = int(issued[0])
            self._first_recorded = int(w.recorded_at[rows[0]])
        self.recorded_ns = int(w.recorded_at[rows[-1]]) - self._first_recorded
        self.last_issue = max(self.last_issue, int(running[-1]))
        self.last_due = int(due[-1])
        self.last_done = max(self.last_done, int(done.max()))

    def _count_results(self, rows: I64, kind: NDArray[np.uint8]) -> None:
        result, length = self._window.result[rows], self._window.length[rows]
        moves = kind <= Op.WRITE
        moved = np.where(moves, np.maximum(result, 0), np.where(result >= 0, length, 0))
        self.bytes += np.bincount(kind, weights=moved, minlength=len(Op)).astype(np.int64)
        for code in np.unique(result[result < 0]):
            name = errno.errorcode.get(-int(code), str(-int(code)))
            self.errors[name] += int(np.count_nonzero(result == code))
        short = int(np.count_nonzero(moves & (result >= 0) & (result != length)))
        if short:
            self.errors[SHORT] += short

    def _count_requests(self, rows: I64, ideal_issue: I64, ideal_done: I64) -> None:
        """Join the parts of each request, then lags, latencies and shapes of requests."""
        w = self._window
        starts = np.flatnonzero(w.part[rows] & PART_FIRST)
        if starts.size == 0 or starts[0] != 0:
            starts = np.concatenate(([0], starts)).astype(np.int64)
        first = rows[starts]
        kind = w.kind[first]
        bad = (w.result[rows] < 0) | (
            (w.kind[rows] <= Op.WRITE) & (w.result[rows] != w.length[rows])
        )
        failed = np.add.reduceat(bad.astype(np.int64), starts) > 0
        size = np.add.reduceat(w.length[rows], starts)
        done = np.maximum.reduceat(w.done[rows], starts)
        self.requests += np.bincount(kind, minlength=len(Op))
        self.failed += np.bincount(kind[failed], minlength=len(Op))
        issued, due = w.issued[first], w.due[first]
        self.lag.add(np.maximum(issued - due, 0))
        latency = np.maximum(done - w.submitted[first], 0)
        recorded = w.recorded_latency[first]
        size_class = _size_classes(size)
        _by_class(self.latency, kind, size_class, latency, ~failed)
        _by_class(self.recorded_latency, kind, size_class, recorded, recorded >= 0)
        self.unknown_latencies += int(np.count_nonzero(recorded < 0))
        order = np.argsort(issued, kind="stable")
        self.shape.add(issued[order], done[order])
        ideal_done = np.maximum.reduceat(ideal_done, starts)
        self.ideal_shape.add(ideal_issue[starts][order], ideal_done[order])
        at = w.recorded_at[first]
        self.recorded_shape.add(at, at + np.maximum(recorded, 0))


def _size_classes(size: I64) -> I64:
    """0 for up to a page, n for up to ``2**n`` pages."""
    pages = np.maximum(-(-size // PAGE_BYTES), 1)
    return np.ceil(np.log2(pages)).astype(np.int64)


def class_name(size_class: int) -> str:
    """The largest size of a class, as people write it."""
    kib = 4 << size_class
    return f"<={kib}KiB" if kib < 1024 else f"<={kib >> 10}MiB"


def _by_class(
    histograms: dict[tuple[int, int], Histogram],
    kind: NDArray[np.uint8],
    size_class: I64,
    values: I64,
    keep: NDArray[np.bool_],
) -> None:
    both = kind.astype(np.int64) << 8 | size_class
    for code in np.unique(both[keep]):
        key = (int(code) >> 8, int(code) & 255)
        histograms.setdefault(key, Histogram()).add(values[keep & (both == code)])


def by_operation(
    histograms: dict[tuple[int, int], Histogram], *, bins: bool
) -> dict[str, dict[str, Any]]:
    """Summaries by operation, each with its size classes (and their bins)."""
    result: dict[str, dict[str, Any]] = {}
    for op in sorted({key[0] for key in histograms}):
        classes = {c: h for (o, c), h in sorted(histograms.items()) if o == op}
        total = Histogram()
        for histogram in classes.values():
            total.merge(histogram)
        by_size = {}
        for size_class, histogram in classes.items():
            by_size[class_name(size_class)] = histogram.summary() | (
                {"bins": histogram.bins()} if bins else {}
            )
        result[OP_LETTERS[op]] = {**total.summary(), "by_size": by_size}
    return result
