"""The form in which every request trace is loaded, whatever file it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class RequestForm:
    """How the block ids of a trace are to be read.

    block_tokens: tokens an id stands for. session_scope: ids name a prefix inside their session
    only, not across sessions. partial_tail: the last id may stand for fewer tokens, so the count of
    full blocks is ``input_tokens // block_tokens``. has_ids: False for traces of lengths only.
    """

    block_tokens: int
    session_scope: bool = False
    partial_tail: bool = False
    has_ids: bool = True


class Tag(IntEnum):
    """Who made a request: the agent of a conversation, or one that it started itself."""

    UNTAGGED = 0
    """The trace does not say."""
    MAIN = 1
    SUBAGENT = 2


@dataclass(frozen=True)
class Request:
    """One request. ``ids``: uint64, one a block of the prompt, chained: equal id, equal prefix.

    ``new_tokens``: prompt tokens that no earlier request of the trace had, plus the output.
    """

    form: RequestForm
    time_s: float
    session: int
    turn: int
    input_tokens: int
    output_tokens: int
    new_tokens: int
    ids: NDArray[np.uint64]
    tag: Tag = Tag.UNTAGGED


@dataclass(frozen=True)
class RequestBatch:
    """Consecutive requests as arrays; request r has ``ids[starts[r]:starts[r + 1]]``.

    time_s float64[n]; session, turn, input_tokens, output_tokens, new_tokens uint32[n];
    starts int64[n + 1]; ids uint64[starts[n]]; tag uint8[n], a ``Tag`` each.
    """

    form: RequestForm
    time_s: NDArray[np.float64]
    session: NDArray[np.uint32]
    turn: NDArray[np.uint32]
    input_tokens: NDArray[np.uint32]
    output_tokens: NDArray[np.uint32]
    new_tokens: NDArray[np.uint32]
    starts: NDArray[np.int64]
    ids: NDArray[np.uint64]
    tag: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.time_s)

    def __iter__(self) -> Iterator[Request]:
        for row in range(len(self)):
            yield self.request(row)

    def request(self, row: int) -> Request:
        """Request ``row``, its ids a view."""
        return Request(
            self.form,
            float(self.time_s[row]),
            int(self.session[row]),
            int(self.turn[row]),
            int(self.input_tokens[row]),
            int(self.output_tokens[row]),
            int(self.new_tokens[row]),
            self.ids[self.starts[row] : self.starts[row + 1]],
            Tag(self.tag[row]),
        )

    def full_blocks(self) -> NDArray[np.int64]:
        """Ids of each request that stand for a whole block, int64[n]: a last one may not."""
        whole = self.input_tokens.astype(np.int64) // self.form.block_tokens
        return np.minimum(np.diff(self.starts), whole)

    def part(self, first: int, last: int) -> RequestBatch:
        """Requests ``first`` to ``last`` (exclusive, cut to what there is), as views."""
        rows = slice(first, last)
        starts = self.starts[first : min(last, len(self)) + 1]
        return RequestBatch(
            self.form,
            self.time_s[rows],
            self.session[rows],
            self.turn[rows],
            self.input_tokens[rows],
            self.output_tokens[rows],
            self.new_tokens[rows],
            starts - starts[0],
            self.ids[starts[0] : starts[-1]],
            self.tag[rows],
        )

    def parts(self, size: int) -> Iterator[RequestBatch]:
        """The requests in their order, at most ``size`` at a time, as views."""
        for first in range(0, len(self), size):
            yield self.part(first, first + size)

    @staticmethod
    def of(requests: Iterable[Request]) -> RequestBatch:
        """The batch of some requests, which must share their form and be at least one."""
        rows = list(requests)
        counts = np.array([len(r.ids) for r in rows], dtype=np.int64)
        u4 = np.uint32
        return RequestBatch(
            rows[0].form,
            np.array([r.time_s for r in rows], dtype=np.float64),
            np.array([r.session for r in rows], dtype=u4),
            np.array([r.turn for r in rows], dtype=u4),
            np.array([r.input_tokens for r in rows], dtype=u4),
            np.array([r.output_tokens for r in rows], dtype=u4),
            np.array([r.new_tokens for r in rows], dtype=u4),
            np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            np.concatenate([np.asarray(r.ids, dtype=np.uint64) for r in rows]),
            np.array([r.tag for r in rows], dtype=np.uint8),
        )


class RequestSource(Protocol):
    """A request trace that can be read from its start any number of times.

    ``name`` says what it is in reports; ``seed`` is None for recorded traces; an ``endless`` one
    never runs out.
    """

    @property
    def name(self) -> str: ...
    @property
    def form(self) -> RequestForm: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def endless(self) -> bool: ...
    def batches(self) -> Iterator[RequestBatch]: ...


def take(batches: Iterable[RequestBatch], requests: int | None) -> Iterator[RequestBatch]:
    """The first ``requests`` requests of a stream of batches; all of them for None."""
    left = requests
    for batch in batches:
        if left is None:
            yield batch
            continue
        if left <= 0:
            return
        part = batch.part(0, left)
        left -= len(part)
        yield part
