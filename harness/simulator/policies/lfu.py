"""LFU: what was asked for least often goes first in both tiers, written if it leaves DRAM.

Counts outlive their objects (perfect LFU) and are never lowered; ties by LRU. Making an object is
being asked for it. A control.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from harness.simulator.hooks import Parameters, World


class Own(NamedTuple):
    """``asked`` int64[objects]."""

    asked: np.ndarray


def create(world: World, settings: Parameters) -> Own:
    """Nothing was asked for."""
    return Own(np.zeros(world.objects, np.int64))


def used(s: Any, first: int, count: int) -> None:
    """Asked for, and found."""
    for o in range(first, first + count):
        s.p.asked[o] += 1


def created(s: Any, o: int) -> None:
    """Asked for, and made."""
    s.p.asked[o] += 1


def recomputed(s: Any, o: int) -> None:
    """Asked for, and found behind no state."""
    s.p.asked[o] += 1


def key(s: Any, q: int, o: int) -> float:
    """Least often first."""
    return float(s.p.asked[o])
