"""Making synthetic requests, compiled: live sessions, their clocks, contexts and block names.

A block is named by whose it is — a system prompt, a document, or a session — its number, and, in a
session, the version of the history it belongs to: going back makes a new version from there on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.stores.index import mix_pair
from harness.stores.jit import inner_kernel, kernel

COLUMNS = 6
"""Rows of the table: session, turn, input, output and new tokens, blocks."""

VERSIONS = 64
"""Versions of a history that are remembered; one more starts it over."""

_DOCUMENTS = 1 << 16
_SESSIONS_MADE, _VERSIONS_MADE, _DOCUMENTS_MADE, _WAITING = 0, 1, 2, 3
_NOW, _NEXT_ARRIVAL = 0, 1


class Sizes(NamedTuple):
    """A log-normal number: median, and the standard deviation of its logarithm."""

    median: float
    sigma: float


class Shape(NamedTuple):
    """What a specification says; ``*_share`` arrays are cumulative popularity."""

    seed: np.uint64
    block: int
    gap_s: float
    lane_share: NDArray[np.float64]
    think: Sizes
    shared: int
    group_share: NDArray[np.float64]
    document: Sizes
    document_new: float
    document_window: float
    document_asked_again: float
    first: Sizes
    new: Sizes
    large: Sizes
    large_share: float
    output: Sizes
    turns: Sizes
    branch: float
    restart: float
    most: int
    restart_when_full: bool


class Traffic(NamedTuple):
    """Live sessions, one a lane; a lane whose ``left`` is 0 is free.

    ``heap`` holds the lanes that wait for their next turn (open arrivals), by ``due``.
    """

    session: NDArray[np.int64]
    turn: NDArray[np.int64]
    left: NDArray[np.int64]
    context: NDArray[np.int64]
    before: NDArray[np.int64]
    group: NDArray[np.int64]
    document: NDArray[np.int64]
    common: NDArray[np.int64]
    due: NDArray[np.float64]
    version_start: NDArray[np.int64]
    version: NDArray[np.int64]
    versions: NDArray[np.int64]
    heap: NDArray[np.int64]
    document_tokens: NDArray[np.int64]
    ints: NDArray[np.int64]
    times: NDArray[np.float64]
    open_loop: bool


_PER_LANE = (
    "session", "turn", "left", "context", "before", "group", "document", "common", "due",
    "version_start", "version", "versions", "heap",
)  # fmt: skip


def new_traffic(lanes: int, *, open_loop: bool) -> Traffic:
    """No session yet."""

    def numbers() -> NDArray[np.int64]:
        return np.zeros(lanes, np.int64)

    return Traffic(
        session=numbers(),
        turn=numbers(),
        left=numbers(),
        context=numbers(),
        before=numbers(),
        group=numbers(),
        document=numbers(),
        common=numbers(),
        due=np.zeros(lanes, np.float64),
        version_start=np.zeros((lanes, VERSIONS), np.int64),
        version=np.zeros((lanes, VERSIONS), np.int64),
        versions=numbers(),
        heap=numbers(),
        document_tokens=np.zeros(_DOCUMENTS, np.int64),
        ints=np.zeros(4, np.int64),
        times=np.zeros(2, np.float64),
        open_loop=open_loop,
    )


def grow_traffic(state: Traffic, requests: int) -> Traffic:
    """Lanes enough for ``requests`` more sessions where they arrive without limit."""
    lanes = len(state.session)
    if not state.open_loop or np.count_nonzero(state.left == 0) >= requests:
        return state
    changes: dict[str, Any] = {}
    for name in _PER_LANE:
        old = getattr(state, name)
        grown = np.zeros((2 * lanes + requests, *old.shape[1:]), old.dtype)
        grown[:lanes] = old
        changes[name] = grown
    return state._replace(**changes)


@inner_kernel
def _draw(rng: np.random.Generator, sizes: Sizes) -> float:
    return sizes.median * np.exp(sizes.sigma * rng.standard_normal())


@inner_kernel
def _count(rng: np.random.Generator, sizes: Sizes) -> int:
    return max(1, int(np.rint(_draw(rng, sizes))))


@inner_kernel
def _push(t: Traffic, lane: int) -> None:
    at = t.ints[_WAITING]
    t.ints[_WAITING] = at + 1
    while at > 0:
        above = (at - 1) // 2
        if t.due[t.heap[above]] <= t.due[lane]:
            break
        t.heap[at] = t.heap[above]
        at = above
    t.heap[at] = lane


@inner_kernel
def _pop(t: Traffic) -> int:
    top = t.heap[0]
    t.ints[_WAITING] -= 1
    size = t.ints[_WAITING]
    lane = t.heap[size]
    at = 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and t.due[t.heap[below + 1]] < t.due[t.heap[below]]:
            below += 1
        if t.due[lane] <= t.due[t.heap[below]]:
            break
        t.heap[at] = t.heap[below]
        at = below
    t.heap[at] = lane
    return top


@inner_kernel
def _free_lane(t: Traffic, start: int) -> int:
    for step in range(len(t.left)):
        lane = (start + step) % len(t.left)
        if t.left[lane] == 0:
            return lane
    return -1


@inner_kernel
def _next_lane(p: Shape, t: Traffic, rng: np.random.Generator) -> int:
    """Advance the clock to the next request; the lane whose it is."""
    if not t.open_loop:
        t.times[_NOW] += p.gap_s * rng.exponential()
        return int(np.searchsorted(p.lane_share, rng.random()))
    if t.ints[_WAITING] > 0 and t.due[t.heap[0]] <= t.times[_NEXT_ARRIVAL]:
        lane = _pop(t)
        t.times[_NOW] = t.due[lane]
        return lane
    t.times[_NOW] = t.times[_NEXT_ARRIVAL]
    t.times[_NEXT_ARRIVAL] += p.gap_s * rng.exponential()
    return _free_lane(t, t.ints[_SESSIONS_MADE])


@inner_kernel
def _asked_again(p: Shape, document: int) -> bool:
    """Whether a document is one of those that are asked about more than once."""
    chance = mix_pair(p.seed, np.uint64(document)) >> np.uint64(1)
    return bool(chance < np.uint64(p.document_asked_again * 2.0**63))


@inner_kernel
def _pick_document(p: Shape, t: Traffic, rng: np.random.Generator) -> int:
    """A new document, or one of the recent ones; -1 where there are none."""
    if p.document_new == 0:
        return -1
    made = t.ints[_DOCUMENTS_MADE]
    old = made - 1 - int(rng.exponential() * p.document_window)
    while old >= 0 and not _asked_again(p, old):
        old -= 1
    if rng.random() < p.document_new or old < 0 or made - old > _DOCUMENTS:
        t.document_tokens[made % _DOCUMENTS] = _count(rng, p.document)
        t.ints[_DOCUMENTS_MADE] = made + 1
        return made
    return old


@inner_kernel
def _begin(p: Shape, t: Traffic, rng: np.random.Generator, lane: int) -> None:
    t.session[lane] = t.ints[_SESSIONS_MADE]
    t.ints[_SESSIONS_MADE] += 1
    t.turn[lane] = 0
    t.left[lane] = _count(rng, p.turns)
    t.group[lane] = np.searchsorted(p.group_share, rng.random())
    document = _pick_document(p, t, rng)
    t.document[lane] = document
    size = t.document_tokens[document % _DOCUMENTS] if document >= 0 else 0
    t.common[lane] = min(p.shared + size, p.most - 1)
    t.context[lane] = t.common[lane]
    t.before[lane] = t.common[lane]
    t.versions[lane] = 0
    _go_back(p, t, lane, t.common[lane])


@inner_kernel
def _go_back(p: Shape, t: Traffic, lane: int, context: int) -> None:
    """Cut the history to ``context`` tokens; what follows is a version of its own."""
    block = context // p.block
    kept = t.versions[lane]
    while kept > 0 and t.version_start[lane, kept - 1] >= block:
        kept -= 1
    if kept == VERSIONS:
        kept = 0
    t.version_start[lane, kept] = block
    t.version[lane, kept] = t.ints[_VERSIONS_MADE]
    t.ints[_VERSIONS_MADE] += 1
    t.versions[lane] = kept + 1
    t.context[lane] = context


@inner_kernel
def _name_blocks(
    p: Shape, t: Traffic, lane: int, ids: NDArray[np.uint64], first: int, blocks: int
) -> None:
    """Ids of the prompt: system prompt, document, then the session's history by version."""
    system = p.shared // p.block
    common = t.common[lane] // p.block
    owner = mix_pair(p.seed, np.uint64(4 * t.group[lane]))
    paper = mix_pair(p.seed, np.uint64(4 * (t.document[lane] + 1) + 1))
    at = -1
    own = np.uint64(0)
    for b in range(blocks):
        if b < system:
            name = owner
        elif b < common:
            name = paper
        else:
            while at + 1 < t.versions[lane] and t.version_start[lane, at + 1] <= b:
                at += 1
                own = mix_pair(p.seed, np.uint64(4 * t.version[lane, at] + 2))
            name = own
        ids[first + b] = mix_pair(name, np.uint64(b))


