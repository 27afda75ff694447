"""PRED, from its title: what a waiting request asks for stays; of the rest, the oldest goes first.

The paper was not seen. Ours: one server takes requests in order of arrival and is busy with each
for the tokens that it misses, at ``prefill_tokens_s``; requests come ``speed`` times as fast as by
the trace's clock. When it takes one, those that have come since are known by their prompts: their
chunks, and the state that each would continue from if nothing had been lost, go only if there is
nothing else. No request is looked at before it has come. Without a queue this is LRU. Both tiers;
written if it leaves DRAM.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import PositiveFloat

from harness.simulator.hooks import Parameters, World, class_of, order, state_at
from harness.simulator.state import BLOCK_TOKENS

REBUILD = True
LIKE = True

_ARRIVED, _HIT = range(2)
_START_S, _FREE_S, _PREFILL, _SPEED = range(4)
_LATER = 1e15


class Settings(Parameters):
    """How fast the server computes, and how much faster than recorded requests come."""

    prefill_tokens_s: PositiveFloat = 60000.0
    speed: PositiveFloat = 1.0


class Own(NamedTuple):
    """``waiting`` int32[objects] (requests that wait for it); ``numbers`` int64[2] (requests that
    have come, chunks that this one hit); ``clock`` float64[4]."""

    waiting: np.ndarray
    numbers: np.ndarray
    clock: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Nobody waits."""
    return Own(
        np.zeros(world.objects, np.int32),
        np.zeros(2, np.int64),
        np.array([0.0, 0.0, settings.prefill_tokens_s, settings.speed]),
    )


def begin(s: Any, r: int) -> None:
    """The server takes request ``r``: those that have come until now wait behind it."""
    clock, numbers = s.p.clock, s.p.numbers
    clock[_START_S] = max(s.time_s[r] / clock[_SPEED], clock[_FREE_S])
    numbers[_HIT] = 0
    while (
        numbers[_ARRIVED] < len(s.time_s)
        and s.time_s[numbers[_ARRIVED]] / clock[_SPEED] <= clock[_START_S]
    ):
        wait(s, numbers[_ARRIVED], 1)
        numbers[_ARRIVED] += 1
    wait(s, r, -1)


def wait(s: Any, r: int, step: int) -> None:
    """Request ``r`` waits for its prompt's chunks and its state, or no longer does (step -1)."""
    left = s.chunks[r]
    for run in range(s.path_of[r], s.path_of[r + 1]):
        count = min(s.path_length[run], left)
        for o in range(s.path_first[run], s.path_first[run] + count):
            s.p.waiting[o] += step
        left -= count
    if s.wanted[r] >= 0:
        s.p.waiting[state_at(s, s.wanted[r])] += step


def used(s: Any, first: int, count: int) -> None:
    """Chunks that need not be computed."""
    if class_of(s, first) == 0:
        s.p.numbers[_HIT] += count


def finish(s: Any, r: int) -> None:
    """When the server is free again."""
    tokens = max(s.input_tokens[r] - s.p.numbers[_HIT] * s.cfg[BLOCK_TOKENS], 0)
    s.p.clock[_FREE_S] = s.p.clock[_START_S] + tokens / s.p.clock[_PREFILL]


def key(s: Any, q: int, o: int) -> float:
    """LRU, first without those waited for."""
    return order(s, o) + (_LATER if s.p.waiting[o] > 0 else 0.0)
