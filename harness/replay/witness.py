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
    """Times and keys (offset << 3 | op) of requests."""

    at: I64
    key: I64

    def after(self, count: int) -> _Stream:
        return _Stream(self.at[count:], self.key[count:])

    def plus(self, other: _Stream) -> _Stream:
        return _Stream(np.concatenate((self.at, other.at)), np.concatenate((self.key, other.key)))


_NONE = _Stream(np.zeros(0, np.int64), np.zeros(0, np.int64))


def compare(
    trace_path: str | Path,
    witness_path: str | Path,
    options: ReplayOptions,
    size_bytes: int,
    started_ns: int | None = None,
) -> dict[str, Any]:
    """How a replay of ``trace_path`` looked to the probe that wrote ``witness_path``.

    Lags (ns) count from ``started_ns``, when the replay's schedule began on the monotonic clock,
    if the witness says what that clock showed; else from the first request in both. Flushes
    and write-zeroes are left out, which kernel workers issue. ``order_kept`` is the share of
    requests that no later one overtook.
    """
    trace, seen = open_trace(trace_path), open_trace(witness_path)
    found = survey(trace, size_bytes, 512, discard=options.discard)
    zero = seen.meta.clock_zero_ns
    matcher = _Matcher(started_ns - zero if started_ns and zero else None)
    matcher.run(_recorded(trace, found, options), _witnessed(seen))
    lag = matcher.lag.summary() if options.mode == "timed" else None
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
    }


class _Matcher:
    def __init__(self, origin: int | None) -> None:
        self.lag = Histogram()
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
                self._account(part.at[:done], place[:done], buffer.at, base)
                part, buffer, used = part.after(done), buffer.after(dropped), used[dropped:]
                base += dropped

    def _account(self, due: I64, place: I64, seen_at: I64, base: int) -> None:
        hit = place >= 0
        if not hit.any():
            return
        position = place[hit] + base
        running = np.maximum.accumulate(np.concatenate(([self._newest], position)))
        self.overtaken += int(np.count_nonzero(position < running[:-1]))
        self._newest = int(running[-1])
        late = seen_at[place[hit]] - due[hit]
        if self._origin is None:
            self._origin = int(late[0])
        late = late - self._origin
        self.lag.add(np.maximum(late, 0))
        self.last_lag = int(late[-1])
        self.matched += len(position)


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
    return _Stream(rows.ts_ns[keep], key.astype(np.int64))
