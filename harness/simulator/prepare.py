"""What all points on one corpus and checkpoint share, made once and kept for the next point."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from harness.simulator.checkpoints import Checkpoints, checkpoints
from harness.simulator.corpus_form import Corpus
from harness.simulator.paths import Paths, paths_of
from harness.simulator.tree_kernel import all_asks, nearest_above, states_wanted

_NONE = np.empty(0, np.int32)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Paths, checkpoints, and what a trace that is known to its end tells of each object.

    See ``state.State`` for the arrays' meanings; those of the future have length 0 unless wanted.
    """

    paths: Paths
    checkpoints: Checkpoints
    made_at: NDArray[np.int32]
    state_of: NDArray[np.int32]
    made_before: NDArray[np.int32]
    wanted: NDArray[np.int32]
    last_asked: NDArray[np.int32]
    next_asked: NDArray[np.int32]
    next_asked_state: NDArray[np.int32]
    asks: NDArray[np.int32]


@lru_cache(maxsize=2)
def prepare(corpus: Corpus, checkpoint: str, states: bool, future: bool) -> Prepared:
    """The arrays for a kind of checkpoint; UsageError if there is no such kind."""
    paths = paths_of(corpus, checkpoint == "round")
    points = checkpoints(paths, checkpoint)
    marked = np.zeros(corpus.nodes, np.uint8)
    marked[points.made] = states
    made_at = np.flatnonzero(marked).astype(np.int32)
    state_of = np.full(corpus.nodes, -1, np.int32)
    state_of[made_at] = corpus.nodes + np.arange(len(made_at))
    made_before = np.empty(corpus.nodes, np.int32)
    nearest_above(corpus.parent, marked, made_before)
    wanted = np.full(corpus.requests, -1, np.int32)
    if states:
        states_wanted(
            paths.path_of, paths.path_first, paths.path_length, paths.chunks, points.first_made,
            wanted,
        )  # fmt: skip
    following = np.empty(len(paths.path_segment), np.int32)
    last, nearest = np.full((2, len(paths.segment_first) - 1), -1, np.int32)
    all_asks(paths.path_of, paths.path_segment, last, nearest, following)
    last_asked = np.full(corpus.nodes + len(made_at), -1, np.int32)
    lengths = np.diff(paths.segment_first)
    last_asked[: corpus.nodes] = np.repeat(last, lengths)
    asked = np.flatnonzero(wanted >= 0)
    last_asked[state_of[wanted[asked]]] = asked
    return Prepared(
        paths=paths,
        checkpoints=points,
        made_at=made_at,
        state_of=state_of,
        made_before=made_before,
        wanted=wanted,
        last_asked=last_asked,
        next_asked=following if future else _NONE,
        next_asked_state=_next_wants(wanted) if future else _NONE,
        asks=_asks(corpus, paths, wanted[asked], made_at) if future else _NONE,
    )


def _next_wants(wanted: NDArray[np.int32]) -> NDArray[np.int32]:
    order = np.argsort(wanted, kind="stable")
    following = np.full(len(wanted), -1, np.int32)
    same = (wanted[order[1:]] == wanted[order[:-1]]) & (wanted[order[1:]] >= 0)
    following[order[:-1][same]] = order[1:][same]
    return following


def _asks(
    corpus: Corpus, paths: Paths, wanted: NDArray[np.int32], made_at: NDArray[np.int32]
) -> NDArray[np.int32]:
    lengths = np.diff(paths.segment_first)
    some = np.bincount(paths.path_segment, minlength=len(lengths))
    states = np.bincount(wanted, minlength=corpus.nodes)[made_at]
    return np.concatenate((np.repeat(some, lengths), states)).astype(np.int32)
