"""Gandalf: what leaves DRAM is written if its loss would cost more than the flash it wears.

Equations 6 to 8, sections 3.3 and 3.4 of the paper. On pressure in DRAM there is one object to
drop, of all leaves the one with the smallest loss for each byte and request of waiting, and of each
class some to move, the root-side ones that wait longest. A candidate passes the gate if its loss is
more than ``alpha`` times the price of the write and of what the SSD loses for it; the one that
passes by most is moved, else the leaf is dropped.

Where the paper leaves a choice: a session's idle time a counts requests; p(a) is the share that
came back of the sessions that were idle for as long, in buckets of powers of two, one session that
came back being taken for granted; a session silent for 20 times the median gap never comes back,
until it does. A wait is as long as the idle time, at least 1. Prices are derived from the paper's
figure 14 and its lifetimes (the text gives none).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveFloat

from harness.simulator.descendants import Descendants, below, descendants, mark
from harness.simulator.hooks import (
    DROP,
    EVICT,
    MOVE,
    MOVE_STATE,
    Parameters,
    World,
    class_of,
    node_of,
    on_ssd,
    peek,
    pop,
    push,
    resident,
    session_of,
    size_of,
    state_at,
)
from harness.simulator.idle import Idle, came_back, idle_table, share_back
from harness.simulator.state import (
    CAP_SSD,
    NOW,
    SIZE_FULL,
    SIZE_STATE,
    SUPERSEDED,
    USED,
    USED_SSD,
    WRITES,
)

REBUILD = True
EVICT_ANY_TIER = True
STRUCTURES = ("leaf",)

_ALPHA, _CHUNK_USD, _BYTE_USD, _LIFE_S, _TBW = range(5)
_CROSS, _CANDIDATES, _SUM, _PREDICTED, _EPOCH = range(5)
_HELD = 1 << 16
"""Objects that a charge may add up."""


class Settings(Parameters):
    """``alpha`` weighs wear against hits; ``target_days`` is a life that prices are scaled for.

    ``gate=cross`` compares the object to drop with the price of the move; ``charge=sum`` charges
    all that the SSD gives up, not the cheapest; ``state_hits=predicted`` multiplies a state's one
    expected hit by the session's chance to come back.
    """

    alpha: float = Field(1.0, ge=0)
    gate: Literal["same", "cross"] = "same"
    charge: Literal["cheapest", "sum"] = "cheapest"
    candidates: int = Field(1, ge=1, le=64)
    state_hits: Literal["once", "predicted"] = "once"
    target_days: PositiveFloat | None = None
    gpu_usd_per_hour: PositiveFloat = 2.29
    prefill_tokens_s: PositiveFloat = 60_000.0
    ssd_usd: PositiveFloat = 1655.0
    tbw_bytes: PositiveFloat = 1825e12


class Own(NamedTuple):
    """``price`` float64[5], ``option`` int64[5]; the predictor; the tree; room for candidates.

    ``near`` int32[nodes]: where the next resident state above a node was found, ``near_epoch``
    int32[nodes] when; good as long as no state was made above others that are older.
    """

    price: np.ndarray
    option: np.ndarray
    idle: Idle
    tree: Descendants
    held: np.ndarray
    near: np.ndarray
    near_epoch: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Nobody has come back yet, and nobody stayed away."""
    chunk_usd = world.block_tokens / settings.prefill_tokens_s / 3600 * settings.gpu_usd_per_hour
    life_s = (settings.target_days or 0.0) * 86400
    prices = [
        settings.alpha, chunk_usd, settings.ssd_usd / settings.tbw_bytes, life_s,
        settings.tbw_bytes,
    ]  # fmt: skip
    options = [
        settings.gate == "cross", settings.candidates, settings.charge == "sum",
        settings.state_hits == "predicted", 0,
    ]  # fmt: skip
    return Own(
        np.array(prices, np.float64),
        np.array(options, np.int64),
        idle_table(world.sessions),
        descendants(world.parent),
        np.empty(_HELD, np.int32),
        np.empty(world.nodes, np.int32),
        np.full(world.nodes, -1, np.int32),
    )


def begin(s: Any, r: int) -> None:
    """The session came back."""
    came_back(s.p.idle, s.session, r)


def waits(s: Any, o: int) -> int:
    """Requests since the last one of the session that used the object last."""
    return s.reg[NOW] - s.p.idle.last[session_of(s, o)]


def loss(s: Any, o: int) -> float:
    """What its loss is expected to cost, in dollars."""
    if class_of(s, o) == 0:
        chunks = 1 + below(s.p.tree, o) if s.kids[o] > 0 else 1
        return share_back(s.p.idle, waits(s, o)) * chunks * s.p.price[_CHUNK_USD]
    if s.flag[o] & (USED | SUPERSEDED) != 0:
        return 0.0
    share = share_back(s.p.idle, waits(s, o)) if s.p.option[_PREDICTED] != 0 else 1.0
    return share * behind(s, o) * s.p.price[_CHUNK_USD]


