"""How a policy is written: a Python file with hooks, parameters, and arrays of its own.

::

    \"\"\"What the policy does, in a sentence, and where its rule comes from.\"\"\"
    from typing import Any, NamedTuple
    import numpy as np
    from pydantic import Field
    from harness.simulator.hooks import Parameters, World, session_of

    class Settings(Parameters):          # optional: frozen, validated, named
        uses: int = Field(2, ge=1)

    class Own(NamedTuple):               # optional: arrays that the hooks read and change
        seen: np.ndarray
        uses: np.ndarray

    def create(world: World, settings: Settings) -> Own:
        return Own(np.zeros(world.objects, np.uint8), np.array([settings.uses]))

    def used(s: Any, first: int, count: int) -> None:
        for o in range(first, first + count):
            s.p.seen[o] += 1

    def demote(s: Any, o: int) -> bool:
        return s.p.seen[o] >= s.p.uses[0]

``simulate`` takes it by path (``./mine.py``), by an entry point of the group
``kvflash_harness.policies``, or, from ``harness/simulator/policies``, by its file name with dashes.

Hooks are compiled together with the engine by numba: they work on numbers and on the arrays of
``s`` (see ``state.State``; ``s.p`` is what ``create`` returned), may call functions of their own
file and those named here, and make no arrays. A hook that a policy leaves out has the default
below. ``o`` is an object, ``first, count`` are consecutive ones; ``state_at(s, node)`` is -1 where
no state is ever made.

    begin(s, r)              request r arrives: predictors, decay, leases
    used(s, first, count)    objects of its usable prefix, run by run; its state as one more run
    created(s, o)            the request makes o, which was nowhere; asked before it is placed
    recomputed(s, o)         the request computes o, which was there but could not be used
    superseded(s, o)         the session of state o has made a later one on its path
    admit(s, o)              where a new object goes: DRAM, SSD, or 0, dropped
    write_now(s, o)          whether o, just put into DRAM, is written to the SSD as well
    key(s, q, o)             what goes first in queue q: DROP, EVICT, MOVE or MOVE_STATE
    key_at(s, q, o, tick)    with AHEAD: the key when s.reg[TICK] was tick, in this request
    least(s, q, o, until)    with AHEAD: what the key is not below before request until
    choose(s)                (object that leaves DRAM or -1, whether it is offered to the SSD)
    demote(s, o)             whether an object that leaves DRAM is written, else it is dropped
    victim_ssd(s)            the object that the SSD gives up, or -1
    entered(s, o, tier)      o was put into DRAM or on the SSD
    left(s, o, tier)         o was taken out; ``resident`` says whether it is still anywhere
    finish(s, r)             request r is over

Words of the module, all optional: ``REBUILD = True`` if keys move otherwise than growing when an
object is touched, or the queues whose keys do, as ``(DROP, EVICT)``: such keys hold for a request,
from when the queue is first asked, or the object joins it, and all are computed anew in the next;
``AHEAD = 64`` if they can be bounded for so many requests: with ``least`` only those that may go
first are computed, and with ``key_at`` as of then (``key`` will do if nothing that happens in a
request changes the key of an object that it does not use). When a key falls below its bound, call
``lower(s, q, o)``, when all bounds are wrong, ``expire(s, q)``; ``ask(s, q)`` freezes the keys of a
queue now, before what follows changes them. ``ANY_NODE = True`` if keys do not follow the depth of
nodes (then every object is queued under ``structure=free``); ``STRUCTURES``, those under which the
policy has a meaning, the usual one first (without it both, of which the usual is ``leaf`` for
policies that ``choose``, else ``free``); ``EVICT_ANY_TIER = True`` if the SSD may give up what DRAM
continues; ``NEEDS = ("future",)`` to have ``next_asked`` and ``asks``, ``NEEDS = ("tags",)`` for
one that reads ``tag``, so that a trace without tags is named in the output; ``LIKE = True`` if the
paper was not seen: the label then ends in "-like". A policy may tune a parameter while it runs: see
``tuning``.

Under ``leaf``, ``choose`` takes the first root-side object if ``demote`` lets it be written, and
drops the first leaf otherwise; a refused object is not asked again until it is touched. Under
``free`` it takes the first object of all, which is written or dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.config import Strict
from harness.simulator.objects import (
    candidate,
    chunks_behind,
    class_of,
    identity,
    in_dram,
    node_of,
    on_ssd,
    order,
    pinned,
    resident,
    session_of,
    size_of,
    state_at,
    state_number,
)
from harness.simulator.paths import Paths
from harness.simulator.queues import (
    ask,
    expire,
    key,
    key_at,
    least,
    lower,
    part_of,
    peek,
    pop,
    push,
    set_aside,
)
from harness.simulator.sizes import ObjectSizes
from harness.simulator.state import (
    ASKED,
    DRAM,
    DROP,
    EVICT,
    LEAF,
    MOVE,
    MOVE_STATE,
    SSD,
)

__all__ = [
    "ASKED", "DRAM", "DROP", "EVICT", "HOOKS", "MOVE", "MOVE_STATE", "SSD", "Parameters",
    "World", "admit", "ask", "begin", "candidate", "choose", "chunks_behind", "class_of", "created",
    "demote", "entered", "expire", "finish", "first_to_move", "identity", "in_dram", "key",
    "key_at", "least", "left", "lower", "node_of", "on_ssd", "order", "peek", "pinned", "pop",
    "push", "recomputed", "resident", "session_of", "set_aside", "size_of", "state_at",
    "state_number", "superseded", "used", "victim_ssd", "write_now",
]  # fmt: skip

HOOKS = (
    "begin", "used", "created", "recomputed", "superseded", "admit", "write_now", "key", "key_at",
    "least", "choose", "demote", "victim_ssd", "entered", "left", "finish",
)  # fmt: skip
"""Names under which the engine calls a policy."""


class Parameters(Strict):
    """Base of a policy's parameters; one without any uses this one."""


