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

from harness.simulator.descendants import Descendants, descendants, mark
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
    state_number,
)
from harness.simulator.idle import (
    BUCKETS,
    Idle,
    came_back,
    idle_table,
    sessions_away,
    share_back,
    shares_back,
)
from harness.simulator.past import (
    Past,
    begin_past,
    chunks_since,
    chunks_with,
    note_gone,
    note_state,
    past,
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
_CROSS, _CANDIDATES, _SUM, _PREDICTED, _AWAY_MOST, _VICTIM, _VICTIM_TICK = range(7)
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
    """``price`` float64[5], ``option`` int64[7]; the predictor; the tree, now and in this request's
    past; room for candidates. ``share_least`` float64[BUCKETS]: shares back if as many sessions are
    away as may be before it is computed anew. ``worn`` int64[states]: tick at which one was
    superseded."""

    price: np.ndarray
    option: np.ndarray
    idle: Idle
    tree: Descendants
    past: Past
    held: np.ndarray
    share_least: np.ndarray
    worn: np.ndarray


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
        settings.state_hits == "predicted", -1, -1, -1,
    ]  # fmt: skip
    return Own(
        np.array(prices, np.float64),
        np.array(options, np.int64),
        idle_table(world.sessions, world.requests + AHEAD),
        descendants(world.paths),
        past(world.nodes, world.states),
        np.empty(_HELD, np.int32),
        np.zeros(BUCKETS),
        np.zeros(world.states, np.int64),
    )


def begin(s: Any, r: int) -> None:
    """The session came back."""
    came_back(s.p.idle, s.session, r)
    begin_past(s.p.past)
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


def loss(s: Any, o: int, wait: int, tick: int, asker: int) -> float:
    """What its loss after a wait was expected to cost at a tick of this request, in dollars."""
    if class_of(s, o) == 0:
        chunks = chunks_with(s, s.p.past, s.p.tree, o, tick, asker)
        return share_back(s.p.idle, wait) * chunks * s.p.price[_CHUNK_USD]
    if spent(s, o, tick):
        return 0.0
    share = share_back(s.p.idle, wait) if s.p.option[_PREDICTED] != 0 else 1.0
    chunks = chunks_since(s, s.p.past, s.p.tree, o, tick)
    return share * chunks * s.p.price[_CHUNK_USD]


def spent(s: Any, o: int, tick: int) -> bool:
    """Whether nobody expected a hit of a state any more at a tick."""
    if s.flag[o] & USED != 0:
        return True
    return s.flag[o] & SUPERSEDED != 0 and s.p.worn[state_number(s, o)] <= tick


def used(s: Any, first: int, count: int) -> None:
    """The hit expected of a state has come."""
    if class_of(s, first) == 1:
        lower(s, DROP, first)
        lower(s, EVICT, first)


def superseded(s: Any, o: int) -> None:
    """It is not expected any more."""
    s.p.worn[state_number(s, o)] = s.reg[TICK]
    lower(s, DROP, o)
    lower(s, EVICT, o)


def key(s: Any, q: int, o: int) -> float:
    """D of what may be dropped or evicted; what may move goes longest wait first."""
    if q in (DROP, EVICT):
        return key_at(s, q, o, s.reg[TICK])
    return float(min(s.p.idle.last[session_of(s, o)], s.reg[NOW] - 1))


def key_at(s: Any, q: int, o: int, tick: int) -> float:
    """D at a tick of this request."""
    wait = waits(s, o)
    return loss(s, o, wait, tick, _GOING) / (size_of(s, o) * float(max(wait, 1)))


def least(s: Any, q: int, o: int, until: int) -> float:
    """D if nobody comes back before, and no chunk below is resident any more."""
    wait = max(until - 1 - s.p.idle.last[session_of(s, o)], 1)
    share = s.p.share_least[s.p.idle.bucket[wait]]
    if class_of(s, o) == 0:
        lost = share * 1 * s.p.price[_CHUNK_USD]
    elif spent(s, o, s.reg[TICK]):
        return 0.0
    else:
        share = share if s.p.option[_PREDICTED] != 0 else 1.0
        chunks = chunks_since(s, s.p.past, s.p.tree, o, s.reg[TICK])
        lost = share * chunks * s.p.price[_CHUNK_USD]
    return lost / (size_of(s, o) * float(wait))


