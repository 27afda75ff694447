"""HotPrefix in the form of Gandalf's paper: a prefix enters DRAM only if it is hot enough.

With room in DRAM, one that was demanded ``hot`` times; without, one whose frequency times its clock
is above that of the coldest entry. What is refused is dropped, not written; what leaves DRAM for a
newcomer is written. Ours: a node's chunk and state share its frequency, which counts demands, the
first included, and survives eviction; the clock is 8 after a demand and falls by 1, down to 1, with
each eighth of what DRAM holds that is put there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from harness.simulator.hooks import (
    DRAM,
    DROP,
    Parameters,
    World,
    node_of,
    peek,
    size_of,
)
from harness.simulator.state import CAP_DRAM, NODES, USED_DRAM

REBUILD = True

_TOP = 8
_HOT, _STEP, _INSERTIONS = range(3)


class Settings(Parameters):
    """``hot``: demands that let a prefix in while there is room."""

    hot: int = Field(2, ge=1, le=1000)


class Own(NamedTuple):
    """``demands`` int64[nodes], ``demanded_at`` int64[nodes] (insertions so far), ``numbers``."""

    demands: np.ndarray
    demanded_at: np.ndarray
    numbers: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Nothing was demanded yet."""
    step = max(world.dram_bytes // world.sizes.chunk_bytes // _TOP, 1)
    return Own(
        np.zeros(world.nodes, np.int64),
        np.zeros(world.nodes, np.int64),
        np.array([settings.hot, step, 0], np.int64),
    )


def heat(s: Any, o: int) -> float:
    """Frequency times clock."""
    node = node_of(s, o)
    steps = (s.p.numbers[_INSERTIONS] - s.p.demanded_at[node]) // s.p.numbers[_STEP]
    return float(s.p.demands[node] * max(_TOP - steps, 1))


def demanded(s: Any, o: int) -> None:
    """One more demand; those of a state are counted with its chunk."""
    if o < s.cfg[NODES]:
        s.p.demands[o] += 1
        s.p.demanded_at[o] = s.p.numbers[_INSERTIONS]


def used(s: Any, first: int, count: int) -> None:
    """Demanded, and found."""
    for o in range(first, first + count):
        demanded(s, o)


def created(s: Any, o: int) -> None:
    """Demanded, and not found."""
    demanded(s, o)


def recomputed(s: Any, o: int) -> None:
    """Demanded, and found behind no state."""
    demanded(s, o)


def admit(s: Any, o: int) -> int:
    """The filter."""
    if s.reg[USED_DRAM] + size_of(s, o) <= s.cfg[CAP_DRAM]:
        return DRAM if s.p.demands[node_of(s, o)] >= s.p.numbers[_HOT] else 0
    coldest = peek(s, DROP)
    return DRAM if coldest >= 0 and heat(s, o) > heat(s, coldest) else 0


def key(s: Any, q: int, o: int) -> float:
    """Coldest first."""
    return heat(s, o)


def entered(s: Any, o: int, tier: int) -> None:
    """The clock of the others goes on."""
    if tier == DRAM:
        s.p.numbers[_INSERTIONS] += 1