@dataclass(frozen=True)
class World:
    """What ``create`` may look at: counts, sizes and capacities of the run.

    ``state_of`` int32[nodes], ``wanted`` int32[requests] and ``asks`` int32[objects] are those of
    ``State``.
    """

    requests: int
    nodes: int
    states: int
    sessions: int
    sizes: ObjectSizes
    dram_bytes: int
    ssd_bytes: int
    block_tokens: int
    seed: int
    seconds: float
    paths: Paths
    state_of: NDArray[np.int32]
    wanted: NDArray[np.int32]
    asks: NDArray[np.int32]

    @property
    def objects(self) -> int:
        """Chunks and states that are ever made."""
        return self.nodes + self.states


def begin(s: Any, r: int) -> None:
    """Nothing."""


def used(s: Any, first: int, count: int) -> None:
    """Nothing: the engine has stamped them."""


def created(s: Any, o: int) -> None:
    """Nothing."""


def recomputed(s: Any, o: int) -> None:
    """Nothing: the engine has stamped it."""


def superseded(s: Any, o: int) -> None:
    """Nothing: the engine has flagged it."""


def admit(s: Any, o: int) -> int:
    """Everything enters DRAM."""
    return DRAM


def write_now(s: Any, o: int) -> bool:
    """Nothing is written while it stays in DRAM."""
    return False


def demote(s: Any, o: int) -> bool:
    """Write-back: what leaves DRAM is written."""
    return True


def victim_ssd(s: Any) -> int:
    """The first of its queue."""
    return peek(s, EVICT)


def entered(s: Any, o: int, tier: int) -> None:
    """Nothing."""


def left(s: Any, o: int, tier: int) -> None:
    """Nothing."""


def finish(s: Any, r: int) -> None:
    """Nothing."""


def first_to_move(s: Any) -> int:
    """The first root-side object of either class, -1 if all are pinned."""
    full, state = peek(s, MOVE), peek(s, MOVE_STATE)
    if full < 0 or state < 0:
        return max(full, state)
    chunks, states = part_of(s, MOVE), part_of(s, MOVE_STATE)
    a, b = s.queue_key[chunks, 0], s.queue_key[states, 0]
    if a == b:
        a, b = s.queue_tie[chunks, 0], s.queue_tie[states, 0]
    return full if a < b else state


def choose(s: Any) -> tuple[int, bool]:
    """See above."""
    if s.cfg[LEAF] == 0:
        o = peek(s, DROP)
        return o, o >= 0 and (s.flag[o] & SSD != 0 or demote(s, o))
    o = first_to_move(s)
    if o >= 0:
        if s.flag[o] & SSD != 0:
            return o, True
        if s.flag[o] & ASKED == 0:
            if demote(s, o):
                return o, True
            s.flag[o] |= ASKED
    gone = peek(s, DROP)
    if gone >= 0:
        return gone, False
    return o, o >= 0