def wear_factor(s: Any) -> float:
    """mu: bytes written over the budget of the time so far; 1 without a target."""
    life_s = s.p.price[_LIFE_S]
    elapsed_s = s.time_s[s.reg[NOW]]
    if life_s == 0.0 or elapsed_s <= 0.0:
        return 1.0
    written = float(s.total[WRITES, 0] * s.cfg[SIZE_FULL] + s.total[WRITES, 1] * s.cfg[SIZE_STATE])
    return written * life_s / (s.p.price[_TBW] * elapsed_s)


def loss_on_ssd(s: Any, o: int) -> float:
    """What it costs now if the SSD gives up an object."""
    return loss(s, o, waits(s, o), s.reg[TICK], _GOING)


def charge(s: Any, size: int) -> float:
    """Loss of what the SSD gives up for ``size`` bytes: of the cheapest of it, or the sum."""
    free = s.cfg[CAP_SSD] - s.reg[USED_SSD]
    if free >= size:
        return 0.0
    o = peek(s, EVICT)
    if o < 0:
        return np.inf
    s.p.option[_VICTIM], s.p.option[_VICTIM_TICK] = o, s.reg[TICK]
    if s.p.option[_SUM] == 0:
        return loss_on_ssd(s, o)
    total, taken = 0.0, 0
    while o >= 0 and free < size and taken < _HELD:
        total += loss_on_ssd(s, o)
        free += size_of(s, o)
        s.p.held[taken] = o
        taken += 1
        pop(s, EVICT)
        o = peek(s, EVICT)
    for at in range(taken):
        push(s, EVICT, s.p.held[at])
    return total if free >= size else np.inf


def victim_ssd(s: Any) -> int:
    """What was charged for, if nothing has moved since."""
    charged = s.p.option[_VICTIM_TICK] == s.reg[TICK]
    return s.p.option[_VICTIM] if charged else peek(s, EVICT)


def weighed(s: Any, usd: float) -> float:
    """``alpha`` times a cost; what cannot be paid stays so, however little it weighs."""
    return s.p.price[_ALPHA] * usd if usd < np.inf else np.inf


def most_gain(s: Any, o: int) -> float:
    """What its loss can cost at most, told without a look at others."""
    if class_of(s, o) == 0:
        return np.inf
    return (s.depth[node_of(s, o)] + 1) * s.p.price[_CHUNK_USD]


def advantage(s: Any, o: int, dropped: int, most: float) -> float:
    """D / M of a candidate that passes the gate, infinite if its move costs nothing; else -1.

    Also -1 if the price of the write alone shows that it does not pass, or not above ``most``.
    """
    size = size_of(s, o)
    write_usd = wear_factor(s) * s.p.price[_BYTE_USD] * size
    least_cost = weighed(s, write_usd)
    if s.cfg[CAP_SSD] - s.reg[USED_SSD] < size:
        ask(s, EVICT)
    if least_cost > 0.0 and most >= 0.0 and not most_gain(s, o) / least_cost > most:
        return -1.0
    wait = waits(s, o)
    cross = s.p.option[_CROSS] != 0 and dropped >= 0
    gain = loss(s, o, wait, s.reg[TICK], _MOVING)
    if not cross and not gain > least_cost:
        return -1.0
    if least_cost > 0.0 and most >= 0.0 and not gain / least_cost > most:
        return -1.0
    cost = weighed(s, write_usd + charge(s, size))
    if cross:
        wait_dropped = waits(s, dropped)
        waited = float(size_of(s, dropped)) * max(wait_dropped, 1)
        loss_dropped = loss(s, dropped, wait_dropped, s.reg[TICK], _MOVING)
        if not loss_dropped / waited > cost / (size * float(max(wait, 1))):
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
    ask(s, DROP)
    dropped = peek(s, DROP) if s.p.option[_CROSS] != 0 else -1
    best, most = best_of(s, MOVE, dropped, -1, -1.0)
    best, most = best_of(s, MOVE_STATE, dropped, best, most)
    return (best, True) if best >= 0 else (peek(s, DROP), False)


def demote(s: Any, o: int) -> bool:
    """For what DRAM has no room for: the gate, without anything to drop in its place."""
    return advantage(s, o, -1, -1.0) >= 0.0


def entered(s: Any, o: int, tier: int) -> None:
    """Count it for those above."""
    if class_of(s, o) == 0:
        mark(s.p.tree, o, True)
    elif s.flag[o] & HERE == tier and note_state(s, s.p.past, o):
        expire(s, DROP)
        expire(s, EVICT)


def left(s: Any, o: int, tier: int) -> None:
    """Count it no longer, if it is nowhere."""
    if resident(s, o):
        return
    if class_of(s, o) == 0:
        mark(s.p.tree, o, False)
    note_gone(s, s.p.past, o)
