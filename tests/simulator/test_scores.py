"""Policies that score objects once a request: cases by hand, and the rules written plainly."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.simulator.policies import find_policy
from harness.stores.requests.form import Tag
from tests.simulator.cases import BLOCK, corpus_of, point_of, run
from tests.simulator.plain import Plain
from tests.simulator.plain_policies import PLAIN
from tests.simulator.plain_scores import PLAIN_SCORES
from tests.simulator.test_engine_against_plain import check, random_options
from tests.simulator.test_sessions import with_replies, written_nodes

VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tenure", {}),
    ("tenure", {"quantile": 0.3}),
    ("placement-study", {"tau_s": 30}),
    ("prefixshield", {}),
    ("lpc", {"silent_s": 20, "tau_s": 30, "rate": 2}),
    ("marconi", {}),
    ("marconi", {"alpha": 0}),
    ("saecache", {}),
    ("saecache", {"half_chunks": 2}),
    ("pred", {}),
    ("pred", {"prefill_tokens_s": 20, "speed": 2}),
)


@pytest.mark.parametrize(("policy", "parameters"), VARIANTS, ids=str)
def test_all_counters_equal_those_of_the_plain_rules(
    policy: str, parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PLAIN, policy, PLAIN_SCORES[policy])
    for seed in range(8):
        rng = random.Random(seed)
        check(with_replies(rng), policy, parameters, **random_options(rng, policy))


def test_a_running_lease_is_kept_longer_than_one_that_is_over() -> None:
    """First turns return within 64 s, second turns within 1 s. At 110 s chunk 2, of a second turn
    at 105, is over; chunk 3, of a first turn at 104, runs until 168. LRU gives up 3."""
    paths = [[1], [1], [1], [3], [2], [2], [4]]
    owners = [0, 0, 0, 1, 2, 2, 3]
    corpus = corpus_of(paths, owners, [0, 60, 61, 104, 104.5, 105, 110])
    options = {"dram_bytes": 2, "ssd_bytes": 9}
    assert written_nodes(corpus, policy="tenure", **options)[-1] == 2
    assert written_nodes(corpus, policy="lru", **options)[-1] == 1


def test_frequency_outweighs_recency_where_told() -> None:
    corpus = corpus_of([[1], [1], [1], [2], [3]])
    weights = {"recency": 0, "rate": 0}
    assert written_nodes(corpus, policy="placement-study", parameters=weights) == [1]
    weights = {"frequency": 0, "rate": 0}
    assert written_nodes(corpus, policy="placement-study", parameters=weights) == [0]


def test_the_tenant_that_holds_most_gives_up_its_oldest() -> None:
    """Session 1 holds three of four, session 0 one, the oldest of all."""
    corpus = corpus_of([[1], [2], [3], [4], [5]], [0, 1, 1, 1, 2])
    assert written_nodes(corpus, policy="prefixshield", dram_bytes=4) == [1]
    assert written_nodes(corpus, policy="lru", dram_bytes=4) == [0]


def test_marconi_keeps_the_deeper_state_if_alpha_says_so() -> None:
    """States behind four chunks and behind one, the deeper older. Per byte they save about 4 / 14
    and 1 / 11 of what a chunk does, which is 0.22 and 0 of the range; their recencies are 0 and 1.
    So the older goes if 0.22 alpha < 1."""
    corpus = corpus_of([[1, 2, 3, 4], [11], [21]], [0, 1, 2])

    def first_state(alpha: float) -> int:
        found = run(
            corpus, policy="marconi", parameters={"alpha": alpha}, state_bytes=10, dram_bytes=25,
            ssd_bytes=99, structure="free",
        )  # fmt: skip
        assert found.ssd is not None
        return next(int(row["node"]) for row in found.ssd if row["object_class"] == 1)

    assert [first_state(alpha) for alpha in (0, 2, 4, 5, 8)] == [3, 3, 3, 4, 4]


def test_lpc_learns_which_sessions_end() -> None:
    """Sessions 0 to 3 ended after an answer of 4,000 tokens, session 4 went on and on after short
    ones. Of the last two, the one with the long answer goes, though it spoke last."""
    paths = [[1], [2], [3], [4], *([[5]] * 9), [6], [7], [8]]
    owners = [0, 1, 2, 3, *([4] * 9), 5, 6, 7]
    answers = [4000] * 4 + [1] * 9 + [1, 4000, 1]
    corpus = corpus_of(paths, owners, outputs=answers)
    learning = {"silent_s": 5, "rate": 1}
    assert written_nodes(corpus, policy="lpc", parameters=learning, ssd_bytes=9)[-1] == 6
    assert written_nodes(corpus, policy="lru", ssd_bytes=9)[-1] == 5


def test_lachesis_places_by_who_makes_it_and_never_moves() -> None:
    """A subagent's third request: two chunks at the head are long-lived, two are not."""
    corpus = corpus_of([[1, 2, 3], [1, 2, 13, 14], [21, 22, 23, 24]])
    corpus = replace(corpus, tag=np.array([Tag.MAIN, Tag.SUBAGENT, Tag.SUBAGENT], np.uint8))
    found = run(
        corpus, policy="lachesis", parameters={"shared_chunks": 2}, dram_bytes=9, ssd_bytes=9
    )
    assert found.requests is not None
    full = found.outcome.full
    assert found.requests["written_full"].tolist() == [3, 0, 2]
    assert (full.dram_in, full.moved, full.direct, full.hits_ssd) == (4, 0, 5, 2)
    assert find_policy("lachesis", {}).label == "lachesis-like"


