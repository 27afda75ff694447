"""The arrays of the segment engine, by the names that its functions and the queues use."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from harness.simulator.corpus_form import Corpus
from harness.simulator.point import Point
from harness.simulator.prepare import Prepared
from harness.simulator.sizes import ObjectSizes
from harness.simulator.state import DRAM, SETTINGS, SSD, empty_arrays
from harness.simulator.tree_kernel import link_children

# Rows of ``part``.
ON_SSD, HELD, HIT, USED_PART, EVER, STAMP, CHILDREN = range(7)
PARTS = 7


class SegmentState(NamedTuple):
    """G segments; object g is the chunks of segment g, object g + G the state at its end.

    Read only: ``path_of`` int64[R + 1], ``path_segment`` int32[P], ``chunks`` int32[R], ``session``
    int32[R], ``length``, ``start_depth``, ``parent`` (segments, -1), ``first_child``,
    ``next_child`` int32[G], ``made_of`` int64[R + 1], ``made`` int32 (segments), ``made_before``
    int32[G] (segments), ``last_asked`` int32[2G].

    ``part`` int32[PARTS, G]: of the segment's first nodes, how many are on the SSD, are held in
    all (those after the SSD's in DRAM), were hit on the SSD, were used since they were made, and
    were ever written; then its last request, and how many child segments hold something.
    ``flag`` uint8[G] and ``stamp`` int32[G] are those of the states. The rest is as in ``State``.
    """

    path_of: np.ndarray
    path_segment: np.ndarray
    chunks: np.ndarray
    session: np.ndarray
    length: np.ndarray
    start_depth: np.ndarray
    parent: np.ndarray
    first_child: np.ndarray
    next_child: np.ndarray
    made_of: np.ndarray
    made: np.ndarray
    made_before: np.ndarray
    last_asked: np.ndarray
    part: np.ndarray
    flag: np.ndarray
    stamp: np.ndarray
    queue_key: np.ndarray
    queue_tie: np.ndarray
    queue_object: np.ndarray
    queue_size: np.ndarray
    queue_built: np.ndarray
    queue_until: np.ndarray
    queue_tick: np.ndarray
    joined: np.ndarray
    queued: np.ndarray
    aside: np.ndarray
    reg: np.ndarray
    cfg: np.ndarray
    total: np.ndarray
    row: np.ndarray

    def resident(self) -> dict[str, tuple[int, int]]:
        """Objects of each class in each tier."""
        on_ssd = int(self.part[ON_SSD].sum(dtype=np.int64))
        held = int(self.part[HELD].sum(dtype=np.int64))
        return {
            "resident_dram": (held - on_ssd, int(np.count_nonzero(self.flag & DRAM))),
            "resident_ssd": (on_ssd, int(np.count_nonzero(self.flag & SSD))),
        }


def new_segments(corpus: Corpus, ready: Prepared, point: Point, sizes: ObjectSizes) -> SegmentState:
    """Empty tiers."""
    still = _still(corpus, ready)
    segments, i4 = len(still["length"]), np.int32
    longest = int(np.diff(ready.paths.path_of).max(initial=0))
    settings = np.zeros(SETTINGS, np.int64)
    settings[:10] = [
        segments, point.dram_bytes, point.ssd_bytes, sizes.chunk_bytes, sizes.state_bytes, 1, 0, 0,
        corpus.block_tokens, sizes.state_bytes > 0,
    ]  # fmt: skip
    part = np.zeros((PARTS, segments), i4)
    part[STAMP] = -1
    return SegmentState(
        **still,
        **empty_arrays(2 * segments, longest, corpus.requests, False),
        part=part,
        joined=np.empty((0, 0), i4),
        flag=np.zeros(segments, np.uint8),
        stamp=np.full(segments, -1, i4),
        cfg=settings,
    )


@lru_cache(maxsize=1)
def _still(corpus: Corpus, ready: Prepared) -> dict[str, Any]:
    """What all runs on the same preparation share."""
    paths, points = ready.paths, ready.checkpoints
    first = paths.segment_first[:-1]
    above = corpus.parent[first]
    parent = np.where(above >= 0, paths.segment_of[above], -1).astype(np.int32)
    first_child, next_child = np.full((2, len(first)), -1, np.int32)
    link_children(parent, first_child, next_child)
    last = paths.segment_first[1:] - 1
    before, state = ready.made_before[last], ready.state_of[last]
    return {
        "path_of": paths.path_of,
        "path_segment": paths.path_segment,
        "chunks": paths.chunks,
        "session": corpus.session.astype(np.int32),
        "length": np.diff(paths.segment_first).astype(np.int32),
        "start_depth": corpus.depth[first],
        "parent": parent,
        "first_child": first_child,
        "next_child": next_child,
        "made_of": points.made_of,
        "made": paths.segment_of[points.made],
        "made_before": np.where(before >= 0, paths.segment_of[before], -1).astype(np.int32),
        "last_asked": np.concatenate(
            (ready.last_asked[first], np.where(state >= 0, ready.last_asked[state], -1))
        ),
    }
