"""Counts, coins and budgets: cases by hand, equalities, and the same rules written plainly."""

from __future__ import annotations

import random
from typing import Any

import pytest

from harness.simulator.coins import thrown
from harness.simulator.outcome import Outcome
from harness.simulator.requestlog import SsdAction
from tests.simulator.cases import corpus_of, run
from tests.simulator.plain_gates import PLAIN_GATES
from tests.simulator.plain_policies import PLAIN
from tests.simulator.test_controls import left_dram
from tests.simulator.test_engine_against_plain import check, random_corpus, random_options

VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("lfu", {}),
    ("gdsf", {}),
    ("gdsf", {"cost": "one"}),
    ("rejectx", {}),
    ("rejectx", {"refusals": 2, "factor": 0.3}),
    ("flashield", {"horizon_s": 15}),
    ("flashield", {"horizon_s": 40, "n": 1}),
    ("baleen-ml", {"train_s": 60, "horizon_s": 8}),
    ("baleen-ml", {"train_s": 30, "horizon_s": 20, "rate": 2, "threshold": 0.3}),
    ("write-budget", {"bytes_s": 0.1, "window_s": 10}),
    ("write-budget", {"bytes_s": 0.02, "window_s": 3, "gain": 2}),
)


@pytest.mark.parametrize(("policy", "parameters"), VARIANTS, ids=str)
def test_all_counters_equal_those_of_the_plain_rules(
    policy: str, parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PLAIN, policy, PLAIN_GATES[policy])
    for seed in range(8):
        rng = random.Random(seed)
        check(random_corpus(rng), policy, parameters, **random_options(rng, policy))


def outcomes(policy: str, **parameters: Any) -> list[Outcome]:
    """Of some random trees."""
    found = []
    for seed in range(5):
        rng = random.Random(seed)
        corpus, options = random_corpus(rng), random_options(rng, "lru")
        found.append(run(corpus, policy=policy, parameters=parameters, **options).outcome)
    return found


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [
        ("rejectx", {"refusals": 0}),
        ("coinflip", {"probability": 1}),
        ("write-budget", {}),
        ("write-budget", {"bytes_s": 1e15}),
        ("write-budget", {"bytes_s": 1e15, "by": "coin"}),
    ],
    ids=str,
)
def test_a_gate_that_lets_all_pass_is_lru(policy: str, parameters: dict[str, Any]) -> None:
    assert outcomes(policy, **parameters) == outcomes("lru")


def test_lfu_gives_up_what_was_asked_for_least() -> None:
    """A has two: B leaves for C, C for D. D has two as well; A, older, leaves for E. C returns with
    its count and now has two: E leaves. E returns with two, C has three: D leaves."""
    assert left_dram("lfu", "AABCDDECCE", 2) == "BCAED"


def test_gdsf_ages() -> None:
    """A is worth 4, B 1, C 1 + 1, D 2 + 1, E 3 + 1: as much as A, which is older."""
    assert left_dram("gdsf", "AAAABCDEFG", 2) == "BCDAE"


def test_rejectx_writes_at_the_second_offer() -> None:
    assert left_dram("rejectx", "ABCABC", 1) == "AB"
    assert left_dram("rejectx", "ABCABCABC", 1, refusals=2) == "AB"


def test_rejectx_forgets_first_in_first_out() -> None:
    """The SSD has room for one: C's refusal takes the place of A's."""
    corpus = corpus_of([[1], [2], [3], [1], [2]])
    for factor, written in ((1, 0), (4, 1)):
        found = run(
            corpus, policy="rejectx", parameters={"factor": factor}, dram_bytes=1, ssd_bytes=1
        )
        assert found.outcome.full.written == written


def test_flashield_learns_that_what_was_not_hit_is_not_asked_for() -> None:
    """New chunks, none asked for again: all are written for two horizons, then none of them."""
    corpus = corpus_of([[name] for name in range(60)])
    found = run(
        corpus, policy="flashield", parameters={"horizon_s": 10}, dram_bytes=2, ssd_bytes=99
    )
    assert found.requests is not None
    assert found.requests["written_full"].tolist() == [0, 0] + [1] * 18 + [0] * 40


def test_coins_are_fair_and_the_same_each_time() -> None:
    for share in (0.1, 0.5, 0.9):
        lucky = [thrown(7, o, offer) < share for o in range(2000) for offer in (1, 2)]
        assert sum(lucky) / 4000 == pytest.approx(
            share, abs=4 * (share * (1 - share) / 4000) ** 0.5
        )
    first, second = ([thrown(seed, o, 1) for o in range(100)] for seed in (0, 1))
    assert len({*first, *second}) == 200


def test_coinflip_writes_its_share_and_none_at_zero() -> None:
    corpus = corpus_of([[name] for name in range(401)])

    def written(**parameters: Any) -> int:
        found = run(corpus, policy="coinflip", parameters=parameters, dram_bytes=1, ssd_bytes=1000)
        return found.outcome.full.written

    assert written(probability=0) == 0
    assert written(probability=0.25) == pytest.approx(100, abs=35)
    assert written(probability=0.25) == written(probability=0.25)
    assert written(probability=0.25, seed=1) != 0


@pytest.mark.parametrize("by", ["worth", "coin"])
def test_a_budget_is_met_in_the_long_run(by: str) -> None:
    """A request a second, each of a new chunk or, one in four, one from ten requests before: LRU
    writes about one a second, the budget is a fifth of that."""
    names = [[at - 10 if at % 4 == 0 and at >= 10 else at] for at in range(2000)]
    budget = {"bytes_s": 0.2, "window_s": 20, "gain": 0.2, "by": by}
    found = run(
        corpus_of(names), policy="write-budget", parameters=budget, dram_bytes=2, ssd_bytes=5000
    )
    assert found.requests is not None
    late = found.requests["written_full"][1000:].sum()
    assert late == pytest.approx(0.2 * 1000, rel=0.25)


def test_baleen_writes_what_is_like_that_which_returned_on_the_first_day() -> None:
    """One place. On the first day what was hit once before it left came back, what was not did not.
    After it, 2 was hit and is written, 3 was not. A day that does not end writes both."""
    first_day = [name for at in range(10, 200, 2) for name in (at, at, at + 1, at)]
    corpus = corpus_of([[name] for name in [*first_day, 2, 2, 3, 4]])
    node = {name: at for at, name in enumerate(dict.fromkeys([*first_day, 2, 3, 4]))}

    def written(train_s: float) -> set[int]:
        found = run(
            corpus, policy="baleen-ml", dram_bytes=1, ssd_bytes=99, on_ssd_hit="move",
            parameters={"train_s": train_s, "horizon_s": 5, "rate": 1},
        )  # fmt: skip
        assert found.ssd is not None
        rows = found.ssd[found.ssd["action"] == SsdAction.WRITE]
        return {int(row["node"]) for row in rows[rows["request"] >= len(first_day)]}

    assert written(len(first_day)) & {node[2], node[3]} == {node[2]}
    assert {node[2], node[3]} <= written(1e9)
