"""Synthetic multi-turn traffic: seeded, endless, with fresh sessions joining for ever.

A turn sends the whole context so far and new user tokens; the reply joins the context of the next
turn. A prompt begins with a system prompt that sessions share and perhaps a document that several
of them are about. Some turns go back one turn (an edit, a retry) or start over from the shared part
(a compaction). Lengths and pauses are log-normal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from harness.core.config import Strict
from harness.core.errors import UsageError
from harness.stores.requests.form import RequestBatch, RequestForm, Tag
from harness.stores.requests.synthetic_kernel import (
    COLUMNS,
    Shape,
    Sizes,
    grow_traffic,
    make_requests,
    new_traffic,
)

BATCH_REQUESTS = 2048
_BATCH_IDS = 1 << 19


class Lengths(Strict):
    """Log-normal numbers by mean and median; equal ones make a constant."""

    mean: PositiveFloat
    median: PositiveFloat

    @model_validator(mode="after")
    def _skewed_upwards(self) -> Lengths:
        if self.mean < self.median:
            raise ValueError("a log-normal mean cannot be below its median")
        return self

    @property
    def sizes(self) -> Sizes:
        """Median and the standard deviation of the logarithm."""
        return Sizes(self.median, float(np.sqrt(2 * np.log(self.mean / self.median))))


class Pool(Strict):
    """A fixed number of live sessions; each request picks one by Zipf rank."""

    lanes: PositiveInt
    zipf: float = Field(0.0, ge=0)
    rate_per_s: PositiveFloat


class Open(Strict):
    """Sessions arrive at random; each waits ``think_s`` from one request to its next."""

    sessions_per_s: PositiveFloat
    think_s: Lengths


class Shared(Strict):
    """System prompts of ``tokens``, one of ``groups`` a session, by Zipf rank."""

    tokens: NonNegativeInt = 0
    groups: PositiveInt = 1
    zipf: float = Field(0.0, ge=0)


class Documents(Strict):
    """A document before the conversation: new with ``new_share``, else a recent one.

    Only ``asked_again_share`` of the documents are ever asked about by a second session;
    ``window`` is the mean age, in documents, at which that happens.
    """

    tokens: Lengths
    new_share: float = Field(gt=0, le=1)
    window: PositiveFloat = 100.0
    asked_again_share: float = Field(1.0, gt=0, le=1)


class Large(Strict):
    """Turns that bring in much at once (a file, a page of results): ``share`` of those after a
    session's first have ``tokens`` instead of ``new_tokens``."""

    share: float = Field(gt=0, le=1)
    tokens: Lengths


class SyntheticSpec(Strict):
    """Traffic, as in ``workloads/requests``.

    ``first_tokens`` replaces ``new_tokens`` on a session's first turn. ``branch_share`` of the
    turns go back one turn first, ``restart_share`` start over with ``first_tokens``. A session
    whose context is full ends, or starts over (``when_full: restart``).
    """

    kind: Literal["synthetic"]
    description: str = ""
    block_tokens: PositiveInt = 64
    pool: Pool | None = None
    open: Open | None = None
    shared: Shared = Shared()
    documents: Documents | None = None
    first_tokens: Lengths | None = None
    new_tokens: Lengths
    large: Large | None = None
    output_tokens: Lengths
    turns: Lengths
    branch_share: float = Field(0.0, ge=0, le=0.5)
    restart_share: float = Field(0.0, ge=0, le=0.5)
    max_context_tokens: PositiveInt = 131072
    when_full: Literal["end", "restart"] = "end"

    @model_validator(mode="after")
    def _consistent(self) -> SyntheticSpec:
        if (self.pool is None) == (self.open is None):
            raise ValueError("give either pool or open")
        if self.shared.tokens >= self.max_context_tokens:
            raise ValueError("shared.tokens must be less than max_context_tokens")
        return self


class SyntheticRequests:
    """The traffic of a specification and a seed; every reading yields the same requests."""

    endless = True

    def __init__(self, spec: SyntheticSpec, seed: int, name: str = "synthetic") -> None:
        if not 0 <= seed < 2**64:
            raise UsageError(f"a seed has 64 bits: {seed}")
        self.spec, self.seed, self.name = spec, seed, name
        self.form = RequestForm(block_tokens=spec.block_tokens)

    def batches(self) -> Iterator[RequestBatch]:
        """Batches without end."""
        shape = _shape(self.spec, self.seed)
        most = self.spec.max_context_tokens // self.spec.block_tokens + 1
        lanes = self.spec.pool.lanes if self.spec.pool else BATCH_REQUESTS
        state = new_traffic(lanes, open_loop=self.spec.open is not None)
        rng = np.random.default_rng(self.seed)
        while True:
            state = grow_traffic(state, BATCH_REQUESTS)
            times = np.empty(BATCH_REQUESTS)
            table = np.empty((COLUMNS, BATCH_REQUESTS), np.int64)
            ids = np.empty(max(_BATCH_IDS, most), np.uint64)
            rows = make_requests(shape, state, rng, times, table, ids, most)
            yield self._batch(times[:rows], table[:, :rows], ids)

    def _batch(
        self, times: NDArray[np.float64], table: NDArray[np.int64], ids: NDArray[np.uint64]
    ) -> RequestBatch:
        session, turn, inputs, outputs, new, blocks = table
        starts = np.concatenate(([0], np.cumsum(blocks))).astype(np.int64)
        u4 = np.uint32
        return RequestBatch(
            self.form, times, session.astype(u4), turn.astype(u4), inputs.astype(u4),
            outputs.astype(u4), new.astype(u4), starts, ids[: starts[-1]],
            np.full(len(times), Tag.UNTAGGED, np.uint8),
        )  # fmt: skip


def _zipf(count: int, exponent: float) -> NDArray[np.float64]:
    """Cumulative popularity of ranks 1 to ``count``."""
    total = np.cumsum(1.0 / np.arange(1, count + 1) ** exponent)
    return total / total[-1]


def _shape(spec: SyntheticSpec, seed: int) -> Shape:
    pool, arrivals, documents = spec.pool, spec.open, spec.documents
    none = Sizes(1.0, 0.0)
    return Shape(
        seed=np.uint64(seed),
        block=spec.block_tokens,
        gap_s=1 / pool.rate_per_s if pool else 1 / arrivals.sessions_per_s if arrivals else 0.0,
        lane_share=_zipf(pool.lanes, pool.zipf) if pool else np.ones(1),
        think=arrivals.think_s.sizes if arrivals else none,
        shared=spec.shared.tokens,
        group_share=_zipf(spec.shared.groups, spec.shared.zipf),
        document=documents.tokens.sizes if documents else none,
        document_new=documents.new_share if documents else 0.0,
        document_window=documents.window if documents else 1.0,
        document_asked_again=documents.asked_again_share if documents else 0.0,
        first=(spec.first_tokens or spec.new_tokens).sizes,
        new=spec.new_tokens.sizes,
        large=spec.large.tokens.sizes if spec.large else none,
        large_share=spec.large.share if spec.large else 0.0,
        output=spec.output_tokens.sizes,
        turns=spec.turns.sizes,
        branch=spec.branch_share,
        restart=spec.restart_share,
        most=spec.max_context_tokens,
        restart_when_full=spec.when_full == "restart",
    )
