"""Queues of the objects that may go, smallest key first.

A binary heap a queue, each object at most once in it. Nothing is taken out when an object is
touched or stops being a candidate; what comes to the top is looked at again. That is right for keys
that only grow (LRU and its kin). Keys that move otherwise hold for a request: they are those of the
time when the queue is first asked in it, or of the object's joining (``REBUILD``).

Such keys are computed anew each request, or, if the policy says how far they can fall in its next
``AHEAD`` requests (``least``), only as far as needed: objects wait in the order of that bound, and
are opened, their key computed, while their bound is not above the first key. What was opened goes
back when the queue is asked in the next request.
"""

from __future__ import annotations

from typing import Any

from harness.simulator.objects import candidate, order, pinned
from harness.simulator.state import AHEAD, ASIDE, NOW, QUEUES, REBUILD, TICK

_NO_KEY = float("inf")
"""Instead of a key for what is opened while it is pinned: it cannot go in this request."""


def key(s: Any, q: int, o: int) -> float:
    """The hook's default: LRU order. See ``hooks``."""
    return order(s, o)


def key_at(s: Any, q: int, o: int, tick: int) -> float:
    """The hook's default: keys do not depend on what happens in a request."""
    return key(s, q, o)


def least(s: Any, q: int, o: int, until: int) -> float:
    """The hook's default: nothing is known."""
    return -_NO_KEY


def _anew(s: Any, q: int) -> bool:
    """Whether keys of queue ``q`` hold for a request."""
    return s.cfg[REBUILD] & (1 << q) != 0


def _bounded(s: Any, q: int) -> bool:
    """Whether objects of queue ``q`` wait in the order of a bound; then part q + QUEUES is open."""
    return s.cfg[AHEAD] != 0 and _anew(s, q)


def part_of(s: Any, q: int) -> int:
    """The heap whose first entry is the first of queue ``q``, once that was asked."""
    return q + QUEUES if _bounded(s, q) else q


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


def _insert(s: Any, part: int, value: float, tie: float, o: int) -> None:
    at = s.queue_size[part]
    s.queue_size[part] = at + 1
    while at > 0:
        above = (at - 1) >> 1
        if not _goes_first(s, part, value, tie, above):
            break
        _shift(s, part, at, above)
        at = above
    _place(s, part, at, value, tie, o)


def _remove_first(s: Any, part: int) -> None:
    last = s.queue_size[part] - 1
    s.queue_size[part] = last
    if last > 0:
        key_of_last, tie_of_last = s.queue_key[part, last], s.queue_tie[part, last]
        _sink(s, part, 0, key_of_last, tie_of_last, s.queue_object[part, last])


