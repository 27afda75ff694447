"""How likely an idle session is to come back, learnt from those that were idle before it.

Idle times are counted in requests and kept in buckets of powers of two. A session that is silent
for more than ``SILENT`` times the median gap is taken to stay away, until it comes back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BUCKETS = 40
SILENT = 20
_AWAY, _OLDEST = range(2)
_HALVES = (16, 8, 4, 2, 1)
"""Bits at a time in which the highest one is looked for: waits are below 2 ** 32."""


class Idle(NamedTuple):
    """``last`` int64[sessions] (last request, -1), ``away`` uint8[sessions], ``returned``
    int64[BUCKETS] (gaps that ended, by bucket), ``share`` float64[BUCKETS] (that came back after so
    long or longer), ``numbers`` int64[2] (sessions away, oldest request not yet looked at),
    ``bucket`` uint8[waits] (``bucket_of`` each wait: looked up at each look at an object)."""

    last: np.ndarray
    away: np.ndarray
    returned: np.ndarray
    share: np.ndarray
    numbers: np.ndarray
    bucket: np.ndarray


def idle_table(sessions: int, longest: int) -> Idle:
    """Nobody was idle yet; waits of up to ``longest`` requests will be asked for."""
    return Idle(
        np.full(sessions, -1, np.int64),
        np.zeros(sessions, np.uint8),
        np.zeros(BUCKETS, np.int64),
        np.ones(BUCKETS, np.float64),
        np.zeros(2, np.int64),
        buckets(longest),
    )


def bucket_of(wait: int) -> int:
    """Number of the power of two at or below a wait; waits below 1 count as 1."""
    bucket = 0
    for bits in _HALVES:
        if wait >> bits > 0:
            wait >>= bits
            bucket += bits
    return bucket


def buckets(longest: int) -> NDArray[np.uint8]:
    """``bucket_of`` waits 0 to ``longest``."""
    powers = np.frexp(np.arange(longest + 1))[1] - 1
    return np.maximum(powers, 0).astype(np.uint8)


def share_back(t: Any, wait: int) -> float:
    """Share of the sessions idle for so many requests that came back."""
    return t.share[t.bucket[wait]]


def median_gap(t: Any) -> int:
    """Lower edge of the bucket of the median gap; 0 without any."""
    total = 0
    for bucket in range(BUCKETS):
        total += t.returned[bucket]
    some = 0
    for bucket in range(BUCKETS):
        some += t.returned[bucket]
        if total > 0 and 2 * some >= total:
            return 1 << bucket
    return 0


def sessions_away(t: Any) -> int:
    """Sessions taken to stay away."""
    return t.numbers[_AWAY]


def shares_back(t: Any, away: int, share: Any) -> None:
    """Fill in the share that came back after so long or longer if so many sessions are away."""
    back = 0
    for bucket in range(BUCKETS - 1, -1, -1):
        back += t.returned[bucket]
        share[bucket] = (back + 1.0) / (back + away + 1.0)


def came_back(t: Any, session_of_request: Any, r: int) -> None:
    """Request ``r`` arrives: its session's gap ends, and others may be silent for too long."""
    session = session_of_request[r]
    if t.last[session] >= 0:
        t.returned[t.bucket[r - t.last[session]]] += 1
        if t.away[session] != 0:
            t.away[session] = 0
            t.numbers[_AWAY] -= 1
    t.last[session] = r
    gap = median_gap(t)
    if gap > 0:
        while t.numbers[_OLDEST] < r - SILENT * gap:
            oldest = t.numbers[_OLDEST]
            silent = session_of_request[oldest]
            if t.last[silent] == oldest:
                t.away[silent] = 1
                t.numbers[_AWAY] += 1
            t.numbers[_OLDEST] = oldest + 1
    shares_back(t, t.numbers[_AWAY], t.share)
