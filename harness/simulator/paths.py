"""A corpus made ready for the engines: paths cut into segments, children linked.

A segment is a chain of nodes that every request asks for as a whole: it begins where the tree
branches, where a request ends, and where another request has made the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.simulator.corpus_form import Corpus
from harness.simulator.tree_kernel import continuations, link_children


@dataclass(frozen=True, eq=False)
class Paths:
    """Segment i is nodes ``segment_first[i]`` to ``segment_first[i + 1] - 1``.

    Request r's path, ``path_of[r]`` to ``path_of[r + 1]``, is of segments ``path_segment``, which
    begin at nodes ``path_first`` and have ``path_length`` nodes (int32); ``chunks`` int32[R] of its
    nodes are the prompt's, the others its output. ``segment_of`` int32[N].
    """

    path_of: NDArray[np.int64]
    path_segment: NDArray[np.int32]
    path_first: NDArray[np.int32]
    path_length: NDArray[np.int32]
    chunks: NDArray[np.int32]
    segment_first: NDArray[np.int64]
    segment_of: NDArray[np.int32]
    parent: NDArray[np.int32]
    first_child: NDArray[np.int32]
    next_child: NDArray[np.int32]
    first_request: NDArray[np.uint32]

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.chunks)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.parent)

    def ends(self) -> NDArray[np.int32]:
        """Last node of each path, int32[R]; -1 for a prompt without a full block."""
        return _ends(self.path_of, self.path_first, self.path_length)


def _ends(
    path_of: NDArray[np.int64], first: NDArray[np.int32], length: NDArray[np.int32]
) -> NDArray[np.int32]:
    last = path_of[1:] - 1
    some = np.diff(path_of) > 0
    ends = np.full(len(some), -1, np.int32)
    ends[some] = first[last[some]] + length[last[some]] - 1
    return ends


def paths_of(corpus: Corpus, with_outputs: bool = False) -> Paths:
    """The paths of a corpus; with outputs, they go on as far as the session's next prompt shows."""
    path_of = corpus.run_of
    first = corpus.run_node.astype(np.int32)
    length = corpus.run_length.astype(np.int32)
    chunks = corpus.chunks().astype(np.int32)
    ends = [_ends(path_of, first, length)]
    if with_outputs:
        path_of, first, length = _longer(corpus, first, length, chunks)
        ends.append(_ends(path_of, first, length))
    starts = _segment_starts(corpus, first, ends)
    segment_first = np.append(np.flatnonzero(starts), corpus.nodes)
    segment_of = (np.cumsum(starts) - 1).astype(np.int32)
    head, tail = segment_of[first], segment_of[first + length - 1]
    counts = tail - head + 1
    offsets = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    segment = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - head, counts)
    first_child, next_child = np.full((2, corpus.nodes), -1, np.int32)
    link_children(corpus.parent, first_child, next_child)
    return Paths(
        path_of=offsets[path_of],
        path_segment=segment.astype(np.int32),
        path_first=segment_first[segment].astype(np.int32),
        path_length=np.diff(segment_first)[segment].astype(np.int32),
        chunks=chunks,
        segment_first=segment_first,
        segment_of=segment_of,
        parent=corpus.parent,
        first_child=first_child,
        next_child=next_child,
        first_request=corpus.first_request,
    )


def _segment_starts(
    corpus: Corpus, first: NDArray[np.int32], ends: list[NDArray[np.int32]]
) -> NDArray[np.bool_]:
    parent, nodes = corpus.parent, corpus.nodes
    closed = np.bincount(parent + 1, minlength=nodes + 1)[1:] > 1
    for some in ends:
        closed[some[some >= 0]] = True
    starts = np.empty(nodes, np.bool_)
    starts[:1] = True
    starts[1:] = (parent[1:] != np.arange(nodes - 1)) | closed[:-1]
    starts[1:] |= corpus.first_request[1:] != corpus.first_request[:-1]
    starts[first] = True
    return starts


def _longer(
    corpus: Corpus, first: NDArray[np.int32], length: NDArray[np.int32], chunks: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """The paths, each followed by the output's blocks that the session's next prompt names."""
    order = np.argsort(corpus.session, kind="stable")
    same = corpus.session[order[1:]] == corpus.session[order[:-1]]
    follower = np.full(corpus.requests, -1, np.int64)
    follower[order[:-1][same]] = order[1:][same]
    tokens = corpus.input_tokens.astype(np.int64) + corpus.output_tokens
    more = np.empty(corpus.requests, np.int64)
    wanted = tokens // corpus.block_tokens
    continuations(corpus.run_of, first, length, chunks, follower, wanted, more)
    runs: list[tuple[int, int, int]] = []
    for r in np.flatnonzero(more):
        begin, end = int(chunks[r]), int(chunks[r] + more[r])
        runs += [(int(r), *part) for part in _part(corpus, int(follower[r]), begin, end)]
    table = np.array(runs, np.int64).reshape(-1, 3)
    owner = np.repeat(np.arange(corpus.requests), np.diff(corpus.run_of))
    owner = np.concatenate((owner, table[:, 0]))
    place = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=corpus.requests)
    return (
        np.concatenate(([0], np.cumsum(counts))),
        np.concatenate((first, table[:, 1].astype(np.int32)))[place],
        np.concatenate((length, table[:, 2].astype(np.int32)))[place],
    )


def _part(corpus: Corpus, r: int, begin: int, end: int) -> list[tuple[int, int]]:
    """Runs (first node, length) of places ``begin`` to ``end`` - 1 of a path."""
    parts = []
    place = 0
    for run in range(int(corpus.run_of[r]), int(corpus.run_of[r + 1])):
        count = int(corpus.run_length[run])
        low, high = max(begin - place, 0), min(end - place, count)
        if low < high:
            parts.append((int(corpus.run_node[run]) + low, high - low))
        place += count
    return parts
