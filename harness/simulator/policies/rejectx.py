"""RejectX (Baleen's baseline): what leaves DRAM is written the X + 1-th time it is offered.

Victims by LRU. Refused objects are remembered, first in, first out, ``factor`` times as many as
chunks fit on the SSD; one that is written is forgotten.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from harness.simulator.hooks import Parameters, World

_REFUSALS, _PLACES, _TURN = range(3)


class Settings(Parameters):
    """``refusals`` before a write, X; 0 writes all."""

    refusals: int = Field(1, ge=0, le=100)
    factor: float = Field(1.0, ge=0)


class Own(NamedTuple):
    """``refused`` uint8[objects]; the memory as ``ring`` int32[places] with ``turn_of``
    int64[objects] (turn in which an object came into it); ``numbers`` int64[3]."""

    refused: np.ndarray
    ring: np.ndarray
    turn_of: np.ndarray
    numbers: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Nothing was refused yet."""
    fit = settings.factor * (world.ssd_bytes // world.sizes.chunk_bytes)
    places = int(min(fit, 2 * world.nodes))
    return Own(
        np.zeros(world.objects, np.uint8),
        np.full(places, -1, np.int32),
        np.full(world.objects, -1, np.int64),
        np.array([settings.refusals, places, 0], np.int64),
    )


def demote(s: Any, o: int) -> bool:
    """Written if it was refused often enough."""
    if s.p.refused[o] >= s.p.numbers[_REFUSALS]:
        s.p.refused[o] = 0
        s.p.turn_of[o] = -1
        return True
    if s.p.numbers[_PLACES] > 0:
        if s.p.refused[o] == 0:
            remember(s, o)
        s.p.refused[o] += 1
    return False


def remember(s: Any, o: int) -> None:
    """In place of the oldest, unless that was written and perhaps refused again since."""
    turn, places = s.p.numbers[_TURN], s.p.numbers[_PLACES]
    oldest = s.p.ring[turn % places]
    if oldest >= 0 and s.p.turn_of[oldest] == turn - places:
        s.p.refused[oldest] = 0
        s.p.turn_of[oldest] = -1
    s.p.ring[turn % places] = o
    s.p.turn_of[o] = turn
    s.p.numbers[_TURN] = turn + 1
