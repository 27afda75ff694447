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

from harness.simulator.descendants import Descendants, below, descendants, is_below, mark
from harness.simulator.hooks import (
    DROP,
    EVICT,
    MOVE,
    MOVE_STATE,
    Parameters,
    World,
    ask,
    class_of,
    expire,
    lower,
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
from harness.simulator.idle import (
    BUCKETS,
    Idle,
    bucket_of,
    came_back,
    idle_table,
    sessions_away,
    share_back,
    shares_back,
)
from harness.simulator.state import (
    CAP_SSD,
    HERE,
    NOW,
    SIZE_FULL,
    SIZE_STATE,
    SUPERSEDED,
    TICK,
    USED,
    USED_SSD,
    WRITES,
)

REBUILD = (DROP, EVICT)
AHEAD = 64
EVICT_ANY_TIER = True
STRUCTURES = ("leaf",)

_ALPHA, _CHUNK_USD, _BYTE_USD, _LIFE_S, _TBW = range(5)
_CROSS, _CANDIDATES, _SUM, _PREDICTED, _EPOCH, _AWAY_MOST = range(6)
_MOVING, _GOING = range(2)
"""Who asks for what is resident below: for a candidate to move, and for what may go."""
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
    ``share_least`` float64[BUCKETS]: shares back if as many sessions are away as may be before it
    is computed anew. ``came``, ``worn`` int64[nodes]: ticks at which a node's state became
    resident, and superseded. ``gone`` int32[2, nodes], ``gone_tick`` int64[2, nodes],
    ``gone_count`` int64[2]: nodes whose chunk or state left for nowhere in this request.
    """

    price: np.ndarray
    option: np.ndarray
    idle: Idle
    tree: Descendants
    held: np.ndarray
    near: np.ndarray
    near_epoch: np.ndarray
    share_least: np.ndarray
    came: np.ndarray
    worn: np.ndarray
    gone: np.ndarray
    gone_tick: np.ndarray
    gone_count: np.ndarray


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
        settings.state_hits == "predicted", 0, -1,
    ]  # fmt: skip
    return Own(
        np.array(prices, np.float64),
        np.array(options, np.int64),
        idle_table(world.sessions),
        descendants(world.parent),
        np.empty(_HELD, np.int32),
        np.empty(world.nodes, np.int32),
        np.full(world.nodes, -1, np.int32),
        np.zeros(BUCKETS),
        np.zeros(world.nodes, np.int64),
        np.zeros(world.nodes, np.int64),
        np.empty((2, world.nodes), np.int32),
        np.empty((2, world.nodes), np.int64),
        np.zeros(2, np.int64),
    )


def begin(s: Any, r: int) -> None:
    """The session came back."""
    came_back(s.p.idle, s.session, r)
    s.p.gone_count[0] = 0
    s.p.gone_count[1] = 0
    away, most = sessions_away(s.p.idle), s.p.option[_AWAY_MOST]
    if away > most or most > 2 * away + 8:
        s.p.option[_AWAY_MOST] = away + away // 4 + 4
        shares_back(s.p.idle, s.p.option[_AWAY_MOST], s.p.share_least)
        if away > most:
            expire(s, DROP)
            expire(s, EVICT)


def waits(s: Any, o: int) -> int:
    """Requests since the last one of the session that used the object last."""
    return s.reg[NOW] - s.p.idle.last[session_of(s, o)]


def loss(s: Any, o: int) -> float:
    """What its loss is expected to cost, in dollars."""
    return loss_at(s, o, s.reg[TICK], _MOVING)


def loss_at(s: Any, o: int, tick: int, asker: int) -> float:
    """What it was expected to cost at a tick of this request."""
    if class_of(s, o) == 0:
        chunks = lost_with(s, o, tick, asker)
        return share_back(s.p.idle, waits(s, o)) * chunks * s.p.price[_CHUNK_USD]
    if spent(s, o, tick):
        return 0.0
    share = share_back(s.p.idle, waits(s, o)) if s.p.option[_PREDICTED] != 0 else 1.0
    return share * behind_at(s, o, tick) * s.p.price[_CHUNK_USD]


def lost_with(s: Any, node: int, tick: int, asker: int) -> int:
    """Chunks lost with a chunk: itself, and those below it if it had children at a tick."""
    had_children, more = s.kids[node] > 0, 0
    at = s.p.gone_count[0] - 1
    while at >= 0 and s.p.gone_tick[0, at] > tick:
        had_children = had_children or s.parent[s.p.gone[0, at]] == node
        more += 1 if is_below(s.p.tree, node, s.p.gone[0, at]) else 0
        at -= 1
    return 1 + below(s.p.tree, node, asker) + more if had_children else 1


def spent(s: Any, o: int, tick: int) -> bool:
    """Whether nobody expected a hit of a state any more at a tick."""
    if s.flag[o] & USED != 0:
        return True
    return s.flag[o] & SUPERSEDED != 0 and s.p.worn[node_of(s, o)] <= tick


def behind_at(s: Any, o: int, tick: int) -> int:
    """Chunks from the last state before this one that was resident at a tick, to this one."""
    node = node_of(s, o)
    above = resident_above(s, node)
    while above >= 0 and s.p.came[above] > tick:
        above = resident_above(s, above)
    at = s.p.gone_count[1] - 1
    while at >= 0 and s.p.gone_tick[1, at] > tick:
        left_node = s.p.gone[1, at]
        deeper = above < 0 or s.depth[left_node] > s.depth[above]
        if deeper and is_below(s.p.tree, left_node, node):
            above = left_node
        at -= 1
    return s.depth[node] - (s.depth[above] if above >= 0 else -1)


def resident_above(s: Any, node: int) -> int:
    """The nearest node above one whose state is resident, -1 if none, remembered.

    A conversation leaves a long line of states that are gone; they would be passed at each look.
    """
    above = next_above(s, node)
    while above >= 0 and not resident(s, state_at(s, above)):
        above = next_above(s, above)
    s.p.near[node] = above
    s.p.near_epoch[node] = s.p.option[_EPOCH]
    return above


def next_above(s: Any, node: int) -> int:
    """The node above to look at next: those between hold no resident state."""
    if s.p.near_epoch[node] == s.p.option[_EPOCH]:
        return s.p.near[node]
    return s.made_before[node]


def used(s: Any, first: int, count: int) -> None:
    """The hit expected of a state has come."""
    if class_of(s, first) == 1:
        lower(s, DROP, first)
        lower(s, EVICT, first)


def superseded(s: Any, o: int) -> None:
    """It is not expected any more."""
    s.p.worn[node_of(s, o)] = s.reg[TICK]
    lower(s, DROP, o)
    lower(s, EVICT, o)


def key(s: Any, q: int, o: int) -> float:
    """D of what may be dropped or evicted; what may move goes longest wait first."""
    if q in (DROP, EVICT):
        return key_at(s, q, o, s.reg[TICK])
    return float(min(s.p.idle.last[session_of(s, o)], s.reg[NOW] - 1))


def key_at(s: Any, q: int, o: int, tick: int) -> float:
    """D at a tick of this request."""
    return loss_at(s, o, tick, _GOING) / (size_of(s, o) * float(max(waits(s, o), 1)))


def least(s: Any, q: int, o: int, until: int) -> float:
    """D if nobody comes back before, and no chunk below is resident any more."""
    wait = max(until - 1 - s.p.idle.last[session_of(s, o)], 1)
    share = s.p.share_least[bucket_of(wait)]
    if class_of(s, o) == 0:
        lost = share * 1 * s.p.price[_CHUNK_USD]
    elif spent(s, o, s.reg[TICK]):
        return 0.0
    else:
        share = share if s.p.option[_PREDICTED] != 0 else 1.0
        lost = share * behind_at(s, o, s.reg[TICK]) * s.p.price[_CHUNK_USD]
    return lost / (size_of(s, o) * float(wait))


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
        return loss_at(s, o, s.reg[TICK], _GOING)
    total, taken = 0.0, 0
    while o >= 0 and free < size and taken < _HELD:
        total += loss_at(s, o, s.reg[TICK], _GOING)
        free += size_of(s, o)
        s.p.held[taken] = o
        taken += 1
        pop(s, EVICT)
        o = peek(s, EVICT)
    for at in range(taken):
        push(s, EVICT, s.p.held[at])
    return total if free >= size else np.inf


def advantage(s: Any, o: int, dropped: int, most: float) -> float:
    """D / M of a candidate that passes the gate, infinite if its move costs nothing; else -1.

    Also -1 if the price of the write alone shows that it does not pass, or not above ``most``.
    """
    size = size_of(s, o)
    wait = max(waits(s, o), 1)
    cross = s.p.option[_CROSS] != 0 and dropped >= 0
    gain = loss(s, o)
    write_usd = wear_factor(s) * s.p.price[_BYTE_USD] * size
    least_cost = s.p.price[_ALPHA] * write_usd
    if s.cfg[CAP_SSD] - s.reg[USED_SSD] < size:
        ask(s, EVICT)
    if not cross and not gain > least_cost:
        return -1.0
    if least_cost > 0.0 and not gain / least_cost > most:
        return -1.0
    cost = s.p.price[_ALPHA] * (write_usd + charge(s, size))
    if cross:
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
        value = np.inf if on_ssd(s, o) else advantage(s, o, dropped, most)
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
    return advantage(s, o, -1, -1.0) >= 0.0


def entered(s: Any, o: int, tier: int) -> None:
    """Count it for those above."""
    if class_of(s, o) == 0:
        mark(s.p.tree, o, True)
    elif s.flag[o] & HERE == tier:
        s.p.came[node_of(s, o)] = s.reg[TICK]
        forget_above(s, node_of(s, o))


def forget_above(s: Any, node: int) -> None:
    """A state made above nodes that were there before makes what was remembered wrong."""
    below_it = s.first_child[node]
    while below_it >= 0:
        if s.stamp[below_it] >= 0:
            s.p.option[_EPOCH] += 1
            expire(s, DROP)
            expire(s, EVICT)
            return
        below_it = s.next_child[below_it]


def left(s: Any, o: int, tier: int) -> None:
    """Count it no longer, if it is nowhere."""
    if resident(s, o):
        return
    kind = class_of(s, o)
    if kind == 0:
        mark(s.p.tree, o, False)
    at = s.p.gone_count[kind]
    s.p.gone[kind, at] = node_of(s, o)
    s.p.gone_tick[kind, at] = s.reg[TICK]
    s.p.gone_count[kind] = at + 1
