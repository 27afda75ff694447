"""Queues of the objects that may go, smallest key first.

A binary heap a queue, each object at most once in it. Nothing is taken out when an object is
touched or stops being a candidate; what comes to the top is looked at again. That is right for keys
that only grow (LRU and its kin); policies whose keys move otherwise have them computed anew, once a
request, when the queue is first asked (``REBUILD``).
"""

from __future__ import annotations

from typing import Any

from harness.simulator.objects import candidate, order, pinned
from harness.simulator.state import ASIDE, NOW, QUEUES, REBUILD


def key(s: Any, q: int, o: int) -> float:
    """The hook's default: LRU order. See ``hooks``."""
    return order(s, o)


def _goes_first(s: Any, q: int, value: float, tie: float, at: int) -> bool:
    """Whether a key and its tie go before the entry at place ``at``."""
    if value != s.queue_key[q, at]:
        return value < s.queue_key[q, at]
    return tie < s.queue_tie[q, at]


def _place(s: Any, q: int, at: int, value: float, tie: float, o: int) -> None:
    s.queue_key[q, at] = value
    s.queue_tie[q, at] = tie
    s.queue_object[q, at] = o


def _shift(s: Any, q: int, to: int, at: int) -> None:
    s.queue_key[q, to] = s.queue_key[q, at]
    s.queue_tie[q, to] = s.queue_tie[q, at]
    s.queue_object[q, to] = s.queue_object[q, at]


def _sink(s: Any, q: int, at: int, value: float, tie: float, o: int) -> None:
    """Put an entry at place ``at`` or below it, where it belongs."""
    size = s.queue_size[q]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _goes_first(
            s, q, s.queue_key[q, child + 1], s.queue_tie[q, child + 1], child
        ):
            child += 1
        if not (
            s.queue_key[q, child] < value
            or (s.queue_key[q, child] == value and s.queue_tie[q, child] < tie)
        ):
            break
        _shift(s, q, at, child)
        at = child
    _place(s, q, at, value, tie, o)


def push(s: Any, q: int, o: int) -> None:
    """Queue a candidate; nothing if it is queued already."""
    if s.queued[o] & (1 << q) != 0:
        return
    s.queued[o] |= 1 << q
    value, tie = key(s, q, o), order(s, o)
    at = s.queue_size[q]
    s.queue_size[q] = at + 1
    while at > 0:
        above = (at - 1) >> 1
        if not _goes_first(s, q, value, tie, above):
            break
        _shift(s, q, at, above)
        at = above
    _place(s, q, at, value, tie, o)


def pop(s: Any, q: int) -> None:
    """Take away the first entry."""
    s.queued[s.queue_object[q, 0]] &= 255 - (1 << q)
    last = s.queue_size[q] - 1
    s.queue_size[q] = last
    if last > 0:
        _sink(s, q, 0, s.queue_key[q, last], s.queue_tie[q, last], s.queue_object[q, last])


def follow(s: Any, q: int, gone: int, o: int) -> None:
    """Queue ``o``, which is a candidate because ``gone`` went; mostly it is the next to go.

    It takes the place of ``gone`` if that is first in the queue still, which saves a way up and a
    way down.
    """
    first = s.queue_size[q] > 0 and s.queue_object[q, 0] == gone
    if first and s.queued[o] & (1 << q) == 0:
        s.queued[gone] &= 255 - (1 << q)
        s.queued[o] |= 1 << q
        _sink(s, q, 0, key(s, q, o), order(s, o), o)
    else:
        push(s, q, o)


def keep_aside(s: Any, q: int, o: int) -> None:
    """Queue an object when the request is over: until then it cannot go anyway."""
    if s.queued[o] & (1 << q) == 0:
        s.queued[o] |= 1 << q
        s.aside[s.reg[ASIDE]] = o * QUEUES + q
        s.reg[ASIDE] += 1


def set_aside(s: Any, q: int) -> None:
    """Take away the first entry until the request is over."""
    o = s.queue_object[q, 0]
    pop(s, q)
    keep_aside(s, q, o)


def bring_back(s: Any) -> None:
    """Queue what was set aside, if it is a candidate still."""
    for at in range(s.reg[ASIDE]):
        o, q = s.aside[at] // QUEUES, s.aside[at] % QUEUES
        s.queued[o] &= 255 - (1 << q)
        if candidate(s, q, o):
            push(s, q, o)
    s.reg[ASIDE] = 0


def rebuild(s: Any, q: int) -> None:
    """Compute all keys of a queue anew, without those that are no candidates any more."""
    kept = 0
    for at in range(s.queue_size[q]):
        o = s.queue_object[q, at]
        if candidate(s, q, o):
            s.queue_object[q, kept] = o
            s.queue_key[q, kept] = key(s, q, o)
            s.queue_tie[q, kept] = order(s, o)
            kept += 1
        else:
            s.queued[o] &= 255 - (1 << q)
    s.queue_size[q] = kept
    for at in range(kept // 2 - 1, -1, -1):
        _sink(s, q, at, s.queue_key[q, at], s.queue_tie[q, at], s.queue_object[q, at])
    s.queue_built[q] = s.reg[NOW]


def peek(s: Any, q: int) -> int:
    """The object that goes first by queue ``q`` and is not pinned; -1 if there is none."""
    again = s.cfg[REBUILD] != 0
    if again and s.queue_built[q] != s.reg[NOW]:
        rebuild(s, q)
    while s.queue_size[q] > 0:
        o = s.queue_object[q, 0]
        if not candidate(s, q, o):
            pop(s, q)
            continue
        if not again:
            value, tie = key(s, q, o), order(s, o)
            if value != s.queue_key[q, 0] or tie != s.queue_tie[q, 0]:
                _sink(s, q, 0, value, tie, o)
                continue
        if pinned(s, o):
            set_aside(s, q)
            continue
        return o
    return -1