def test_pred_keeps_what_a_waiting_request_asks_for() -> None:
    """Request 2 takes long; meanwhile one that asks for chunk 0 comes and waits. Chunk 1, newer but
    not asked for, leaves for chunk 3. Where computing takes no time nobody waits: LRU."""
    corpus = corpus_of([[1], [2], [3], [4], [1]], times=[0, 1, 2, 2.1, 2.2])
    slow = {"prefill_tokens_s": BLOCK / 10}
    options: dict[str, Any] = {"dram_bytes": 3, "ssd_bytes": 9}
    assert written_nodes(corpus, policy="pred", parameters=slow, **options) == [1]
    assert written_nodes(corpus, policy="pred", **options) == [0]
    assert written_nodes(corpus, policy="lru", **options) == [0]


def test_saecache_learns_which_kinds_it_should_not_give_up() -> None:
    """Chunk 1 is shared by two sessions. Depth halves what an object is worth, so 3 goes for 4; it
    was of a prompt, whose kind is now worth half: 2 and 4 go for 5 and 6, though 1 is older."""
    corpus = corpus_of([[1], [1], [2, 3], [4], [5], [6], [1]])
    options: dict[str, Any] = {"dram_bytes": 3, "ssd_bytes": 0, "structure": "free"}
    half = {"half_chunks": 1}
    assert run(corpus, policy="saecache", parameters=half, **options).outcome.hits == 2
    assert run(corpus, policy="lru", **options).outcome.hits == 1


def test_saecache_keeps_answers_that_return_sooner_than_prompts() -> None:
    """Sessions 0 to 3 each asked again for their prompt after 100 s, for their answer after 1 s.
    Of what session 9 left 30 s ago, the answer is unlikely to return, the older prompt is not."""
    from harness.simulator.policies.saecache import chance

    class Known:
        """Gaps of two kinds, all but a little alike."""

        class p:
            asked, gaps = [10, 10, 10], [9, 9, 0]
            mean, square = [np.log(100.0), np.log(1.0), 0.0], [1.0, 1.0, 0.0]

    prompt, answer, shared = (chance(Known, kind, 30.0) for kind in range(3))
    assert prompt == pytest.approx(0.9, abs=1e-3)
    assert answer < 1e-6 and shared == 1.0


@pytest.mark.parametrize("seed", [0, 2, 3, 5, 7, 23])
def test_marconi_takes_the_alpha_that_would_have_saved_most(seed: int) -> None:
    """The plain rules, copied where something was first given up, replay the window with each; in
    these cases the best alphas are 1, 1.1, 0, 0.2, 0.7 and 1.4."""
    rng = random.Random(seed)
    corpus, options = with_replies(rng), random_options(rng, "marconi")
    options |= {"dram_bytes": 14, "ssd_bytes": 9, "state_bytes": 2, "structure": "free"}
    parameters = {"alpha": 0.7, "tune": True, "window": 2}
    found = run(corpus, policy="marconi", parameters=parameters, **options)

    plain = Plain(corpus, point_of(corpus, policy="marconi", **options), PLAIN_SCORES["marconi"]())
    plain.policy.parameters["alpha"] = 0.7
    served = 0
    while served < corpus.requests and not has_evicted(plain):
        plain.serve(served)
        served += 1
    end, before = 2 * served, copy.deepcopy(plain)
    assert end <= corpus.requests

    def saved(alpha: float) -> float:
        replayed = copy.deepcopy(before)
        replayed.policy.parameters["alpha"] = alpha
        for r in range(served, end):
            replayed.serve(r)
        return sum(replayed.policy.flops(row["hit"]) for row in replayed.rows[served:end])

    best = max((step / 10 for step in range(21)), key=saved)
    assert found.tuned == (best, end)
    for r in range(served, corpus.requests):
        if r == end:
            plain.policy.parameters["alpha"] = best
        plain.serve(r)
    assert found.requests["hit"].tolist() == [row["hit"] for row in plain.rows]
    assert found.outcome.full.written == plain.count[0]["written"]


def has_evicted(plain: Plain) -> bool:
    return any(count[name] for count in plain.count for name in ("dropped", "evicted"))
