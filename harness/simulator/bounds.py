"""Bounds that no policy can pass: Belady, the endless cache, the writes that hits need."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.simulator.corpus_build import with_hash
from harness.simulator.corpus_form import Corpus
from harness.simulator.paths import paths_of
from harness.simulator.prepare import prepare
from harness.simulator.requestlog import SsdAction, SsdLog


def ideal_hits(corpus: Corpus, checkpoint: str = "end", states: bool = False) -> int:
    """Chunk hits of an endless cache; with ``states``, only up to the last state ever made."""
    if not states:
        return corpus.references - corpus.nodes
    wanted = prepare(corpus, checkpoint, True, False).wanted
    return int((corpus.depth[wanted[wanted >= 0]].astype(np.int64) + 1).sum())


def belady_hits(corpus: Corpus, chunks: int) -> int:
    """Hits of one tier of so many chunks that always gives up what is used last, if at all.

    Bypass is allowed, so it bounds two tiers of the same bytes together, and prefix hits too, for
    holes only lose. By the stack of next uses: a chunk kept from one use to the next takes a place
    over all requests in between, and the hits are those intervals that can be kept, shortest end
    first.
    """
    paths = paths_of(corpus)
    lengths = np.diff(paths.segment_first)
    starts, ends, weights = [], [], []
    last: NDArray[np.int64] = np.full(len(lengths), -1, np.int64)
    for r in range(corpus.requests):
        for segment in paths.path_segment[paths.path_of[r] : paths.path_of[r + 1]]:
            if last[segment] >= 0:
                starts.append(int(last[segment]))
                ends.append(r)
                weights.append(int(lengths[segment]))
            last[segment] = r
    return _most_kept(starts, ends, weights, chunks, corpus.requests)


def _most_kept(
    starts: list[int], ends: list[int], weights: list[int], room: int, requests: int
) -> int:
    """Weight of the intervals kept, each filling its weight strictly between its two requests.

    Swept over time: whenever more is kept than there is room for, what ends last is given up, in
    parts if need be. That is optimal for unit chunks (Belady), which the weights are made of.
    """
    begins: list[list[int]] = [[] for _ in range(requests + 1)]
    for at, start in enumerate(starts):
        begins[start].append(at)
    kept = [0] * len(starts)
    held: list[tuple[int, int]] = []
    total = hits = 0
    finishing: list[list[int]] = [[] for _ in range(requests + 1)]
    for r in range(requests):
        for at in finishing[r]:
            hits += kept[at]
            total -= kept[at]
            kept[at] = 0
        for at in begins[r]:
            kept[at] = weights[at]
            total += weights[at]
            finishing[ends[at]].append(at)
            heapq.heappush(held, (-ends[at], at))
        while total > room:
            _, at = held[0]
            if kept[at] == 0:
                heapq.heappop(held)
                continue
            gone = min(kept[at], total - room)
            kept[at] -= gone
            total -= gone
    return hits


def least_writes(log: SsdLog) -> int:
    """Objects that were read from the SSD at all: each was written at least once."""
    reads = log[log["action"] == SsdAction.READ]
    seen = {
        (int(row["object_class"]), int(row["node"]) + step)
        for row in reads
        for step in range(int(row["count"]))
    }
    return len(seen)


def state_uses(corpus: Corpus, checkpoint: str = "end") -> NDArray[np.int64]:
    """How often each state that is ever made is asked for in an endless cache (figure 6)."""
    ready = prepare(corpus, checkpoint, True, True)
    return ready.asks[corpus.nodes :].astype(np.int64)


def flattened(corpus: Corpus) -> Corpus:
    """Each reference as a request of its own, without any prefix: what classical policies see."""
    chunks = corpus.chunks()
    nodes = corpus.references_of()
    references = len(nodes)
    first = np.zeros(corpus.nodes, np.uint32)
    first[nodes[::-1]] = np.arange(references - 1, -1, -1)
    columns: dict[str, Any] = {
        name: np.repeat(getattr(corpus, name), chunks)
        for name in ("time_s", "session", "turn", "output_tokens", "tag")
    }
    return with_hash(
        replace(
            corpus,
            **columns,
            name=f"{corpus.name}-flat",
            input_tokens=np.full(references, corpus.block_tokens, np.uint32),
            run_of=np.arange(references + 1, dtype=np.int64),
            run_node=nodes.astype(np.uint32),
            run_length=np.ones(references, np.uint32),
            parent=np.full(corpus.nodes, -1, np.int32),
            depth=np.zeros(corpus.nodes, np.int32),
            first_request=first,
        )
    )
