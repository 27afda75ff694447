"""GDSF: the least of age, plus times asked for times cost over size, goes first in both tiers.

GreedyDual-Size with frequency (Cherkasova 1998): age is the value of the last object that a tier
evicted, as it was when the object was last touched. Written if it leaves DRAM. Counts outlive their
objects. ``cost=one`` counts objects, ``cost=prefill`` the chunks that the loss of an object would
make recompute: one for a chunk, all up to it for a state. A control.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from harness.simulator.hooks import (
    EVICT,
    Parameters,
    World,
    class_of,
    in_dram,
    node_of,
    on_ssd,
    pinned,
    size_of,
)
from harness.simulator.lists import tier_index

ANY_NODE = True


class Settings(Parameters):
    """What an object is worth."""

    cost: Literal["one", "prefill"] = "prefill"


class Own(NamedTuple):
    """``asked`` int64[objects]; ``value`` float64[2, objects] and ``age`` float64[2], by tier;
    ``numbers`` float64[2]: bytes of a chunk, whether cost is prefill."""

    asked: np.ndarray
    value: np.ndarray
    age: np.ndarray
    numbers: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Nothing was asked for, nothing is old."""
    return Own(
        np.zeros(world.objects, np.int64),
        np.zeros((2, world.objects)),
        np.zeros(2),
        np.array([world.sizes.chunk_bytes, settings.cost == "prefill"], np.float64),
    )


def worth(s: Any, o: int) -> float:
    """Frequency times cost over size, in chunks."""
    cost = 1.0
    if class_of(s, o) == 1 and s.p.numbers[1] != 0.0:
        cost = float(s.depth[node_of(s, o)] + 1)
    return s.p.asked[o] * cost * s.p.numbers[0] / size_of(s, o)


def renew(s: Any, o: int) -> None:
    """Asked for once more, and as young as can be where it is."""
    s.p.asked[o] += 1
    if in_dram(s, o):
        s.p.value[0, o] = s.p.age[0] + worth(s, o)
    if on_ssd(s, o):
        s.p.value[1, o] = s.p.age[1] + worth(s, o)


def used(s: Any, first: int, count: int) -> None:
    """Found."""
    for o in range(first, first + count):
        renew(s, o)


def recomputed(s: Any, o: int) -> None:
    """Found behind no state."""
    renew(s, o)


def created(s: Any, o: int) -> None:
    """Made."""
    s.p.asked[o] += 1


def entered(s: Any, o: int, tier: int) -> None:
    """Young in this tier."""
    at = tier_index(tier)
    s.p.value[at, o] = s.p.age[at] + worth(s, o)


def left(s: Any, o: int, tier: int) -> None:
    """The tier is as old as what it evicted; what a hit moved up says nothing."""
    at = tier_index(tier)
    if not pinned(s, o):
        s.p.age[at] = max(s.p.age[at], s.p.value[at, o])


def key(s: Any, q: int, o: int) -> float:
    """Least value first."""
    return s.p.value[1 if q == EVICT else 0, o]
