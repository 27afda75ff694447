"""Small traces by hand: each request is the path of names that it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.simulator.corpus import Corpus, build
from harness.simulator.point import Point, trace_id
from harness.simulator.run import Run, simulate
from harness.stores.requests.form import Request, RequestBatch, RequestForm

BLOCK = 64


class Listed:
    """A request source of a list."""

    name = "listed"
    seed = None
    endless = False

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        self.form = requests[0].form

    def batches(self) -> Any:
        yield RequestBatch.of(self.requests)


def corpus_of(
    paths: Sequence[Sequence[int]],
    sessions: Sequence[int] | None = None,
    times: Sequence[float] | None = None,
    outputs: Sequence[int] | None = None,
    form: RequestForm = RequestForm(BLOCK),  # noqa: B008
) -> Corpus:
    """Request r asks for the chained blocks ``paths[r]``; ids name a block with its prefix."""
    turns: dict[int, int] = {}
    rows = []
    for r, path in enumerate(paths):
        session = sessions[r] if sessions else r
        turns[session] = turns.get(session, -1) + 1
        rows.append(
            Request(
                form, float(times[r] if times else r), session, turns[session],
                len(path) * form.block_tokens, outputs[r] if outputs else 0, 0,
                chained(path),
            )
        )  # fmt: skip
    return build(Listed(rows))


def chained(path: Sequence[int]) -> np.ndarray:
    ids, before = [], 0
    for name in path:
        before = hash((before, name)) & (2**64 - 1)
        ids.append(before)
    return np.array(ids, np.uint64)


def point_of(corpus: Corpus, **options: Any) -> Point:
    given = {"chunk_bytes": 1, "state_bytes": 0, "dram_bytes": 2, "ssd_bytes": 2} | options
    return Point(
        trace=trace_id(corpus.name, corpus.content_hash), block_tokens=corpus.block_tokens, **given
    )


def run(corpus: Corpus, compiled: bool = False, log: bool = True, **options: Any) -> Run:
    """The run of a point; sizes are F = 1, no states, both tiers 2, unless said."""
    return simulate(corpus, point_of(corpus, **options), compiled=compiled, log=log)
