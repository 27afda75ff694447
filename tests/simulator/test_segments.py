"""The segment engine gives every counter and snapshot of the block engine."""

from __future__ import annotations

import random

import pytest

from harness.core.errors import UsageError
from harness.simulator.bind import bind_segments
from harness.simulator.prepare import prepare
from harness.simulator.run import simulate, sizes_of
from harness.simulator.segment_state import new_segments
from harness.simulator.state import BYPASSED
from tests.simulator.cases import corpus_of, point_of
from tests.simulator.test_engine_against_plain import random_corpus, random_options

CASES = 60


def options_for(rng: random.Random) -> dict[str, object]:
    options = random_options(rng, "lru")
    options |= {"structure": "leaf", "on_ssd_hit": "stay", "last_token": False}
    options["checkpoint"] = rng.choice(("end", "branch", "all-turns", "round"))
    if rng.random() < 0.7:
        options["dram_bytes"] = rng.randrange(20, 50)
    return options


def test_all_counts_are_those_of_the_block_engine() -> None:
    for seed in range(CASES):
        rng = random.Random(seed)
        corpus = random_corpus(rng)
        point = point_of(corpus, **options_for(rng))
        ours = simulate(corpus, point, engine="segment", compiled=False)
        theirs = simulate(corpus, point, engine="block", compiled=False)
        assert ours.outcome == theirs.outcome, (seed, point)
        assert (ours.snapshots == theirs.snapshots).all(), (seed, point)


def test_most_of_those_runs_are_by_segments() -> None:
    """Else the comparison above would compare the block engine with itself."""
    given_up = 0
    for seed in range(CASES):
        rng = random.Random(seed)
        corpus = random_corpus(rng)
        point = point_of(corpus, **options_for(rng))
        ready = prepare(corpus, point.checkpoint, bool(point.state_bytes), False)
        state = new_segments(corpus, ready, point, sizes_of(point))
        bind_segments(False)(state)(0, corpus.requests)
        given_up += bool(state.reg[BYPASSED])
    assert given_up < CASES / 3


def test_it_is_not_taken_for_what_it_cannot_play() -> None:
    corpus = corpus_of([[1]])
    for wrong in ({"policy": "lru-k"}, {"structure": "free"}, {"on_ssd_hit": "copy"}):
        with pytest.raises(UsageError, match="the segment engine plays lru"):
            simulate(corpus, point_of(corpus, **wrong), engine="segment", compiled=False)
    with pytest.raises(UsageError, match="the segment engine plays lru"):
        simulate(corpus, point_of(corpus), engine="segment", compiled=False, log=True)
