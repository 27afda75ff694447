"""SAECache, from its abstract: token kinds with log-normal gaps, weighed by what evictions cost.

The paper was not seen; traces do not name kinds of tokens. Ours: a chunk, and the state behind it,
is ``shared`` once two sessions have asked for it, a ``response`` if it begins among the tokens that
the session's request before its first one answered, else ``prompt``. Score = weight of its kind x
chance of being asked for again x 2^(-depth / ``half_chunks``). Weight: share of the kind's objects
that left everything and were made again (one more on both sides). Chance, for what was asked for a
seconds ago: share S(a) / (1 - share + share S(a)), where share is how many of the times that the
kind was asked for were followed by another, and S the share of log-normal gaps longer than a, with
mean and variance of ln(gap, at least 1 ms) so far; 1 until two gaps of the kind are known. All is
learnt while running. Both tiers; written if it leaves DRAM.
"""

from __future__ import annotations

from math import erfc, log, sqrt
from typing import Any, NamedTuple

import numpy as np
from pydantic import PositiveFloat

from harness.simulator.hooks import Parameters, World, node_of, pinned, resident
from harness.simulator.state import BLOCK_TOKENS, NOW

REBUILD = True
ANY_NODE = True
LIKE = True

_PROMPT, _RESPONSE, _SHARED = range(3)
_KINDS = 3
_NOBODY = -1
_LEAST_S = 1e-3
_LEAST_GAPS = 2


class Settings(Parameters):
    """Depth at which an object is worth half as much."""

    half_chunks: PositiveFloat = 1024.0


class Own(NamedTuple):
    """``kind`` int8, ``owner`` int32 (first session, -1), ``asked_at`` int32 (last request),
    ``gone`` uint8 (left everything, and not made since), [objects]; ``last`` int64[sessions] (last
    request, -1; ``before`` int64[1] that of this request's session); by kind ``asked``, ``gaps``,
    ``left``, ``again`` int64, ``mean``, ``square`` float64 (of ln gap; sum of squared deviations);
    ``half`` float64[1]."""

    kind: np.ndarray
    owner: np.ndarray
    asked_at: np.ndarray
    gone: np.ndarray
    last: np.ndarray
    before: np.ndarray
    asked: np.ndarray
    gaps: np.ndarray
    left: np.ndarray
    again: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    half: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Nothing is known."""
    objects, i8 = world.objects, np.int64
    return Own(
        kind=np.zeros(objects, np.int8),
        owner=np.full(objects, _NOBODY, np.int32),
        asked_at=np.full(objects, -1, np.int32),
        gone=np.zeros(objects, np.uint8),
        last=np.full(world.sessions, -1, i8),
        before=np.full(1, -1, i8),
        asked=np.zeros(_KINDS, i8),
        gaps=np.zeros(_KINDS, i8),
        left=np.zeros(_KINDS, i8),
        again=np.zeros(_KINDS, i8),
        mean=np.zeros(_KINDS),
        square=np.zeros(_KINDS),
        half=np.array([settings.half_chunks]),
    )


def begin(s: Any, r: int) -> None:
    """Whose answer may be in this prompt."""
    s.p.before[0] = s.p.last[s.session[r]]
    s.p.last[s.session[r]] = r


def ask(s: Any, o: int) -> None:
    """Its kind has one gap more, and perhaps it is another kind now."""
    p, now = s.p, s.reg[NOW]
    if p.owner[o] == _NOBODY:
        p.owner[o] = s.session[now]
        p.kind[o] = kind_of(s, o)
    else:
        learn(s, p.kind[o], s.time_s[now] - s.time_s[p.asked_at[o]])
        if p.owner[o] != s.session[now]:
            p.kind[o] = _SHARED
    p.asked_at[o] = now
    p.asked[p.kind[o]] += 1


def kind_of(s: Any, o: int) -> int:
    """Of an object that nobody had asked for."""
    before, starts = s.p.before[0], s.depth[node_of(s, o)] * s.cfg[BLOCK_TOKENS]
    if before < 0 or starts < s.input_tokens[before]:
        return _PROMPT
    return _RESPONSE if starts < s.input_tokens[before] + s.output_tokens[before] else _PROMPT


def learn(s: Any, kind: int, gap_s: float) -> None:
    """Mean and variance by Welford's sums."""
    value = log(max(gap_s, _LEAST_S))
    s.p.gaps[kind] += 1
    off = value - s.p.mean[kind]
    s.p.mean[kind] += off / s.p.gaps[kind]
    s.p.square[kind] += off * (value - s.p.mean[kind])


def used(s: Any, first: int, count: int) -> None:
    """Asked for, and found."""
    for o in range(first, first + count):
        ask(s, o)


def recomputed(s: Any, o: int) -> None:
    """Asked for, and found behind no state."""
    ask(s, o)


def created(s: Any, o: int) -> None:
    """Asked for, and made; if it was given up, that was wrong."""
    if s.p.gone[o] != 0:
        s.p.gone[o] = 0
        s.p.again[s.p.kind[o]] += 1
    ask(s, o)


def left(s: Any, o: int, tier: int) -> None:
    """If it is nowhere now, it was given up."""
    if not resident(s, o) and not pinned(s, o):
        s.p.gone[o] = 1
        s.p.left[s.p.kind[o]] += 1


def chance(s: Any, kind: int, age_s: float) -> float:
    """That an object of a kind, asked for so long ago, is asked for again."""
    p = s.p
    if p.gaps[kind] < _LEAST_GAPS:
        return 1.0
    share = min(p.gaps[kind] / p.asked[kind], 1.0)
    spread = sqrt(max(p.square[kind] / p.gaps[kind], 1e-6))
    longer = 0.5 * erfc((log(max(age_s, _LEAST_S)) - p.mean[kind]) / (spread * sqrt(2.0)))
    return share * longer / (1.0 - share + share * longer + 1e-300)


def key(s: Any, q: int, o: int) -> float:
    """Least score first."""
    p, kind = s.p, s.p.kind[o]
    weight = (p.again[kind] + 1.0) / (p.left[kind] + 1.0)
    age_s = s.time_s[s.reg[NOW]] - s.time_s[p.asked_at[o]]
    return weight * chance(s, kind, age_s) * 2.0 ** (-s.depth[node_of(s, o)] / p.half[0])
