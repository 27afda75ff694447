"""Dynamo KVBM's frequency filter: a block is offloaded once it is offered twice within minutes.

Read in its source. A block is offered when it is registered in host memory: when it is made, and
when it is computed again; a hit is no offer, unless ``offer=hit``. Its count is 1 at first and
doubles with each offer; every interval all counts fall by 1 and those at 0 are forgotten, and again
until no more than ``max_entries`` are known. What leaves DRAM unwritten is dropped. LRU victims.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from harness.simulator.hooks import Parameters, World, in_dram, on_ssd
from harness.simulator.tiers import copy_to_ssd

_FALLS, _KNOWN, _THRESHOLD, _ON_HIT, _MOST = range(5)
_LARGEST = 1 << 16


class Settings(Parameters):
    """``threshold`` that a count must reach, seconds between falls, counts kept at most."""

    threshold: int = Field(2, ge=1, le=_LARGEST)
    interval_s: float = Field(600.0, gt=0)
    max_entries: int = Field(1_000_000, ge=1)
    offer: Literal["made", "hit"] = "made"


class Own(NamedTuple):
    """Counts are kept as the fall at which they are forgotten, so that a fall costs nothing.

    ``gone_at`` int64[objects]; ``going`` int64[_LARGEST], how many are forgotten at each fall to
    come, by its number modulo the length; ``numbers`` int64[5]; ``clock`` float64[2]: time of the
    next fall, interval.
    """

    gone_at: np.ndarray
    going: np.ndarray
    numbers: np.ndarray
    clock: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """No counts yet; the first fall comes one interval after the start."""
    numbers = [0, 0, settings.threshold, settings.offer == "hit", settings.max_entries]
    return Own(
        np.zeros(world.objects, np.int64),
        np.zeros(_LARGEST, np.int64),
        np.array(numbers, np.int64),
        np.array([settings.interval_s, settings.interval_s]),
    )


def begin(s: Any, r: int) -> None:
    """The falls that are due."""
    while s.time_s[r] >= s.p.clock[0]:
        s.p.clock[0] += s.p.clock[1]
        fall(s)
        while s.p.numbers[_KNOWN] > s.p.numbers[_MOST]:
            fall(s)


def fall(s: Any) -> None:
    """All counts less by one."""
    numbers, going = s.p.numbers, s.p.going
    numbers[_FALLS] += 1
    place = numbers[_FALLS] % _LARGEST
    numbers[_KNOWN] -= going[place]
    going[place] = 0


def offer(s: Any, o: int) -> bool:
    """Count an offer; whether the block passes."""
    numbers, going = s.p.numbers, s.p.going
    falls = numbers[_FALLS]
    count = max(s.p.gone_at[o] - falls, 0)
    if count > 0:
        going[s.p.gone_at[o] % _LARGEST] -= 1
    else:
        numbers[_KNOWN] += 1
    count = min(max(2 * count, 1), _LARGEST - 1)
    s.p.gone_at[o] = falls + count
    going[s.p.gone_at[o] % _LARGEST] += 1
    return count >= numbers[_THRESHOLD]


def write_now(s: Any, o: int) -> bool:
    """Made, and registered in host memory."""
    return offer(s, o)


def recomputed(s: Any, o: int) -> None:
    """Registered again."""
    if in_dram(s, o) and offer(s, o) and not on_ssd(s, o):
        copy_to_ssd(s, o)


def used(s: Any, first: int, count: int) -> None:
    """A hit in DRAM, if that is an offer."""
    if s.p.numbers[_ON_HIT] != 0:
        for o in range(first, first + count):
            if in_dram(s, o) and offer(s, o) and not on_ssd(s, o):
                copy_to_ssd(s, o)


def demote(s: Any, o: int) -> bool:
    """What did not pass when it was offered is dropped."""
    return False
