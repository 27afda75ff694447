"""Synthetic multi-turn traffic: seeded, endless, as many live sessions as asked, forever new ones.

Each of ``lanes`` holds one live session. A turn picks a lane by Zipf popularity, sends the whole
context so far plus new user tokens, and the reply joins the context of the next turn. A session
ends when its turns are over or its context is full; a fresh one takes the lane. Lengths are
log-normal, arrivals exponential.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from harness.core.config import Strict
from harness.stores.index import mix_pair
from harness.stores.requests.form import RequestBatch, RequestForm

BATCH_REQUESTS = 2048
_BATCH_IDS = 1 << 19


class Lengths(Strict):
    """Log-normal token counts by mean and median; equal ones are a constant."""

    mean: PositiveFloat
    median: PositiveFloat

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """``count`` lengths of at least one token."""
        sigma = np.sqrt(2 * np.log(max(1.0, self.mean / self.median)))
        drawn = self.median * np.exp(sigma * rng.standard_normal(count))
        return np.maximum(1, np.rint(drawn)).astype(np.int64)


class SyntheticSpec(Strict):
    """Multi-turn traffic. ``rate_per_s`` is the mean arrival rate of requests of all sessions.

    ``shared_groups`` system prompts of ``shared_tokens`` are shared by all sessions, picked with
    ``shared_zipf``. ``first_tokens`` replaces ``new_tokens`` on a session's first turn.
    """

    kind: Literal["synthetic"]
    description: str = ""
    block_tokens: PositiveInt = 64
    lanes: PositiveInt = 40
    lane_zipf: float = Field(0.8, ge=0)
    rate_per_s: PositiveFloat = 1.0
    shared_tokens: NonNegativeInt = 0
    shared_groups: PositiveInt = 1
    shared_zipf: float = Field(0.0, ge=0)
    first_tokens: Lengths | None = None
    new_tokens: Lengths
    output_tokens: Lengths
    turns: Lengths
    max_context_tokens: PositiveInt = 131072

    @model_validator(mode="after")
    def _room_for_the_user(self) -> SyntheticSpec:
        if self.shared_tokens >= self.max_context_tokens:
            raise ValueError("shared_tokens must be less than max_context_tokens")
        return self


class _Lanes(NamedTuple):
    """Live sessions, one a lane: session number, turn, turns to come, context tokens, prompt."""

    session: NDArray[np.int64]
    turn: NDArray[np.int64]
    left: NDArray[np.int64]
    context: NDArray[np.int64]
    group: NDArray[np.int64]
    fresh: NDArray[np.int64]


class SyntheticRequests:
    """The traffic of a specification and a seed; every reading yields the same requests."""

    endless = True

    def __init__(self, spec: SyntheticSpec, seed: int, name: str = "synthetic") -> None:
        self.spec, self.seed, self.name = spec, seed, name
        self.form = RequestForm(block_tokens=spec.block_tokens)

    def batches(self) -> Iterator[RequestBatch]:
        """Batches without end."""
        spec = self.spec
        rng = np.random.default_rng(self.seed)
        lanes = _Lanes(*(np.zeros(spec.lanes, np.int64) for _ in _Lanes._fields))
        lanes.fresh[:] = 1
        popularity = _zipf(spec.lanes, spec.lane_zipf)
        groups = _zipf(spec.shared_groups, spec.shared_zipf)
        most = max(1, _BATCH_IDS * spec.block_tokens // spec.max_context_tokens)
        rows = min(BATCH_REQUESTS, most)
        clock, sessions = 0.0, np.zeros(1, np.int64)
        while True:
            times = clock + np.cumsum(rng.exponential(1 / spec.rate_per_s, rows))
            clock = float(times[-1])
            first = spec.first_tokens or spec.new_tokens
            table = _fill_rows(
                lanes, sessions,
                np.searchsorted(popularity, rng.random(rows)),
                np.searchsorted(groups, rng.random(rows)),
                first.draw(rng, rows), spec.new_tokens.draw(rng, rows),
                spec.output_tokens.draw(rng, rows), spec.turns.draw(rng, rows),
                spec.shared_tokens, spec.max_context_tokens,
            )  # fmt: skip
            yield self._batch(times, table)

    def _batch(self, times: NDArray[np.float64], table: NDArray[np.int64]) -> RequestBatch:
        session, turn, inputs, outputs, new, group = table
        blocks = inputs // self.spec.block_tokens
        starts = np.concatenate(([0], np.cumsum(blocks))).astype(np.int64)
        ids = np.empty(starts[-1], np.uint64)
        shared = self.spec.shared_tokens // self.spec.block_tokens
        _fill_ids(ids, starts, session, group, shared, np.uint64(self.seed & (2**64 - 1)))
        u4 = np.uint32
        return RequestBatch(
            self.form, times, session.astype(u4), turn.astype(u4), inputs.astype(u4),
            outputs.astype(u4), new.astype(u4), starts, ids,
        )  # fmt: skip


def _zipf(count: int, exponent: float) -> NDArray[np.float64]:
    """Cumulative popularity of ranks 1 to ``count``."""
    weight = 1.0 / np.arange(1, count + 1) ** exponent
    total = np.cumsum(weight)
    return total / total[-1]


@njit(cache=True)
def _fill_rows(
    lanes: _Lanes, sessions: NDArray[np.int64], picked: NDArray[np.int64],
    groups: NDArray[np.int64], first: NDArray[np.int64], later: NDArray[np.int64],
    output: NDArray[np.int64], turns: NDArray[np.int64], shared: int, most: int,
) -> NDArray[np.int64]:  # fmt: skip
    """Rows session, turn, input, output, new tokens and prompt group of the next requests.

    ``lanes.context`` holds the tokens of prompt and reply so far; ``sessions[0]`` counts them.
    """
    table = np.empty((6, len(picked)), np.int64)
    for r in range(len(picked)):
        lane = picked[r]
        if lanes.fresh[lane]:
            lanes.session[lane] = sessions[0]
            sessions[0] += 1
            lanes.turn[lane] = 0
            lanes.left[lane] = turns[r]
            lanes.context[lane] = shared
            lanes.group[lane] = groups[r]
            lanes.fresh[lane] = 0
        user = first[r] if lanes.turn[lane] == 0 else later[r]
        prompt = min(lanes.context[lane] + user, most)
        table[0, r] = lanes.session[lane]
        table[1, r] = lanes.turn[lane]
        table[2, r] = prompt
        table[3, r] = output[r]
        table[4, r] = prompt - lanes.context[lane] + output[r]
        table[5, r] = lanes.group[lane]
        lanes.context[lane] = prompt + output[r]
        lanes.turn[lane] += 1
        if lanes.turn[lane] >= lanes.left[lane] or lanes.context[lane] >= most:
            lanes.fresh[lane] = 1
    return table


@njit(cache=True)
def _fill_ids(
    ids: NDArray[np.uint64], starts: NDArray[np.int64], session: NDArray[np.int64],
    group: NDArray[np.int64], shared: int, seed: np.uint64,
) -> None:  # fmt: skip
    """Chained ids: a block is named by whose it is (prompt group or session) and its number."""
    one = np.uint64(1)
    for r in range(len(session)):
        own = mix_pair(seed, (np.uint64(session[r]) << one) | one)
        common = mix_pair(seed, np.uint64(group[r]) << one)
        for b in range(starts[r + 1] - starts[r]):
            owner = common if b < shared else own
            ids[starts[r] + b] = mix_pair(owner, np.uint64(b))
