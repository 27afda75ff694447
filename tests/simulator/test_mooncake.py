"""Mooncake's store: leases, watermarks, and buckets that leave as a whole."""

from __future__ import annotations

import random
from typing import Any

import pytest

from harness.simulator.policies import find_policy
from tests.simulator.cases import corpus_of, run
from tests.simulator.test_engine_against_plain import random_corpus, random_options
from tests.simulator.test_hand_cases import actions

FREE: dict[str, Any] = {"policy": "mooncake", "structure": "free", "dram_bytes": 100}


def evicted(names: list[int], **parameters: Any) -> list[tuple[int, int]]:
    """(request, node) of what the SSD of four chunks gave up; nothing stays in DRAM for long."""
    options = {"lease_s": 0.0, "bucket_keys": 2} | parameters
    found = run(
        corpus_of([[name] for name in names]), parameters=options,
        **FREE | {"dram_bytes": 1, "ssd_bytes": 4},
    )  # fmt: skip
    return [(r, node) for r, action, node in actions(found) if action == "EVICT"]


def test_a_bucket_leaves_as_a_whole_first_filled_first() -> None:
    """Buckets 0 1, 2 3. For 4 goes the first, for 6 the second; 0 comes back for 4 and 5."""
    assert sorted(evicted([0, 1, 2, 3, 4, 5, 6, 7])) == [(4, 0), (4, 1), (6, 2), (6, 3)]


def test_the_bucket_read_last_stays_under_lru() -> None:
    """0 is read from the SSD before 4 comes: 2 and 3 go instead."""
    assert sorted(evicted([0, 1, 2, 3, 0, 4], evict="lru")) == [(5, 2), (5, 3)]
    assert sorted(evicted([0, 1, 2, 3, 0, 4])) == [(5, 0), (5, 1)]


def test_a_full_ssd_takes_nothing_more_without_eviction() -> None:
    assert evicted([0, 1, 2, 3, 4, 5], evict="none") == []


def test_buckets_are_full_by_bytes_too() -> None:
    """One chunk fills a bucket."""
    assert evicted([0, 1, 2, 3, 4, 5], bucket_bytes=1) == [(4, 0), (5, 1)]


def test_the_bucket_that_a_request_reads_stays() -> None:
    """One bucket of four, full. The last request reads 0 and makes 4, for which nothing may go."""
    corpus = corpus_of([[0], [1], [2], [3], [0, 4]])
    options = FREE | {"dram_bytes": 1, "ssd_bytes": 4}
    found = run(corpus, parameters={"lease_s": 0.0, "bucket_keys": 4}, **options)
    assert found.outcome.full.evicted == 0
    assert found.outcome.full.hits_ssd == 1


@pytest.mark.parametrize(
    ("lease_s", "refused", "dropped"), [(0.0, 0, 2), (1.5, 2, 0), (10.0, 2, 0)]
)
def test_leases_keep_what_was_touched(lease_s: float, refused: int, dropped: int) -> None:
    """A request a second, room for two: under a lease of 1.5 s the third finds one of 2 s ago."""
    corpus = corpus_of([[0], [1], [2], [3]], times=[0, 0.5, 1.0, 1.25])
    found = run(
        corpus, parameters={"lease_s": lease_s, "offload": "evict", "high": 1.0},
        **FREE | {"dram_bytes": 2, "ssd_bytes": 0},
    )  # fmt: skip
    assert (found.outcome.full.refused, found.outcome.full.dropped) == (refused, dropped)


def test_a_twentieth_goes_above_the_watermark() -> None:
    """A hundred places: after the 91st, five go, the oldest; after the 96th again."""
    corpus = corpus_of([[name] for name in range(96)], times=[0.0] * 96)
    found = run(corpus, parameters={"lease_s": 0.0, "offload": "evict"}, ssd_bytes=1000, **FREE)
    assert found.requests is not None
    written = found.requests["written_full"].tolist()
    assert [(r, n) for r, n in enumerate(written) if n] == [(90, 5), (95, 5)]


def test_puts_are_written_once_and_dropped_for_nothing() -> None:
    found = run(corpus_of([[0], [1], [2]]), parameters={"lease_s": 0}, ssd_bytes=9,
                **FREE | {"dram_bytes": 1})  # fmt: skip
    full = found.outcome.full
    assert (full.written, full.copied, full.released, full.dropped) == (3, 3, 2, 0)


@pytest.mark.parametrize("parameters", [{}, {"evict": "lru"}, {"offload": "evict"}], ids=str)
def test_sums_hold_and_buckets_hold_what_the_ssd_holds(parameters: dict[str, Any]) -> None:
    from harness.simulator.bind import bind
    from harness.simulator.prepare import prepare
    from harness.simulator.run import sizes_of
    from harness.simulator.start import new_state
    from harness.simulator.state import SSD
    from tests.simulator.cases import point_of

    given = {"lease_s": 1.0, "bucket_keys": 3} | parameters
    for seed in range(6):
        rng = random.Random(seed)
        corpus, options = random_corpus(rng), random_options(rng, "mooncake")
        point = point_of(corpus, policy="mooncake", parameters=given, **options)
        ready = prepare(corpus, point.checkpoint, bool(point.state_bytes), False)
        policy = find_policy("mooncake", given)
        state = new_state(corpus, ready, point, sizes_of(point), policy, 0)
        bind(policy.module, False)(state)(0, corpus.requests)
        there = state.flag & SSD != 0
        assert ((state.p.bucket >= 0) == there).all()
        assert state.p.keys.sum() == there.sum()
        assert state.p.held.sum() == state.reg[2] <= point.ssd_bytes
        assert state.p.line.held[0, 0] == (state.p.keys > 0).sum()
        assert state.p.keys.max() <= 3
        outcome = run(corpus, policy="mooncake", parameters=given, **options).outcome
        assert set(outcome.full.imbalance().values()) == {0}
        assert set(outcome.state.imbalance().values()) == {0}
