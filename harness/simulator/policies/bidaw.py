"""Bidaw, from its abstract: first goes what is expected back last, by how long its last answer was.

Only the abstract (FAST'26) was seen: victims in DRAM by the reuse distance predicted from the
length of the previous answer. Ours: the gap until a session's next request is averaged for each
power of two of output tokens, newest weighing ``weight``, over all lengths where one has no gap
yet; the largest expected gap minus the time since the session's last request goes first, in both
tiers, written if it leaves DRAM. An object is of the session that used it last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from harness.simulator.hooks import Parameters, World, session_of
from harness.simulator.idle import BUCKETS, bucket_of

REBUILD = True
ANY_NODE = True
LIKE = True


class Settings(Parameters):
    """``weight`` of the newest gap."""

    weight: float = Field(0.2, gt=0, le=1)


class Own(NamedTuple):
    """``last`` int64[sessions] (last request, -1); ``gap_s`` float64[BUCKETS + 1] (by answer, and
    over all; -1 without any); ``weight`` float64[1]."""

    last: np.ndarray
    gap_s: np.ndarray
    weight: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """No gap is known."""
    return Own(
        np.full(world.sessions, -1, np.int64),
        np.full(BUCKETS + 1, -1.0),
        np.array([settings.weight]),
    )


def begin(s: Any, r: int) -> None:
    """A gap ends."""
    session = s.session[r]
    before = s.p.last[session]
    if before >= 0:
        gap_s = s.time_s[r] - s.time_s[before]
        learn(s, bucket_of(s.output_tokens[before]), gap_s)
        learn(s, BUCKETS, gap_s)
    s.p.last[session] = r


def learn(s: Any, bucket: int, gap_s: float) -> None:
    """Average; the first gap counts whole."""
    if s.p.gap_s[bucket] < 0.0:
        s.p.gap_s[bucket] = gap_s
    else:
        s.p.gap_s[bucket] += s.p.weight[0] * (gap_s - s.p.gap_s[bucket])


def key(s: Any, q: int, o: int) -> float:
    """Expected last goes first."""
    last = s.p.last[session_of(s, o)]
    gap_s = s.p.gap_s[bucket_of(s.output_tokens[last])]
    if gap_s < 0.0:
        gap_s = max(s.p.gap_s[BUCKETS], 0.0)
    return -(s.time_s[last] + gap_s)
