"""What was resident at an earlier tick of the request, near a node: a key may be of then.

What left for nowhere in this request is listed; a state says since when it is resident. Looks for
the next resident state above remember where they ended: a conversation leaves a long line of states
that are gone, which would be passed at each look.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from harness.simulator.descendants import below, is_below
from harness.simulator.objects import class_of, node_of, resident, state_at
from harness.simulator.state import TICK


class Past(NamedTuple):
    """``gone`` int32[2, nodes], ``gone_tick`` int64[2, nodes], ``gone_count`` int64[2]: nodes whose
    chunk or state left for nowhere in this request. ``came`` int64[nodes]: tick at which a node's
    state became resident. ``near`` int32[nodes]: where the next resident state above a node was
    found, ``near_epoch`` int32[nodes] when; good as long as ``epoch`` int64[1] is the same, while
    no state is made above others that are older."""

    gone: np.ndarray
    gone_tick: np.ndarray
    gone_count: np.ndarray
    came: np.ndarray
    near: np.ndarray
    near_epoch: np.ndarray
    epoch: np.ndarray


def past(nodes: int) -> Past:
    """Nothing was resident."""
    return Past(
        np.empty((2, nodes), np.int32),
        np.empty((2, nodes), np.int64),
        np.zeros(2, np.int64),
        np.zeros(nodes, np.int64),
        np.empty(nodes, np.int32),
        np.full(nodes, -1, np.int32),
        np.zeros(1, np.int64),
    )


def begin_past(t: Any) -> None:
    """A new request: nothing has left in it."""
    t.gone_count[0] = 0
    t.gone_count[1] = 0


def note_gone(s: Any, t: Any, o: int) -> None:
    """An object left for nowhere."""
    kind = class_of(s, o)
    at = t.gone_count[kind]
    t.gone[kind, at] = node_of(s, o)
    t.gone_tick[kind, at] = s.reg[TICK]
    t.gone_count[kind] = at + 1


def note_state(s: Any, t: Any, node: int) -> bool:
    """A node's state became resident; whether that makes wrong what was remembered of those below.

    It does if nodes below were there before.
    """
    t.came[node] = s.reg[TICK]
    under = s.first_child[node]
    while under >= 0:
        if s.stamp[under] >= 0:
            t.epoch[0] += 1
            return True
        under = s.next_child[under]
    return False


def chunks_with(s: Any, t: Any, tree: Any, node: int, tick: int, asker: int) -> int:
    """A chunk and those below it, if it had children at a tick; else 1."""
    had_children, more = s.kids[node] > 0, 0
    at = t.gone_count[0] - 1
    while at >= 0 and t.gone_tick[0, at] > tick:
        had_children = had_children or s.parent[t.gone[0, at]] == node
        more += 1 if is_below(tree, node, t.gone[0, at]) else 0
        at -= 1
    return 1 + below(tree, node, asker) + more if had_children else 1


def chunks_since(s: Any, t: Any, tree: Any, node: int, tick: int) -> int:
    """Chunks from the last state before a node's that was resident at a tick, to the node."""
    above = resident_above(s, t, node)
    while above >= 0 and t.came[above] > tick:
        above = resident_above(s, t, above)
    at = t.gone_count[1] - 1
    while at >= 0 and t.gone_tick[1, at] > tick:
        left_node = t.gone[1, at]
        deeper = above < 0 or s.depth[left_node] > s.depth[above]
        if deeper and is_below(tree, left_node, node):
            above = left_node
        at -= 1
    return s.depth[node] - (s.depth[above] if above >= 0 else -1)


def resident_above(s: Any, t: Any, node: int) -> int:
    """The nearest node above one whose state is resident, -1 if none."""
    above = next_above(s, t, node)
    while above >= 0 and not resident(s, state_at(s, above)):
        above = next_above(s, t, above)
    t.near[node] = above
    t.near_epoch[node] = t.epoch[0]
    return above


def next_above(s: Any, t: Any, node: int) -> int:
    """The node above to look at next: those between hold no resident state."""
    if t.near_epoch[node] == t.epoch[0]:
        return t.near[node]
    return s.made_before[node]
