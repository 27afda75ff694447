"""What was resident at an earlier tick of the request, near a node: a key may be of then.

What left for nowhere in this request is listed; a state says since when it is resident. Looks for
the next resident state above remember where they ended: a conversation leaves a long line of states
that are gone, which would be passed at each look.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from harness.simulator.descendants import below, is_below
from harness.simulator.objects import class_of, node_of, resident, state_at, state_number
from harness.simulator.state import TICK


class Past(NamedTuple):
    """``gone`` int32[2, nodes], ``gone_tick`` int64[2, nodes], ``gone_count`` int64[2]: nodes whose
    chunk or state left for nowhere in this request. ``came`` int64[states]: tick at which a
    state became resident. ``near`` int32[states]: node where the next resident state above one was
    found, ``near_epoch`` int32[states] when; good as long as ``epoch`` int64[1] is the same, while
    no state is made above others that are older."""

    gone: np.ndarray
    gone_tick: np.ndarray
    gone_count: np.ndarray
    came: np.ndarray
    near: np.ndarray
    near_epoch: np.ndarray
    epoch: np.ndarray


def past(nodes: int, states: int) -> Past:
    """Nothing was resident."""
    return Past(
        np.empty((2, nodes), np.int32),
        np.empty((2, nodes), np.int64),
        np.zeros(2, np.int64),
        np.zeros(states, np.int64),
        np.empty(states, np.int32),
        np.full(states, -1, np.int32),
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


def note_state(s: Any, t: Any, o: int) -> bool:
    """A state became resident; whether that makes wrong what was remembered of those below.

    It does if nodes below were there before.
    """
    t.came[state_number(s, o)] = s.reg[TICK]
    under = s.first_child[node_of(s, o)]
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


def chunks_since(s: Any, t: Any, tree: Any, o: int, tick: int) -> int:
    """Chunks from the last state before a state that was resident at a tick, to its node."""
    node, above = node_of(s, o), resident_above(s, t, o)
    while above >= 0 and t.came[state_number(s, state_at(s, above))] > tick:
        above = resident_above(s, t, state_at(s, above))
    at = t.gone_count[1] - 1
    while at >= 0 and t.gone_tick[1, at] > tick:
        left_node = t.gone[1, at]
        deeper = above < 0 or s.depth[left_node] > s.depth[above]
        if deeper and is_below(tree, left_node, node):
            above = left_node
        at -= 1
    return s.depth[node] - (s.depth[above] if above >= 0 else -1)


def resident_above(s: Any, t: Any, o: int) -> int:
    """The nearest node above a state whose own is resident, -1 if none."""
    above = next_above(s, t, o)
    while above >= 0 and not resident(s, state_at(s, above)):
        above = next_above(s, t, state_at(s, above))
    t.near[state_number(s, o)] = above
    t.near_epoch[state_number(s, o)] = t.epoch[0]
    return above


def next_above(s: Any, t: Any, o: int) -> int:
    """The node above to look at next: those between hold no resident state."""
    number = state_number(s, o)
    if t.near_epoch[number] == t.epoch[0]:
        return t.near[number]
    return s.made_before[node_of(s, o)]
