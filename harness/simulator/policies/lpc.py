"""LPC, from its abstract: first goes what is least likely continued, times how recent it is.

The paper (NeurIPS'25) predicts from the text, which traces do not have. Ours: a logistic model of a
request's turn, prompt length and answer length (each as log2(1 + x) / 16) says how likely its
session is to continue; it learns by one gradient step when the session returns, or has been silent
for ``silent_s``. Score = that chance, as it was seen at the request, x e^(-silence / tau_s), by the
trace's clock, of the session that used the object last. Both tiers; written if it leaves DRAM.
"""

from __future__ import annotations

from math import exp, log
from typing import Any, NamedTuple

import numpy as np
from pydantic import PositiveFloat

from harness.simulator.hooks import Parameters, World, session_of
from harness.simulator.state import NOW

REBUILD = True
ANY_NODE = True
LIKE = True

_FEATURES = 4
_RATE, _SILENT_S, _TAU_S = range(3)


class Settings(Parameters):
    """Step of the gradient; silence that counts as the end; how fast recency falls."""

    rate: PositiveFloat = 0.1
    silent_s: PositiveFloat = 3600.0
    tau_s: PositiveFloat = 600.0


class Own(NamedTuple):
    """``last`` int64, ``likely`` float64, [sessions] (last request, -1; chance then); ``model``
    float64[4] (constant, turn, prompt, answer); ``oldest`` int64[1] (first request whose silence
    was not looked at); ``numbers`` float64[3]."""

    last: np.ndarray
    likely: np.ndarray
    model: np.ndarray
    oldest: np.ndarray
    numbers: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Even chances."""
    return Own(
        np.full(world.sessions, -1, np.int64),
        np.zeros(world.sessions),
        np.zeros(_FEATURES),
        np.zeros(1, np.int64),
        np.array([settings.rate, settings.silent_s, settings.tau_s]),
    )


def feature(s: Any, r: int, which: int) -> float:
    """One of a request."""
    if which == 0:
        return 1.0
    value = s.turn[r] if which == 1 else s.input_tokens[r] if which == 2 else s.output_tokens[r]
    return log(1.0 + value) / log(2.0) / 16.0


def chance(s: Any, r: int) -> float:
    """That the session goes on after a request."""
    total = 0.0
    for which in range(_FEATURES):
        total += s.p.model[which] * feature(s, r, which)
    return 1.0 / (1.0 + exp(-total))


def learn(s: Any, r: int, truth: float) -> None:
    """One step towards what happened after a request."""
    step = s.p.numbers[_RATE] * (truth - chance(s, r))
    for which in range(_FEATURES):
        s.p.model[which] += step * feature(s, r, which)


def begin(s: Any, r: int) -> None:
    """The session went on; others have been silent for too long."""
    session = s.session[r]
    if s.p.last[session] >= 0:
        learn(s, s.p.last[session], 1.0)
    s.p.last[session] = r
    while s.time_s[r] - s.time_s[s.p.oldest[0]] > s.p.numbers[_SILENT_S]:
        oldest = s.p.oldest[0]
        if s.p.last[s.session[oldest]] == oldest:
            learn(s, oldest, 0.0)
        s.p.oldest[0] = oldest + 1
    s.p.likely[session] = chance(s, r)


def key(s: Any, q: int, o: int) -> float:
    """Least likely and longest silent first."""
    session = session_of(s, o)
    silence_s = s.time_s[s.reg[NOW]] - s.time_s[s.p.last[session]]
    return s.p.likely[session] * exp(-silence_s / s.p.numbers[_TAU_S])