def behind(s: Any, o: int) -> int:
    """Chunks from the last state before this one that is resident: ``chunks_behind``, remembered.

    A conversation leaves a long line of states that are gone; they would be passed at each look.
    """
    node = node_of(s, o)
    above = next_above(s, node)
    while above >= 0 and not resident(s, state_at(s, above)):
        above = next_above(s, above)
    s.p.near[node] = above
    s.p.near_epoch[node] = s.p.option[_EPOCH]
    return s.depth[node] - (s.depth[above] if above >= 0 else -1)


def next_above(s: Any, node: int) -> int:
    """The node above to look at next: those between hold no resident state."""
    if s.p.near_epoch[node] == s.p.option[_EPOCH]:
        return s.p.near[node]
    return s.made_before[node]


def created(s: Any, o: int) -> None:
    """A state made above nodes that were there before makes what was remembered wrong."""
    if class_of(s, o) == 1:
        below_it = s.first_child[node_of(s, o)]
        while below_it >= 0:
            if s.stamp[below_it] >= 0:
                s.p.option[_EPOCH] += 1
                return
            below_it = s.next_child[below_it]


def key(s: Any, q: int, o: int) -> float:
    """D of what may be dropped or evicted; what may move goes longest wait first."""
    wait = max(waits(s, o), 1)
    if q in (DROP, EVICT):
        return loss(s, o) / (size_of(s, o) * float(wait))
    return -float(wait)


def wear_factor(s: Any) -> float:
    """mu: bytes written over the budget of the time so far; 1 without a target."""
    life_s = s.p.price[_LIFE_S]
    elapsed_s = s.time_s[s.reg[NOW]]
    if life_s == 0.0 or elapsed_s <= 0.0:
        return 1.0
    written = float(s.total[WRITES, 0] * s.cfg[SIZE_FULL] + s.total[WRITES, 1] * s.cfg[SIZE_STATE])
    return written * life_s / (s.p.price[_TBW] * elapsed_s)


def charge(s: Any, size: int) -> float:
    """Loss of what the SSD gives up for ``size`` bytes: of the cheapest of it, or the sum."""
    free = s.cfg[CAP_SSD] - s.reg[USED_SSD]
    if free >= size:
        return 0.0
    o = peek(s, EVICT)
    if o < 0:
        return np.inf
    if s.p.option[_SUM] == 0:
        return loss(s, o)
    total, taken = 0.0, 0
    while o >= 0 and free < size and taken < _HELD:
        total += loss(s, o)
        free += size_of(s, o)
        s.p.held[taken] = o
        taken += 1
        pop(s, EVICT)
        o = peek(s, EVICT)
    for at in range(taken):
        push(s, EVICT, s.p.held[at])
    return total if free >= size else np.inf


def advantage(s: Any, o: int, dropped: int) -> float:
    """D / M of a candidate that passes the gate, infinite if its move costs nothing; else -1."""
    size = size_of(s, o)
    wait = max(waits(s, o), 1)
    cost = s.p.price[_ALPHA] * (wear_factor(s) * s.p.price[_BYTE_USD] * size + charge(s, size))
    gain = loss(s, o)
    if s.p.option[_CROSS] != 0 and dropped >= 0:
        waited = float(size_of(s, dropped)) * max(waits(s, dropped), 1)
        if not loss(s, dropped) / waited > cost / (size * float(wait)):
            return -1.0
    elif not gain > cost:
        return -1.0
    return gain / cost if cost > 0.0 else np.inf


def best_of(s: Any, q: int, dropped: int, best: int, most: float) -> tuple[int, float]:
    """The best of some candidates of a queue, or the one given."""
    taken = 0
    o = peek(s, q)
    while o >= 0:
        value = np.inf if on_ssd(s, o) else advantage(s, o, dropped)
        if value >= 0.0 and value > most:
            best, most = o, value
        taken += 1
        if taken >= s.p.option[_CANDIDATES]:
            break
        s.p.held[_HELD - taken] = o
        pop(s, q)
        o = peek(s, q)
    for at in range(1, taken + (1 if o < 0 else 0)):
        push(s, q, s.p.held[_HELD - at])
    return best, most


def choose(s: Any) -> tuple[int, bool]:
    """The candidate that passes by most, to be moved; without one, the leaf to be dropped."""
    dropped = peek(s, DROP)
    best, most = best_of(s, MOVE, dropped, -1, -1.0)
    best, most = best_of(s, MOVE_STATE, dropped, best, most)
    return (best, True) if best >= 0 else (dropped, False)


def demote(s: Any, o: int) -> bool:
    """For what DRAM has no room for: the gate, without anything to drop in its place."""
    return advantage(s, o, -1) >= 0.0


def entered(s: Any, o: int, tier: int) -> None:
    """Count it for those above."""
    if class_of(s, o) == 0:
        mark(s.p.tree, o, True)


def left(s: Any, o: int, tier: int) -> None:
    """Count it no longer, if it is nowhere."""
    if class_of(s, o) == 0 and not resident(s, o):
        mark(s.p.tree, o, False)
