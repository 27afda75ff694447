"""CoinFlip (Baleen's baseline): what leaves DRAM is written with a probability, else dropped.

Victims by LRU. Each time an object is offered its coin is thrown anew; the throw depends on nothing
but the seed, the object and how often it was offered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from harness.simulator.coins import PRIME, thrown
from harness.simulator.hooks import Parameters, World, identity


class Settings(Parameters):
    """``probability`` of a write; ``seed`` of the coins."""

    probability: float = Field(0.2, ge=0, le=1)
    seed: int = Field(0, ge=0, lt=PRIME)


class Own(NamedTuple):
    """``offers`` int64[objects]; ``probability`` float64[1]; ``seed`` int64[1]."""

    offers: np.ndarray
    probability: np.ndarray
    seed: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Nothing was offered yet."""
    return Own(
        np.zeros(world.objects, np.int64),
        np.array([settings.probability]),
        np.array([settings.seed], np.int64),
    )


def demote(s: Any, o: int) -> bool:
    """Throw."""
    s.p.offers[o] += 1
    return thrown(s.p.seed[0], identity(s, o), s.p.offers[o]) < s.p.probability[0]
