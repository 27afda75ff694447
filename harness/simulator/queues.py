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


def _goes_first(s: Any, q: int, a: int, b: int) -> bool:
    """Whether the entry at place ``a`` goes before the one at ``b``."""
    if s.queue_key[q, a] != s.queue_key[q, b]:
        return s.queue_key[q, a] < s.queue_key[q, b]
    return s.queue_tie[q, a] < s.queue_tie[q, b]


def _swap(s: Any, q: int, a: int, b: int) -> None:
    keys, ties, objects = s.queue_key, s.queue_tie, s.queue_object
    keys[q, a], keys[q, b] = keys[q, b], keys[q, a]
    ties[q, a], ties[q, b] = ties[q, b], ties[q, a]
    objects[q, a], objects[q, b] = objects[q, b], objects[q, a]


def _sift_down(s: Any, q: int, at: int) -> None:
    size = s.queue_size[q]
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and _goes_first(s, q, child + 1, child):
            child += 1
        if not _goes_first(s, q, child, at):
            return
        _swap(s, q, at, child)
        at = child


def push(s: Any, q: int, o: int) -> None:
    """Queue a candidate; nothing if it is queued already."""
    if s.queued[o] & (1 << q) != 0:
        return
    s.queued[o] |= 1 << q
    at = s.queue_size[q]
    s.queue_size[q] = at + 1
    s.queue_key[q, at] = key(s, q, o)
    s.queue_tie[q, at] = order(s, o)
    s.queue_object[q, at] = o
    while at > 0:
        above = (at - 1) >> 1
        if not _goes_first(s, q, at, above):
            return
        _swap(s, q, at, above)
        at = above


def pop(s: Any, q: int) -> None:
    """Take away the first entry."""
    s.queued[s.queue_object[q, 0]] &= 255 - (1 << q)
    last = s.queue_size[q] - 1
    s.queue_size[q] = last
    if last > 0:
        _swap(s, q, 0, last)
        _sift_down(s, q, 0)


def set_aside(s: Any, q: int) -> None:
    """Take away the first entry until the request is over."""
    o = s.queue_object[q, 0]
    pop(s, q)
    s.queued[o] |= 1 << q
    s.aside[s.reg[ASIDE]] = o * QUEUES + q
    s.reg[ASIDE] += 1


def bring_back(s: Any) -> None:
    """Queue again what was set aside."""
    for at in range(s.reg[ASIDE]):
        o, q = s.aside[at] // QUEUES, s.aside[at] % QUEUES
        s.queued[o] &= 255 - (1 << q)
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
        _sift_down(s, q, at)
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
                s.queue_key[q, 0], s.queue_tie[q, 0] = value, tie
                _sift_down(s, q, 0)
                continue
        if pinned(s, o):
            set_aside(s, q)
            continue
        return o
    return -1
