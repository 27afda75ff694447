"""What kernels and policies ask about an object. Plain functions: ``bind`` compiles them."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.simulator.state import (
    ANY_NODE,
    DRAM,
    DROP,
    EVICT,
    EVICT_ANY_TIER,
    HERE,
    LEAF,
    MOVE,
    NODES,
    NOW,
    SIZE_FULL,
    SSD,
)

STAMP_STEP = 4194304.0
"""Of ``order``: more than depth and class of any object make up, and a power of two."""


def class_of(s: Any, o: int) -> int:
    """0 full attention, 1 fixed state."""
    return 1 if o >= s.cfg[NODES] else 0


def node_of(s: Any, o: int) -> int:
    """The node at whose end the object lies."""
    return s.made_at[o - s.cfg[NODES]] if o >= s.cfg[NODES] else o


def state_at(s: Any, node: int) -> Any:
    """The state of a node, as an object; -1 if none is ever made there."""
    return np.int64(s.state_of[node])  # int() would keep it int32, and compile all twice


def state_number(s: Any, o: int) -> int:
    """A state's place among the states."""
    return o - s.cfg[NODES]


def identity(s: Any, o: int) -> int:
    """A number of the object that does not depend on which other states are ever made."""
    return node_of(s, o) + s.cfg[NODES] * class_of(s, o)


def size_of(s: Any, o: int) -> int:
    """Bytes."""
    return s.cfg[SIZE_FULL + class_of(s, o)]


def order(s: Any, o: int) -> float:
    """LRU order, smallest first: oldest touch, then deepest node, then its state before its chunk.

    Unique among objects that were ever touched, so it also settles all ties.
    """
    at = node_of(s, o)
    return float(s.stamp[o]) * STAMP_STEP - 2.0 * float(s.depth[at]) - class_of(s, o)


def pinned(s: Any, o: int) -> bool:
    """Whether the request being served uses the object or has made it."""
    return s.stamp[o] == s.reg[NOW]


def in_dram(s: Any, o: int) -> bool:
    """Whether a copy is in DRAM."""
    return s.flag[o] & DRAM != 0


def on_ssd(s: Any, o: int) -> bool:
    """Whether a copy is on the SSD."""
    return s.flag[o] & SSD != 0


def resident(s: Any, o: int) -> bool:
    """Whether the object is anywhere."""
    return s.flag[o] & HERE != 0


def session_of(s: Any, o: int) -> int:
    """The session whose request touched the object last."""
    return s.session[s.stamp[o]]


def chunks_behind(s: Any, o: int) -> int:
    """Chunks from the last state before this one that is still resident, to this one."""
    node = node_of(s, o)
    above = s.made_before[node]
    while above >= 0 and not resident(s, state_at(s, above)):
        above = s.made_before[above]
    return s.depth[node] - (s.depth[above] if above >= 0 else -1)


def candidate(s: Any, q: int, o: int) -> bool:
    """Whether the structure lets the object go by way of queue ``q``."""
    if q == EVICT:
        if s.flag[o] & SSD == 0:
            return False
    elif s.flag[o] & DRAM == 0:
        return False
    if o >= s.cfg[NODES]:
        return True
    if q == MOVE:
        above = s.parent[o]
        return above < 0 or s.flag[above] & DRAM == 0
    if s.cfg[LEAF] == 0:
        if s.cfg[ANY_NODE] != 0:
            return True
        return s.kids_dram[o] == 0 if q == DROP else s.kids_ssd[o] == 0
    if q == EVICT and s.cfg[EVICT_ANY_TIER] != 0:
        return s.kids_ssd[o] == 0
    return s.kids[o] == 0