def _heapify(s: Any, part: int) -> None:
    for at in range(s.queue_size[part] // 2 - 1, -1, -1):
        value, tie = s.queue_key[part, at], s.queue_tie[part, at]
        _sink(s, part, at, value, tie, s.queue_object[part, at])


def push(s: Any, q: int, o: int) -> None:
    """Queue a candidate; nothing if it is queued already."""
    if s.queued[o] & (1 << q) != 0:
        return
    s.queued[o] |= 1 << q
    if _bounded(s, q):
        _join(s, q, o)
        _wait(s, q, o)
    else:
        _insert(s, q, key(s, q, o), order(s, o), o)


def pop(s: Any, q: int) -> None:
    """Take away the first entry."""
    if _bounded(s, q):
        remember(s, q, s.queue_object[q + QUEUES, 0])
        _remove_open(s, q)
    else:
        s.queued[s.queue_object[q, 0]] &= 255 - (1 << q)
        _remove_first(s, q)


def follow(s: Any, q: int, gone: int, o: int) -> None:
    """Queue ``o``, which is a candidate because ``gone`` went; mostly it is the next to go.

    It takes the place of ``gone`` if that is first in the queue still, which saves a way up and a
    way down.
    """
    part = part_of(s, q)
    first = s.queue_size[part] > 0 and s.queue_object[part, 0] == gone
    if not first or s.queued[o] & (1 << q) != 0:
        push(s, q, o)
    elif part != q:
        bits = (1 << q) | (1 << part)
        s.queued[gone] &= 255 - bits
        s.queued[o] |= bits
        _join(s, q, o)
        _sink(s, part, 0, key_at(s, q, o, _tick_of(s, q, o)), order(s, o), o)
    else:
        s.queued[gone] &= 255 - (1 << q)
        s.queued[o] |= 1 << q
        _sink(s, q, 0, key(s, q, o), order(s, o), o)


def keep_aside(s: Any, q: int, o: int) -> None:
    """Queue an object when the request is over: until then it cannot go anyway."""
    if s.queued[o] & (1 << q) == 0:
        s.queued[o] |= 1 << q
        s.aside[s.reg[ASIDE]] = o * QUEUES + q
        s.reg[ASIDE] += 1


def set_aside(s: Any, q: int) -> None:
    """Take away the first entry until the request is over."""
    o = s.queue_object[part_of(s, q), 0]
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
    _heapify(s, q)
    s.queue_built[q] = s.reg[NOW]


def _join(s: Any, q: int, o: int) -> None:
    """Its key is that of now, unless it has one in this request."""
    if s.queue_built[q] != s.reg[NOW] or s.joined[q, o] < s.queue_tick[q]:
        s.joined[q, o] = s.reg[TICK]


def remember(s: Any, q: int, o: int) -> None:
    """A candidate is about to be none; should it come back in this request, its key is the same."""
    if _bounded(s, q) and s.queue_built[q] == s.reg[NOW] and s.queued[o] & (1 << q) != 0:
        s.joined[q, o] = _tick_of(s, q, o)


def _tick_of(s: Any, q: int, o: int) -> int:
    """When an object of a queue with bounds got its key of this request."""
    return max(s.queue_tick[q], s.joined[q, o])


def _remove_open(s: Any, q: int) -> None:
    s.queued[s.queue_object[q + QUEUES, 0]] &= 255 - (1 << q) - (1 << (q + QUEUES))
    _remove_first(s, q + QUEUES)


def _wait(s: Any, q: int, o: int) -> None:
    """Let an object wait, by its bound; it may do so twice, of which one is passed over.

    If the last entry has the same bound and is no candidate any more, its place is taken: a chain
    that comes node by node waits as one object.
    """
    if s.queue_size[q] == s.queue_object.shape[1]:
        _bound_anew(s, q)
    value, last = least(s, q, o, s.queue_until[q]), s.queue_size[q] - 1
    before = s.queue_object[q, last] if last >= 0 and s.queue_key[q, last] == value else -1
    opened = 1 << (q + QUEUES)
    if before >= 0 and s.queued[before] & opened == 0 and not candidate(s, q, before):
        s.queued[before] &= 255 - (1 << q)
        s.queue_object[q, last] = o
    else:
        _insert(s, q, value, 0.0, o)


def lower(s: Any, q: int, o: int) -> None:
    """Look again at an object whose key will fall by more than ``least`` said before."""
    if _bounded(s, q) and s.queued[o] & (1 << q) != 0:
        _wait(s, q, o)


def expire(s: Any, q: int) -> None:
    """From the next time that keys hold anew, no bound holds any more."""
    built = s.queue_built[q] == s.reg[NOW]
    s.queue_until[q] = s.reg[NOW] + 1 if built else s.reg[NOW]


def _bound_anew(s: Any, q: int) -> None:
    """Compute all bounds of a queue anew, of each waiting candidate once."""
    kept = 0
    opened = 1 << (q + QUEUES)
    for at in range(s.queue_size[q]):
        o = s.queue_object[q, at]
        if s.queued[o] & (1 << q) == 0 or s.queued[o] & opened != 0:
            continue
        if candidate(s, q, o):
            s.queued[o] |= opened  # marks it as met
            s.queue_object[q, kept] = o
            s.queue_key[q, kept] = least(s, q, o, s.queue_until[q])
            s.queue_tie[q, kept] = 0.0
            kept += 1
        else:
            s.queued[o] &= 255 - (1 << q)
    s.queue_size[q] = kept
    for at in range(kept):
        s.queued[s.queue_object[q, at]] &= 255 - opened
    _heapify(s, q)


def _hold_anew(s: Any, q: int) -> None:
    """A new request asks a queue with bounds: what was open waits again."""
    part = q + QUEUES
    s.reg[TICK] += 1
    s.queue_tick[q] = s.reg[TICK]
    if s.reg[NOW] >= s.queue_until[q]:
        s.queue_until[q] = s.reg[NOW] + s.cfg[AHEAD]
        _bound_anew(s, q)
    for at in range(s.queue_size[part]):
        o = s.queue_object[part, at]
        s.queued[o] &= 255 - (1 << part)
        if candidate(s, q, o):
            _wait(s, q, o)
        else:
            s.queued[o] &= 255 - (1 << q)
    s.queue_size[part] = 0
    s.queue_built[q] = s.reg[NOW]


def ask(s: Any, q: int) -> None:
    """Let keys of a queue with bounds be those of now, if it was not asked in this request."""
    if s.queue_built[q] != s.reg[NOW]:
        _hold_anew(s, q)


def _open(s: Any, q: int) -> None:
    """Compute the keys of those waiting that may go before the first open one."""
    part = q + QUEUES
    while s.queue_size[q] > 0:
        if s.queue_size[part] > 0 and s.queue_key[q, 0] > s.queue_key[part, 0]:
            break
        o = s.queue_object[q, 0]
        _remove_first(s, q)
        if s.queued[o] & (1 << q) == 0 or s.queued[o] & (1 << part) != 0:
            continue
        if not candidate(s, q, o):
            s.queued[o] &= 255 - (1 << q)
            continue
        s.queued[o] |= 1 << part
        value = _NO_KEY if pinned(s, o) else key_at(s, q, o, _tick_of(s, q, o))
        _insert(s, part, value, order(s, o), o)


def _peek_bounded(s: Any, q: int) -> int:
    ask(s, q)
    part = q + QUEUES
    while True:
        _open(s, q)
        if s.queue_size[part] == 0:
            return -1
        o = s.queue_object[part, 0]
        if not candidate(s, q, o):
            _remove_open(s, q)
        elif s.queue_key[part, 0] == _NO_KEY:
            return -1
        elif pinned(s, o):
            set_aside(s, q)
        else:
            return o


def peek(s: Any, q: int) -> int:
    """The object that goes first by queue ``q`` and is not pinned; -1 if there is none."""
    if _bounded(s, q):
        return _peek_bounded(s, q)
    again = _anew(s, q)
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
