"""How many nodes below one are resident, without walking the tree.

Nodes are put in depth-first order, in which those below a node follow it without a gap. A byte
says whether a node is resident; counts of 512 and of 65,536 spare most of the adding up. The last
answer to each of two askers is kept up to date: who asks for a node again, or goes along a chain,
has it at once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.simulator.paths import Paths
from harness.simulator.tree_kernel import depth_first


class Descendants(NamedTuple):
    """``place`` and ``span`` int32[N] (place in depth-first order; nodes below, and itself).

    ``bits`` uint8[N], ``some`` int32[N / 512], ``many`` int32[N / 65536]; ``told`` int64[2, 2]:
    the node that each asker asked for last (-1), and its answer.
    """

    place: np.ndarray
    span: np.ndarray
    bits: np.ndarray
    some: np.ndarray
    many: np.ndarray
    told: np.ndarray


def descendants(paths: Paths) -> Descendants:
    """Nothing is resident yet."""
    nodes = paths.nodes
    return Descendants(
        *_places(paths),
        np.zeros(nodes, np.uint8),
        np.zeros((nodes >> 9) + 1, np.int32),
        np.zeros((nodes >> 16) + 1, np.int32),
        np.array([[-1, 0], [-1, 0]], np.int64),
    )


@lru_cache(maxsize=2)
def _places(paths: Paths) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """``place`` and ``span``, which all runs on the same paths share."""
    place, span = np.empty((2, paths.nodes), np.int32)
    depth_first(paths.parent, place, span, np.empty(paths.nodes, np.int32))
    return place, span


def mark(t: Any, node: int, there: bool) -> None:
    """Say whether a node is resident."""
    at = t.place[node]
    value = 1 if there else 0
    change = value - int(t.bits[at])
    if change != 0:
        t.bits[at] = value
        t.some[at >> 9] += change
        t.many[at >> 16] += change
        for asker in range(2):
            if t.told[asker, 0] >= 0 and is_below(t, t.told[asker, 0], node):
                t.told[asker, 1] += change


def is_below(t: Any, above: int, node: int) -> bool:
    """Whether a node is below another one."""
    ahead = t.place[node] - t.place[above]
    return ahead > 0 and ahead < t.span[above]


def below(t: Any, node: int, asker: int) -> int:
    """Resident nodes below a node; ``asker`` is 0 or 1."""
    last = t.told[asker, 0]
    if node == last:
        return t.told[asker, 1]
    down = t.place[node] - t.place[last]
    longer = t.span[node] - t.span[last]
    if last >= 0 and down == 1 and longer == -1:
        t.told[asker, 1] -= t.bits[t.place[node]]
    elif last >= 0 and down == -1 and longer == 1:
        t.told[asker, 1] += t.bits[t.place[last]]
    else:
        t.told[asker, 1] = _count_below(t, node)
    t.told[asker, 0] = node
    return t.told[asker, 1]


def _count_below(t: Any, node: int) -> int:
    first = int(t.place[node]) + 1
    last = first + int(t.span[node]) - 1
    total = 0
    while first < last:
        if first & 65535 == 0 and first + 65536 <= last:
            total += t.many[first >> 16]
            first += 65536
        elif first & 511 == 0 and first + 512 <= last:
            total += t.some[first >> 9]
            first += 512
        else:
            stop = min(last, (first | 511) + 1)
            for at in range(first, stop):
                total += t.bits[at]
            first = stop
    return total
