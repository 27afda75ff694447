"""Bounds and equalities that hold whatever the trace, golden sums, and the paper's equations."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.errors import UsageError
from harness.simulator.analytic import Conversations
from harness.simulator.bounds import (
    belady_hits,
    flattened,
    ideal_hits,
    least_writes,
    state_uses,
)
from harness.simulator.corpus import Corpus, first_requests, load_corpus
from harness.simulator.policies import find_policy, policy_names
from tests.simulator.cases import corpus_of, run
from tests.simulator.test_engine_against_plain import random_corpus

SEEDS = range(6)


def structure_of(policy: str) -> str:
    return getattr(find_policy(policy, {}).module, "STRUCTURES", ("leaf", "free"))[0]


def outcome(corpus: Corpus, policy: str, **options: Any) -> Any:
    given = {"structure": structure_of(policy)} | options
    return run(corpus, policy=policy, log=False, **given).outcome


@pytest.mark.parametrize("policy", policy_names())
def test_no_policy_hits_more_than_belady_on_both_tiers_together(policy: str) -> None:
    for seed in SEEDS:
        corpus = random_corpus(random.Random(seed))
        found = outcome(corpus, policy, dram_bytes=5, ssd_bytes=6)
        assert found.hits <= belady_hits(corpus, 11) <= ideal_hits(corpus), seed


@pytest.mark.parametrize("policy", policy_names())
def test_what_is_hit_on_the_ssd_was_written_there(policy: str) -> None:
    for seed in SEEDS:
        corpus = random_corpus(random.Random(seed))
        found = run(
            corpus, policy=policy, structure=structure_of(policy), dram_bytes=6, ssd_bytes=9,
            state_bytes=2,
        )  # fmt: skip
        assert found.ssd is not None
        written = found.outcome.full.written + found.outcome.state.written
        assert written >= least_writes(found.ssd), seed


@pytest.mark.parametrize("policy", policy_names())
def test_the_same_point_gives_the_same_run(policy: str) -> None:
    corpus = random_corpus(random.Random(3))
    once, twice = (
        run(corpus, policy=policy, structure=structure_of(policy), dram_bytes=6, ssd_bytes=9)
        for _ in range(2)
    )
    assert once.outcome == twice.outcome
    assert np.array_equal(once.ssd, twice.ssd)


@pytest.mark.parametrize("policy", policy_names())
def test_residency_stays_closed_under_prefixes(policy: str) -> None:
    """Whoever may not evict under DRAM's feet has every resident chunk's parent resident."""
    from harness.simulator.bind import bind
    from harness.simulator.prepare import prepare
    from harness.simulator.run import sizes_of
    from harness.simulator.start import new_state
    from harness.simulator.state import CAP_DRAM, CAP_SSD, HERE, USED_DRAM, USED_SSD
    from tests.simulator.cases import point_of

    found = find_policy(policy, {})
    structure = structure_of(policy)
    for seed in SEEDS:
        corpus = random_corpus(random.Random(seed))
        point = point_of(
            corpus, policy=policy, dram_bytes=7, ssd_bytes=8, state_bytes=3, structure=structure
        )
        ready = prepare(corpus, "end", True, found.needs_future)
        state = new_state(corpus, ready, point, sizes_of(point), found, 0)
        serve = bind(found.module, False)(state)
        for r in range(corpus.requests):
            serve(r, r + 1)
            assert state.reg[USED_DRAM] <= state.cfg[CAP_DRAM]
            assert state.reg[USED_SSD] <= state.cfg[CAP_SSD]
            if structure == "leaf" and not found.evict_any_tier:
                here = np.flatnonzero(state.flag[: corpus.nodes] & HERE)
                above = corpus.parent[here]
                assert (state.flag[above[above >= 0]] & HERE != 0).all(), (seed, r)


def test_endless_dram_hits_all_that_came_before_and_writes_nothing() -> None:
    for seed in SEEDS:
        corpus = random_corpus(random.Random(seed))
        for policy in ("lru", "gandalf", "lru-k"):
            found = outcome(corpus, policy, dram_bytes=10_000)
            assert found.hits == ideal_hits(corpus)
            assert found.full.written == 0


def test_endless_dram_hits_up_to_the_last_state() -> None:
    for seed in SEEDS:
        corpus = random_corpus(random.Random(seed))
        for checkpoint in ("end", "branch", "all-turns"):
            found = outcome(corpus, "lru", dram_bytes=10_000, state_bytes=3, checkpoint=checkpoint)
            assert found.hits == ideal_hits(corpus, checkpoint, states=True)


def test_with_an_endless_ssd_nobody_hits_more_than_write_through() -> None:
    for seed in SEEDS:
        corpus = random_corpus(random.Random(seed))
        most = outcome(corpus, "write-through", dram_bytes=4, ssd_bytes=10_000).hits
        for policy in ("lru", "lru-k", "kvbm", "gandalf", "hotprefix", "meritkv"):
            assert outcome(corpus, policy, dram_bytes=4, ssd_bytes=10_000).hits <= most


def test_one_tier_lru_never_hits_less_in_more_memory() -> None:
    for seed in SEEDS:
        flat = flattened(random_corpus(random.Random(seed)))
        hits = [
            outcome(flat, "lru", dram_bytes=size, ssd_bytes=0, structure="free").hits
            for size in range(1, 25, 3)
        ]
        assert all(few <= more for few, more in pairwise(hits))


def test_policies_with_one_dram_rule_agree_without_an_ssd() -> None:
    for seed in SEEDS:
        corpus = random_corpus(random.Random(seed))
        found = [
            outcome(corpus, policy, dram_bytes=9, ssd_bytes=0, state_bytes=2, structure="free")
            for policy in ("lru", "write-through", "lru-k", "meritkv")
        ]
        assert all(one == found[0] for one in found)
        assert found[0].full.written == found[0].state.written == 0


def test_hotprefix_of_one_admits_all_while_there_is_room() -> None:
    corpus = random_corpus(random.Random(1))
    all_in = outcome(corpus, "hotprefix", dram_bytes=10_000, parameters={"hot": 1})
    assert all_in.full.refused == 0
    assert all_in.hits == ideal_hits(corpus)


def test_type_aware_without_states_is_its_rule_for_chunks() -> None:
    corpus = random_corpus(random.Random(2))
    found = outcome(corpus, "type-aware", dram_bytes=9, ssd_bytes=9)
    assert found.full.direct == found.full.written
    assert found.full.dram_in == 0


@pytest.mark.parametrize(
    ("chunks", "hit"), [(1_000, 0.044475), (3_000, 0.065029), (10_000, 0.211165)]
)
def test_one_tier_lru_has_the_golden_hits_of_mooncake(
    traces_dir: Path, chunks: int, hit: float
) -> None:
    trace = traces_dir / "mooncake" / "conversation_trace.jsonl"
    corpus = load_corpus(str(trace), partial=True, note=lambda text: None)
    from harness.simulator.run import simulate
    from tests.simulator.cases import point_of

    flat = flattened(corpus)
    point = point_of(flat, dram_bytes=chunks, ssd_bytes=0, structure="leaf")
    found = simulate(flat, point, engine="segment")
    assert 1 - found.outcome.miss == pytest.approx(hit, abs=5e-7)


def test_endless_caches_have_the_golden_hits_of_mooncake(traces_dir: Path) -> None:
    trace = str(traces_dir / "mooncake" / "conversation_trace.jsonl")
    full = load_corpus(trace, note=lambda text: None)
    assert ideal_hits(full) / full.references == pytest.approx(0.381900, abs=5e-7)
    ceil = load_corpus(trace, partial=True, note=lambda text: None)
    assert ideal_hits(ceil) / ceil.references == pytest.approx(0.366412, abs=5e-7)


def test_mooncake_states_are_mostly_used_once_or_never(traces_dir: Path) -> None:
    """Figure 6, at the last full block: 65.6 % never, about 95 % at most once."""
    trace = str(traces_dir / "mooncake" / "conversation_trace.jsonl")
    uses = state_uses(load_corpus(trace, note=lambda text: None))
    assert (uses == 0).mean() == pytest.approx(0.656, abs=0.001)
    assert (uses <= 1).mean() > 0.93


def test_the_trace_is_cut_for_tests(traces_dir: Path) -> None:
    trace = str(traces_dir / "mooncake" / "conversation_trace.jsonl")
    corpus = first_requests(load_corpus(trace, note=lambda text: None), 300)
    assert belady_hits(corpus, 500) >= outcome(corpus, "lru", dram_bytes=500, ssd_bytes=0).hits


def test_equations_one_to_three() -> None:
    """5 sessions of 12 chunks of 64 tokens in 4 rounds; chunks 1 B, states 10 B."""
    many = Conversations(5, 12 * 64, 4, 1 / 64, 10)
    assert many.full_bytes == 60
    assert many.write_back_bytes(50) == 60 + 200 - 50
    assert many.type_aware_bytes() == 60
    assert many.type_aware_bytes(0.25) == 110
    assert many.lifetime_gain(50) == pytest.approx(210 / 60)
    assert (many.least_dram_bytes, many.least_ssd_bytes) == (50, 60)
    with pytest.raises(UsageError, match="between 0 and 1"):
        many.type_aware_bytes(1.5)


def test_the_equations_are_what_the_simulator_counts() -> None:
    sessions, rounds, new = 5, 4, 3
    paths = [
        [session * 1000 + at for at in range((turn + 1) * new)]
        for session in range(sessions)
        for turn in range(rounds)
    ]
    owners = [session for session in range(sessions) for _ in range(rounds)]
    corpus = corpus_of(paths, owners)
    many = Conversations(sessions, rounds * new * 64, rounds, 1 / 64, 10)
    sizes = {"dram_bytes": 50, "ssd_bytes": 10_000, "state_bytes": 10}
    back = outcome(corpus, "lru", **sizes)
    aware = outcome(corpus, "type-aware", **sizes)
    written = back.full.written_bytes + back.state.written_bytes
    held = back.full.resident_dram + 10 * back.state.resident_dram
    assert written == many.write_back_bytes(held)
    assert aware.full.written_bytes + aware.state.written_bytes == many.type_aware_bytes()
    assert aware.hits == back.hits
