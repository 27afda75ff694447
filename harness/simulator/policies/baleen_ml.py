"""Baleen ML: written if a model, trained on the first day only, says it will be asked for again.

Baleen (FAST'24) trains gradient-boosted trees on episodes; traces of prompts have none of its
features. Ours: a logistic model of what leaves DRAM: turn of the request that touched it last,
depth, bytes, class, seconds since its session's last request and hits since it was made (numbers x
as log2(1 + x) / 4, bytes as a quarter of that). Until ``train_s`` all is written, and each such
object is an example, 65,536 at a time: right if it was asked for again within ``horizon_s``, the
age that the SSD is assumed to reach. One gradient step an example, once its horizon is over; those
open when training ends are not used. After it the average of all steps' models stands, and what it
gives at least ``threshold`` is written. Victims by LRU. A trace shorter than ``train_s`` is played
as LRU.
"""

from __future__ import annotations

from math import exp, log
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field, PositiveFloat

from harness.simulator.hooks import Parameters, World, class_of, node_of, session_of, size_of
from harness.simulator.state import NOW

LIKE = True

_FEATURES = 7
_PLACES = 1 << 16
_FIRST, _LAST = range(2)
_TRAIN_S, _HORIZON_S, _RATE, _LOG_CUT = range(4)


class Settings(Parameters):
    """How long it trains, how far an example looks ahead, step of the gradient, and the cut."""

    train_s: PositiveFloat = 86400.0
    horizon_s: PositiveFloat = 3600.0
    rate: PositiveFloat = 0.1
    threshold: float = Field(0.5, gt=0, lt=1)


class Own(NamedTuple):
    """``hits``, ``asked`` int32[objects] (since made, ever); ``last_s`` float64[sessions] (last
    request); of the open examples, a ring: ``example`` int32[places], ``asked_then`` int32[places],
    ``at_s`` float64[places], ``features`` float64[places + 1, 7] (the last row: of the object that
    is judged now); ``open`` uint8[objects]; ``model``, ``average`` float64[7]; ``numbers`` int64[2]
    (first and next example); ``settings`` float64[4]."""

    hits: np.ndarray
    asked: np.ndarray
    last_s: np.ndarray
    example: np.ndarray
    asked_then: np.ndarray
    at_s: np.ndarray
    features: np.ndarray
    open: np.ndarray
    model: np.ndarray
    average: np.ndarray
    numbers: np.ndarray
    settings: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """No example yet."""
    objects, places = world.objects, min(world.objects, _PLACES)
    cut = log(settings.threshold / (1.0 - settings.threshold))
    return Own(
        hits=np.zeros(objects, np.int32),
        asked=np.zeros(objects, np.int32),
        last_s=np.zeros(world.sessions),
        example=np.zeros(places, np.int32),
        asked_then=np.zeros(places, np.int32),
        at_s=np.zeros(places),
        features=np.zeros((places + 1, _FEATURES)),
        open=np.zeros(objects, np.uint8),
        model=np.zeros(_FEATURES),
        average=np.zeros(_FEATURES),
        numbers=np.zeros(2, np.int64),
        settings=np.array([settings.train_s, settings.horizon_s, settings.rate, cut]),
    )


def trains(s: Any, time_s: float) -> bool:
    """Whether a moment lies in the first day."""
    return time_s - s.time_s[0] < s.p.settings[_TRAIN_S]


def begin(s: Any, r: int) -> None:
    """Examples whose horizon is over are judged."""
    p, now_s = s.p, s.time_s[r]
    p.last_s[s.session[r]] = now_s
    while p.numbers[_FIRST] < p.numbers[_LAST]:
        place = p.numbers[_FIRST] % len(p.example)
        over_s = p.at_s[place] + p.settings[_HORIZON_S]
        if over_s > now_s or not trains(s, over_s):
            break
        o = p.example[place]
        p.numbers[_FIRST] += 1
        step(s, place, 1.0 if p.asked[o] > p.asked_then[place] else 0.0)
        p.open[o] = 0


def score(s: Any, model: Any, place: int) -> float:
    """Logarithm of the odds that the object of a row of features is asked for again."""
    total = 0.0
    for which in range(_FEATURES):
        total += model[which] * s.p.features[place, which]
    return total


def step(s: Any, place: int, truth: float) -> None:
    """Towards what happened; ``_FIRST`` counts the steps."""
    p = s.p
    off = truth - 1.0 / (1.0 + exp(-score(s, p.model, place)))
    for which in range(_FEATURES):
        p.model[which] += p.settings[_RATE] * off * p.features[place, which]
        p.average[which] += (p.model[which] - p.average[which]) / p.numbers[_FIRST]


def describe(s: Any, place: int, o: int) -> None:
    """Fill a row of features."""
    row = s.p.features
    row[place, 0] = 1.0
    row[place, 1] = small(s.turn[s.stamp[o]])
    row[place, 2] = small(s.depth[node_of(s, o)])
    row[place, 3] = small(size_of(s, o)) / 4.0
    row[place, 4] = class_of(s, o)
    row[place, 5] = small(s.time_s[s.reg[NOW]] - s.p.last_s[session_of(s, o)])
    row[place, 6] = small(s.p.hits[o])


def small(value: float) -> float:
    """A number of any size as a small one."""
    return log(1.0 + value) / log(2.0) / 4.0


def used(s: Any, first: int, count: int) -> None:
    """Hit."""
    for o in range(first, first + count):
        s.p.hits[o] += 1
        s.p.asked[o] += 1


def created(s: Any, o: int) -> None:
    """Made, perhaps anew."""
    s.p.hits[o] = 0
    s.p.asked[o] += 1


def recomputed(s: Any, o: int) -> None:
    """Asked for, though of no use."""
    s.p.asked[o] += 1


def demote(s: Any, o: int) -> bool:
    """All, as an example; after the first day by the model."""
    p, now_s = s.p, s.time_s[s.reg[NOW]]
    places = len(p.example)
    if not trains(s, now_s):
        describe(s, places, o)
        return score(s, p.average, places) >= p.settings[_LOG_CUT]
    if p.open[o] == 0 and p.numbers[_LAST] - p.numbers[_FIRST] < places:
        place = p.numbers[_LAST] % places
        describe(s, place, o)
        p.example[place] = o
        p.asked_then[place] = p.asked[o]
        p.at_s[place] = now_s
        p.open[o] = 1
        p.numbers[_LAST] += 1
    return True
