"""PrefixShield, from its title: the tenant that holds most of a tier gives up its oldest first.

The paper was not seen. Ours: a tenant is a session; an object, shared or not, is charged to the one
that admitted it first, for good; all have the same share of a tier, so the one that holds most is
most over. Who holds how much is looked at once a request. Both tiers; written if it leaves DRAM.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from harness.simulator.hooks import EVICT, Parameters, World, size_of
from harness.simulator.lists import tier_index
from harness.simulator.state import NOW

REBUILD = True
ANY_NODE = True
LIKE = True


class Own(NamedTuple):
    """``owner`` int32[objects] (-1); ``charged`` int64[2, sessions], bytes by tier."""

    owner: np.ndarray
    charged: np.ndarray


def create(world: World, settings: Parameters) -> Own:
    """Nobody holds anything."""
    return Own(np.full(world.objects, -1, np.int32), np.zeros((2, world.sessions), np.int64))


def created(s: Any, o: int) -> None:
    """Admitted, by this session if by none before."""
    if s.p.owner[o] < 0:
        s.p.owner[o] = s.session[s.reg[NOW]]


def entered(s: Any, o: int, tier: int) -> None:
    """Charged."""
    s.p.charged[tier_index(tier), s.p.owner[o]] += size_of(s, o)


def left(s: Any, o: int, tier: int) -> None:
    """Charged no more."""
    s.p.charged[tier_index(tier), s.p.owner[o]] -= size_of(s, o)


def key(s: Any, q: int, o: int) -> float:
    """Of who holds most first."""
    return -float(s.p.charged[1 if q == EVICT else 0, s.p.owner[o]])
