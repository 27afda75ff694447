"""FlatCake's placement: each object is put once, to DRAM or the SSD, by its request, and stays.

In this order: DRAM is full, the context is longer than ``agent_tokens``, the session's first turn,
or its previous reply was longer than ``long_tokens``: SSD; asked for by a second session, or the
reply was shorter than ``short_tokens``: DRAM; else SSD. A tier over its high watermark gives up the
sessions silent for longest, down to the low one: DRAM drops, nothing is written later. What
several sessions asked for goes after all else. A review of the paper states the rules; thresholds,
watermarks, the reclaiming of DRAM and the order of the rules are ours.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from harness.simulator.hooks import (
    DRAM,
    DROP,
    SSD,
    Parameters,
    World,
    class_of,
    in_dram,
    peek,
    session_of,
    size_of,
)
from harness.simulator.state import CAP_DRAM, CAP_SSD, NOW, PROMOTED, USED_DRAM, USED_SSD
from harness.simulator.tiers import make_room, make_room_ssd, put_dram

STRUCTURES = ("free", "leaf")
LIKE = True

_SHORT, _LONG, _AGENT, _HIGH, _LOW, _STATES, _COPY = range(7)
_LAST_OF_ALL = float(1 << 40)


class Settings(Parameters):
    """Thresholds in tokens; watermarks as shares of a tier.

    ``state=dram`` puts states to DRAM while there is room; ``shared_first`` copies to DRAM what a
    second session finds on the SSD, once, while there is room.
    """

    short_tokens: int = Field(256, ge=0)
    long_tokens: int = Field(1024, ge=0)
    agent_tokens: int = Field(32768, ge=0)
    high: float = Field(0.95, gt=0, le=1)
    low: float = Field(0.9, gt=0, le=1)
    state: Literal["follow", "dram"] = "follow"
    shared_first: bool = False


class Own(NamedTuple):
    """``first`` int32[objects] (session that asked first, -1), ``shared`` uint8[objects];
    ``last``, ``reply`` int64[sessions] (last request, its output tokens, -1); ``numbers``
    float64[7]."""

    first: np.ndarray
    shared: np.ndarray
    last: np.ndarray
    reply: np.ndarray
    numbers: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Nobody has come."""
    numbers = [
        settings.short_tokens, settings.long_tokens, settings.agent_tokens,
        settings.high, min(settings.low, settings.high), settings.state == "dram",
        settings.shared_first,
    ]  # fmt: skip
    return Own(
        np.full(world.objects, -1, np.int32),
        np.zeros(world.objects, np.uint8),
        np.full(world.sessions, -1, np.int64),
        np.full(world.sessions, -1, np.int64),
        np.array(numbers, np.float64),
    )


def begin(s: Any, r: int) -> None:
    """The session speaks."""
    s.p.last[s.session[r]] = r


def asked(s: Any, o: int) -> bool:
    """Note who asks; whether this made it shared."""
    session = s.session[s.reg[NOW]]
    if s.p.first[o] < 0:
        s.p.first[o] = session
    elif s.p.first[o] != session and s.p.shared[o] == 0:
        s.p.shared[o] = 1
        return True
    return False


def has_room(s: Any, o: int) -> bool:
    """Whether DRAM has room as it is."""
    return s.reg[USED_DRAM] + size_of(s, o) <= s.cfg[CAP_DRAM]


def used(s: Any, first: int, count: int) -> None:
    """Found, perhaps by a second session."""
    for o in range(first, first + count):
        copy = asked(s, o) and s.p.numbers[_COPY] != 0.0
        if copy and not in_dram(s, o) and has_room(s, o):
            s.total[PROMOTED, class_of(s, o)] += 1
            put_dram(s, o)


def created(s: Any, o: int) -> None:
    """Made."""
    asked(s, o)


def recomputed(s: Any, o: int) -> None:
    """Found behind no state."""
    asked(s, o)


def admit(s: Any, o: int) -> int:
    """The placement."""
    r, numbers = s.reg[NOW], s.p.numbers
    if not has_room(s, o):
        return SSD
    if class_of(s, o) == 1 and numbers[_STATES] != 0.0:
        return DRAM
    reply = s.p.reply[s.session[r]]
    if s.input_tokens[r] > numbers[_AGENT] or reply < 0 or reply > numbers[_LONG]:
        return SSD
    return DRAM if s.p.shared[o] != 0 or reply < numbers[_SHORT] else SSD


def key(s: Any, q: int, o: int) -> float:
    """Session silent for longest first, what is shared after all."""
    value = float(s.p.last[session_of(s, o)])
    return value + _LAST_OF_ALL if s.p.shared[o] != 0 else value


def choose(s: Any) -> tuple[int, bool]:
    """DRAM drops."""
    return peek(s, DROP), False


def demote(s: Any, o: int) -> bool:
    """Nothing is written but where it is placed."""
    return False


def finish(s: Any, r: int) -> None:
    """The reply is known; tiers over their high watermark are reclaimed."""
    s.p.reply[s.session[r]] = s.output_tokens[r]
    high, low = s.p.numbers[_HIGH], s.p.numbers[_LOW]
    dram, ssd = s.cfg[CAP_DRAM], s.cfg[CAP_SSD]
    if s.reg[USED_DRAM] > high * dram:
        make_room(s, dram - int(low * dram))
    if s.reg[USED_SSD] > high * ssd:
        make_room_ssd(s, ssd - int(low * ssd))
