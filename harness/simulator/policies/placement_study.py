"""A placement study cited by Gandalf: the least of recency, frequency and rate of use goes first.

The paper was not seen. Ours: score = ``recency`` x e^(-age / tau) + ``frequency`` x ln(1 + uses) +
``rate`` x average of tau / gap, each at most 1, newest weighing ``weight``; age and gaps by the
trace's clock. Making an object is a use; counts outlive it. Both tiers; written if it leaves DRAM.
"""

from __future__ import annotations

from math import exp, log
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field, PositiveFloat

from harness.simulator.hooks import Parameters, World
from harness.simulator.state import NOW

REBUILD = True
ANY_NODE = True
LIKE = True

_RECENCY, _FREQUENCY, _RATE, _TAU_S, _WEIGHT = range(5)


class Settings(Parameters):
    """Weights of the three, ``tau_s``, and the weight of the newest gap."""

    recency: float = Field(1.0, ge=0)
    frequency: float = Field(1.0, ge=0)
    rate: float = Field(1.0, ge=0)
    tau_s: PositiveFloat = 600.0
    weight: float = Field(0.2, gt=0, le=1)


class Own(NamedTuple):
    """``uses`` int64, ``used_at_s``, ``rate`` float64, [objects]; ``numbers`` float64[5]."""

    uses: np.ndarray
    used_at_s: np.ndarray
    rate: np.ndarray
    numbers: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Nothing was used."""
    numbers = [
        settings.recency, settings.frequency, settings.rate, settings.tau_s, settings.weight,
    ]  # fmt: skip
    return Own(
        np.zeros(world.objects, np.int64),
        np.zeros(world.objects),
        np.zeros(world.objects),
        np.array(numbers, np.float64),
    )


def count_use(s: Any, o: int) -> None:
    """One use more."""
    now_s, numbers = s.time_s[s.reg[NOW]], s.p.numbers
    if s.p.uses[o] > 0:
        gap_s = max(now_s - s.p.used_at_s[o], numbers[_TAU_S])
        s.p.rate[o] += numbers[_WEIGHT] * (numbers[_TAU_S] / gap_s - s.p.rate[o])
    s.p.uses[o] += 1
    s.p.used_at_s[o] = now_s


def used(s: Any, first: int, count: int) -> None:
    """Found."""
    for o in range(first, first + count):
        count_use(s, o)


def created(s: Any, o: int) -> None:
    """Made."""
    count_use(s, o)


def recomputed(s: Any, o: int) -> None:
    """Found behind no state."""
    count_use(s, o)


def key(s: Any, q: int, o: int) -> float:
    """Least score first."""
    numbers = s.p.numbers
    age = (s.time_s[s.reg[NOW]] - s.p.used_at_s[o]) / numbers[_TAU_S]
    score = numbers[_RECENCY] * exp(-age) + numbers[_RATE] * s.p.rate[o]
    return score + numbers[_FREQUENCY] * log(1.0 + s.p.uses[o])
