"""Marconi: first goes what saves fewest FLOPs a byte and was used longest ago, weighed by alpha.

Score = alpha x minmax(efficiency) + minmax(1 / requests since the last use), over the candidates of
a queue that are not in use, once a request. Only the deepest chunk and the state that a request
used are stamped. Efficiency of a state: FLOPs of the prefix up to it less those up to the last
state before it, over its bytes and those of the prefix's chunks; of a chunk: its own FLOPs over its
bytes. FLOPs of a layer at length L, width D, state N: attention 8 L D^2 + 4 L^2 D, MLP 16 L D^2,
state 12 L D^2 + 16 L D N + 10 L D. With ``tune`` alpha is set once while running (see
``simulator.tuning``) to that of 0, 0.1, ... 2 that would have saved most FLOPs. Ours: two tiers,
write-back, chunks one by one; alpha as given until then, or for good; layers are parameters, for a
policy does not know the model. Only facts were taken from the published code (CC BY-NC).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from harness.simulator.hooks import (
    DROP,
    EVICT,
    MOVE,
    MOVE_STATE,
    Parameters,
    World,
    candidate,
    chunks_behind,
    class_of,
    node_of,
    peek,
    pinned,
)
from harness.simulator.hooks import choose as choose_by_tree
from harness.simulator.state import NOW, QUEUES, SIZE_FULL, SIZE_STATE
from harness.simulator.tuning import Tunings

STRUCTURES = ("free", "leaf")
REBUILD = True
ANY_NODE = True

_ALPHA, _LINEAR, _SQUARE = range(3)
_ALPHAS = tuple(step / 10 for step in range(21))
_EFF_LOW, _EFF_HIGH, _REC_LOW, _REC_HIGH = range(4)


class Settings(Parameters):
    """``alpha``; the layers that one token passes, their width, and what a state layer keeps.

    ``window``: requests, as a multiple of those until the first eviction, after which alpha is
    tuned; the source has 5, and 15 for short chats.
    """

    alpha: float = Field(1.0, ge=0)
    tune: bool = False
    window: int = Field(5, ge=2)
    attention_layers: int = Field(4, ge=0)
    mlp_layers: int = Field(28, ge=0)
    state_layers: int = Field(24, ge=0)
    width: PositiveInt = 4096
    state: PositiveInt = 128


class Own(NamedTuple):
    """``used_at`` int32[objects] (last stamp, -1); ``deepest`` int32[2] (chunk and state that the
    request used, -1); ``weights`` float64[3] (alpha; FLOPs of L blocks are a L + b L^2);
    ``ranges`` float64[QUEUES, 4] (least, most efficiency and recency), of request ``ranged``
    int64[QUEUES]."""

    used_at: np.ndarray
    deepest: np.ndarray
    weights: np.ndarray
    ranges: np.ndarray
    ranged: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Nothing was used."""
    d, n, block = float(settings.width), float(settings.state), float(world.block_tokens)
    linear = (
        settings.attention_layers * 8 * d * d
        + settings.mlp_layers * 16 * d * d
        + settings.state_layers * (12 * d * d + 16 * d * n + 10 * d)
    )
    square = settings.attention_layers * 4 * d
    return Own(
        np.full(world.objects, -1, np.int32),
        np.full(2, -1, np.int32),
        np.array([settings.alpha, linear * block, square * block * block]),
        np.zeros((QUEUES, 4)),
        np.full(QUEUES, -1, np.int64),
    )


def tunings(settings: Settings) -> Tunings | None:
    """Alphas, if it is to be tuned."""
    return Tunings(_ALPHAS, settings.window) if settings.tune else None


def tune(own: Own, alpha: float) -> None:
    """Set it."""
    own.weights[_ALPHA] = alpha


def saved(own: Own, hits: NDArray[np.int64]) -> float:
    """FLOPs of the prefixes that were used."""
    blocks = hits.astype(np.float64)
    return float((own.weights[_LINEAR] * blocks + own.weights[_SQUARE] * blocks * blocks).sum())


def begin(s: Any, r: int) -> None:
    """Nothing was used yet."""
    s.p.deepest[0] = -1
    s.p.deepest[1] = -1


def used(s: Any, first: int, count: int) -> None:
    """The last of the runs ends with the deepest."""
    s.p.deepest[class_of(s, first)] = first + count - 1


def created(s: Any, o: int) -> None:
    """Made is stamped."""
    s.p.used_at[o] = s.reg[NOW]


def finish(s: Any, r: int) -> None:
    """Stamp the deepest of what was used."""
    for kind in range(2):
        if s.p.deepest[kind] >= 0:
            s.p.used_at[s.p.deepest[kind]] = r


def flops(s: Any, blocks: float) -> float:
    """Of a prefix of so many blocks."""
    return s.p.weights[_LINEAR] * blocks + s.p.weights[_SQUARE] * blocks * blocks


def efficiency(s: Any, o: int) -> float:
    """FLOPs that it saves over bytes."""
    blocks = float(s.depth[node_of(s, o)] + 1)
    if class_of(s, o) == 0:
        return (flops(s, blocks) - flops(s, blocks - 1.0)) / s.cfg[SIZE_FULL]
    saved = flops(s, blocks) - flops(s, blocks - chunks_behind(s, o))
    return saved / (s.cfg[SIZE_STATE] + blocks * s.cfg[SIZE_FULL])


def recency(s: Any, o: int) -> float:
    """1 over requests since its stamp, which are at least 1."""
    return 1.0 / max(s.reg[NOW] - s.p.used_at[o], 1)


def measure(s: Any, q: int) -> None:
    """Ranges over the candidates of a queue, when it is first asked in a request."""
    if s.p.ranged[q] == s.reg[NOW]:
        return
    s.p.ranged[q] = s.reg[NOW]
    eff_low, eff_high, rec_low, rec_high = np.inf, -np.inf, np.inf, -np.inf
    for place in range(s.queue_size[q]):
        o = s.queue_object[q, place]
        if candidate(s, q, o) and not pinned(s, o):
            worth, recent = efficiency(s, o), recency(s, o)
            eff_low, eff_high = min(eff_low, worth), max(eff_high, worth)
            rec_low, rec_high = min(rec_low, recent), max(rec_high, recent)
    s.p.ranges[q, _EFF_LOW] = eff_low
    s.p.ranges[q, _EFF_HIGH] = eff_high
    s.p.ranges[q, _REC_LOW] = rec_low
    s.p.ranges[q, _REC_HIGH] = rec_high


def within(low: float, high: float, value: float) -> float:
    """Place in a range from 0 to 1; 1 if all are alike."""
    return (value - low) / (high - low) if high > low else 1.0


def key(s: Any, q: int, o: int) -> float:
    """Smallest score first."""
    at = s.p.ranges
    worth = within(at[q, _EFF_LOW], at[q, _EFF_HIGH], efficiency(s, o))
    recent = within(at[q, _REC_LOW], at[q, _REC_HIGH], recency(s, o))
    return s.p.weights[_ALPHA] * worth + recent


def choose(s: Any) -> tuple[int, bool]:
    """By the rules of the tree."""
    measure(s, DROP)
    measure(s, MOVE)
    measure(s, MOVE_STATE)
    return choose_by_tree(s)


def victim_ssd(s: Any) -> int:
    """The smallest score."""
    measure(s, EVICT)
    return peek(s, EVICT)