@inner_kernel
def _turn(
    p: Shape, t: Traffic, rng: np.random.Generator, lane: int, table: NDArray[np.int64], row: int
) -> int:
    """One request of the session in ``lane``; its blocks."""
    chance = rng.random()
    user = _count(rng, p.first if t.turn[lane] == 0 else p.new)
    if p.large_share > 0 and t.turn[lane] > 0 and rng.random() < p.large_share:
        user = _count(rng, p.large)
    full = t.context[lane] + user > p.most and p.restart_when_full
    if t.turn[lane] > 0 and chance < p.branch:
        _go_back(p, t, lane, t.before[lane])
    elif t.turn[lane] > 0 and (chance < p.branch + p.restart or full):
        _go_back(p, t, lane, t.common[lane])
        user = _count(rng, p.first)
    prompt = min(t.context[lane] + user, p.most)
    output = _count(rng, p.output)
    table[0, row], table[1, row] = t.session[lane], t.turn[lane]
    table[2, row], table[3, row] = prompt, output
    table[4, row] = prompt - t.context[lane] + output
    table[5, row] = prompt // p.block
    t.before[lane] = t.context[lane]
    t.context[lane] = prompt + output
    t.turn[lane] += 1
    t.left[lane] -= 1
    return table[5, row]


@kernel
def make_requests(
    p: Shape, t: Traffic, rng: np.random.Generator, times: NDArray[np.float64],
    table: NDArray[np.int64], ids: NDArray[np.uint64], most: int,
) -> int:  # fmt: skip
    """Fill ``times``, ``table`` and ``ids``; how many requests fit (a prompt has ``most`` ids)."""
    used = 0
    for row in range(len(times)):
        if used + most > len(ids):
            return row
        lane = _next_lane(p, t, rng)
        if t.left[lane] == 0:
            _begin(p, t, rng, lane)
        times[row] = t.times[_NOW]
        blocks = _turn(p, t, rng, lane, table, row)
        _name_blocks(p, t, lane, ids, used, blocks)
        used += blocks
        if t.context[lane] >= p.most and not p.restart_when_full:
            t.left[lane] = 0
        if t.open_loop and t.left[lane] > 0:
            t.due[lane] = t.times[_NOW] + _draw(rng, p.think)
            _push(t, lane)
    return len(times)
