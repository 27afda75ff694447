"""A capture of the replay against the trace: what the kernel saw, and when.

The replay's own clock stops at the system call; a probe in the block layer sees the issue itself.
Requests are matched in order by operation and first sector; what lies between (parts of a split
request, somebody else's I/O) stays unmatched. Memory does not grow with the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.ops import Op
from harness.replay.depth import Shape
from harness.replay.histogram import Histogram
from harness.replay.jit import kernel
from harness.replay.options import ReplayOptions
from harness.replay.plan import each_pass
from harness.replay.survey import Rows, Survey, read_rows, survey
from harness.replay.window import I64
from harness.trace.parquet import Trace, open_trace

_LOOKAHEAD = 4096


@dataclass(frozen=True)
class _Stream:
    """Issue times, keys (offset << 3 | op) and latencies (-1 unknown) of requests."""

    at: I64
    key: I64
    latency: I64

    def after(self, count: int) -> _Stream:
        return _Stream(self.at[count:], self.key[count:], self.latency[count:])

    def plus(self, other: _Stream) -> _Stream:
        return _Stream(
            np.concatenate((self.at, other.at)),
            np.concatenate((self.key, other.key)),
            np.concatenate((self.latency, other.latency)),
        )


_NONE = _Stream(*(np.zeros(0, np.int64) for _ in range(3)))


def compare(
    trace_path: str | Path,
    witness_path: str | Path,
    options: ReplayOptions,
    size_bytes: int,
    started_ns: int | None = None,
) -> dict[str, Any]:
    """How a replay of ``trace_path`` looked to the probe that wrote ``witness_path``.

    Lags (ns) count from ``started_ns``, when the replay's schedule began on the monotonic clock,
    if the witness says what that clock showed; else from the most punctual of the first
    requests. Flushes and write-zeroes are left out, which kernel workers issue. ``order_kept``
    is the share of requests that no later one overtook; ``depth_ks`` and ``gaps_ks`` are
    Kolmogorov-Smirnov distances of what the kernel saw from the recording.
    """
    trace, seen = open_trace(trace_path), open_trace(witness_path)
    found = survey(trace, size_bytes, 512, discard=options.discard)
    zero = seen.meta.clock_zero_ns
    matcher = _Matcher(started_ns - zero if started_ns and zero else None)
    matcher.run(_recorded(trace, found, options), _witnessed(seen))
    timed = options.mode == "timed"
    lag = matcher.lag.summary() if timed else None
    latencies = found.with_latency > 0 and options.speed == 1
    return {
        "trace": str(witness_path),
        "verdict": seen.meta.verdict,
        "requests": matcher.expected,
        "matched": matcher.matched,
        "unmatched": matcher.expected - matcher.matched,
        "others": seen.rows - matcher.matched,
        "order_kept": 1 - matcher.overtaken / max(matcher.matched, 1),
        "lag_ns": lag,
        "end_drift_ns": matcher.last_lag if lag else None,
        "gaps_ks": matcher.seen.gap_distance(matcher.recorded) if timed else None,
        "depth_ks": matcher.seen.depth_distance(matcher.recorded) if timed and latencies else None,
    }


class _Matcher:
    def __init__(self, origin: int | None) -> None:
        self.lag = Histogram()
        self.recorded = Shape()
        self.seen = Shape()
        self.expected = 0
        self.matched = 0
        self.overtaken = 0
        self.last_lag: int | None = None
        self._origin = origin
        self._newest = -1

    def run(self, expected: Iterator[_Stream], seen: Iterator[_Stream]) -> None:
        buffer, base, more = _NONE, 0, True
        used = np.zeros(0, np.bool_)
        for part in expected:
            self.expected += len(part.at)
            while len(part.at):
                while more and len(buffer.at) < 2 * _LOOKAHEAD:
                    following = next(seen, None)
                    more = following is not None
                    buffer = buffer.plus(following or _NONE)
                    used = np.concatenate((used, np.zeros(len(buffer.at) - len(used), np.bool_)))
                place = np.full(len(part.at), -1, np.int64)
                done, dropped = _match(part.key, buffer.key, used, _LOOKAHEAD, more, place)
                self._account(part, done, place[:done], buffer, base)
                part, buffer, used = part.after(done), buffer.after(dropped), used[dropped:]
                base += dropped

    def _account(self, part: _Stream, done: int, place: I64, buffer: _Stream, base: int) -> None:
        """Take note of ``done`` requests of ``part``, found in ``buffer`` at ``place``."""
        hit = np.flatnonzero(place >= 0)
        if not hit.size:
            return
        found = place[hit]
        position = found + base
        running = np.maximum.accumulate(np.concatenate(([self._newest], position)))
        self.overtaken += int(np.count_nonzero(position < running[:-1]))
        self._newest = int(running[-1])
        late = buffer.at[found] - part.at[hit]
        if self._origin is None:
            self._origin = int(late.min())
        late = late - self._origin
        self.lag.add(np.maximum(late, 0))
        self.last_lag = int(late[-1])
        self.matched += len(position)
        _add_shape(self.recorded, part, np.arange(done))
        _add_shape(self.seen, buffer, np.sort(found))


def _add_shape(shape: Shape, requests: _Stream, rows: I64) -> None:
    at = requests.at[rows]
    shape.add(at, at + np.maximum(requests.latency[rows], 0))


@kernel
def _match(
    expected: I64, seen: I64, used: NDArray[np.bool_], ahead: int, more: bool, place: I64
) -> tuple[int, int]:
    """Find each expected key within ``ahead`` unused rows; how many expected and seen are done."""
    first = 0
    for i in range(len(expected)):
        while first < len(seen) and used[first]:
            first += 1
        if more and len(seen) - first < ahead:
            return i, first
        for at in range(first, min(first + ahead, len(seen))):
            if not used[at] and seen[at] == expected[i]:
                place[i] = at
                used[at] = True
                break
    return len(expected), first


def _recorded(trace: Trace, found: Survey, options: ReplayOptions) -> Iterator[_Stream]:
    for rows in each_pass(trace, found, options):
        yield _stream(rows)


def _witnessed(trace: Trace) -> Iterator[_Stream]:
    for rows in read_rows(trace):
        yield _stream(rows)


def _stream(rows: Rows) -> _Stream:
    keep = rows.op <= Op.DISCARD
    key = rows.offset[keep] << 3 | rows.op[keep]
    return _Stream(rows.ts_ns[keep], key.astype(np.int64), rows.latency_ns[keep])
