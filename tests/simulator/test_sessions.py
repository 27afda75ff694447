"""Policies that look at sessions and requests: cases by hand, and the rules written plainly."""

from __future__ import annotations

import random
from typing import Any

import pytest

from harness.simulator.corpus import Corpus
from harness.simulator.policies import find_policy
from harness.simulator.requestlog import SsdAction
from tests.simulator.cases import BLOCK, corpus_of, run
from tests.simulator.plain_policies import PLAIN
from tests.simulator.plain_sessions import PLAIN_SESSIONS
from tests.simulator.test_engine_against_plain import check, random_options
from tests.simulator.test_hand_cases import actions

VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("rr-evict", {"chunks": 2}),
    ("rr-evict", {"chunks": 1, "write": "none"}),
    ("bidaw", {}),
    ("workload-aware", {"refit": 7}),
    ("flatcake", {"agent_tokens": 9 * BLOCK}),
    ("flatcake", {"state": "dram", "high": 0.8, "low": 0.4, "short_tokens": 600}),
)


def with_replies(rng: random.Random) -> Corpus:
    """Sessions that grow and branch, with answers of all lengths."""
    sessions: dict[int, list[int]] = {}
    paths, owners, times, replies, clock = [], [], [], [], 0.0
    for fresh in range(0, rng.randrange(20, 200), 4):
        session = rng.randrange(5)
        path = sessions.get(session, [session % 2 - 2])
        if rng.random() < 0.2:
            path = path[: rng.randrange(len(path) + 1)]
        path = path + list(range(fresh, fresh + rng.randrange(4)))
        sessions[session] = path
        clock += rng.random() * 9
        paths.append(path)
        owners.append(session)
        times.append(clock)
        replies.append(rng.choice((0, 3, 100, 700, 5000)))
    return corpus_of(paths, owners, times, replies)


@pytest.mark.parametrize(("policy", "parameters"), VARIANTS, ids=str)
def test_all_counters_equal_those_of_the_plain_rules(
    policy: str, parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PLAIN, policy, PLAIN_SESSIONS[policy])
    for seed in range(8):
        rng = random.Random(seed)
        check(with_replies(rng), policy, parameters, **random_options(rng, policy))


def written_nodes(corpus: Corpus, **options: Any) -> list[int]:
    found = run(corpus, **options)
    return [node for _, action, node in actions(found) if action == "WRITE"]


def test_sessions_give_up_in_turn_not_by_age() -> None:
    """Sessions 0, 1, 2 with two chunks of their own each, 0 the youngest. Three new chunks of
    session 3: one from each of 0, 1, 2. LRU takes both of 1 first."""
    paths = [[1], [11], [21], [12], [22], [2], [31], [32], [33]]
    corpus = corpus_of(paths, [0, 1, 2, 1, 2, 0, 3, 3, 3])
    options = {"dram_bytes": 6, "ssd_bytes": 100, "structure": "free"}
    turns = written_nodes(corpus, policy="rr-evict", parameters={"chunks": 1}, **options)
    assert turns == [0, 1, 2]
    pairs = written_nodes(corpus, policy="rr-evict", parameters={"chunks": 2}, **options)
    assert pairs == [0, 5, 1], "two of session 0, then one of session 1"


def test_bidaw_lets_the_long_wait_go() -> None:
    """After long answers session 0 waits 100 s, after short ones session 1 waits 10 s. Both have
    just spoken; session 0 goes, though it spoke last."""
    paths = [[1], [1], [2], [2], [2], [1], [3]]
    owners = [0, 0, 1, 1, 1, 0, 2]
    times = [0, 100, 110, 120, 130, 131, 132]
    corpus = corpus_of(paths, owners, times, [1000, 1000, 4, 4, 4, 1000, 0])
    assert written_nodes(corpus, policy="bidaw") == [0]
    assert written_nodes(corpus, policy="lru") == [1]


def test_workload_aware_keeps_the_kind_that_returns() -> None:
    """Half of what second turns asked for returned, within 98 s; of first turns 2 of 5, within 1 s.
    Chunk 3, of a second turn 2 s ago, stays; chunk 4, of a first turn, goes. LRU gives up 3."""
    paths = [[1], [2], [2], [2], [9], [5], [5], [6], [7]]
    owners = [0, 1, 1, 1, 2, 4, 4, 5, 6]
    corpus = corpus_of(paths, owners, [0, 1, 2, 100, 101, 102, 103, 104, 105])
    fitted = {"parameters": {"refit": 8}}
    assert written_nodes(corpus, policy="workload-aware", **fitted)[-1] == 4
    half = {"parameters": {"fit": "first_half"}}
    assert written_nodes(corpus, policy="workload-aware", **half)[-1] == 4
    assert written_nodes(corpus, policy="lru")[-1] == 3


def placed(replies: list[int], paths: list[list[int]], owners: list[int], **options: Any) -> str:
    """D or S for each chunk, in the order of making."""
    parameters = options.pop("parameters", {})
    found = run(
        corpus_of(paths, owners, outputs=replies), policy="flatcake", parameters=parameters,
        **({"dram_bytes": 100, "ssd_bytes": 100} | options),
    )  # fmt: skip
    assert found.requests is not None
    assert found.outcome.full.moved == 0
    made, straight = found.requests["created"], found.requests["written_full"]
    return "".join("D" * int(m - w) + "S" * int(w) for m, w in zip(made, straight, strict=True))


def test_flatcake_places_by_turn_reply_context_and_room() -> None:
    paths = [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
    same = [0, 0, 0, 0]
    assert placed([100, 500, 2000, 0], paths, same) == "SDSS"
    assert placed([100, 100, 100, 0], paths, same) == "SDDD"
    assert placed([100] * 4, paths, same, parameters={"agent_tokens": 2 * BLOCK}) == "SDSS"
    assert placed([100] * 4, paths, same, dram_bytes=1, parameters={"high": 1}) == "SDSS"


def test_flatcake_puts_to_dram_what_is_shared_and_was_lost() -> None:
    """The SSD has one place. Session 1's chunk pushes the prompt out; when session 1 asks for the
    prompt in its second turn it is shared, so it goes to DRAM although the reply was middling."""
    found = run(
        corpus_of([[1], [2], [1]], [0, 1, 1], outputs=[500, 500, 500]),
        policy="flatcake", ssd_bytes=1, structure="free",
    )  # fmt: skip
    assert found.outcome.full.resident_dram == 1


def test_flatcake_reclaims_whole_silent_sessions() -> None:
    """Ten places, over nine: down to four. Session 0 with four and session 1 with four go but for
    what is enough; the newest stays."""
    paths = [[0, 1, 2, 3], [10, 11, 12, 13], [20, 21]]
    found = run(
        corpus_of(paths), policy="flatcake", parameters={"high": 0.9, "low": 0.4},
        dram_bytes=5, ssd_bytes=10,
    )  # fmt: skip
    gone = [node for r, action, node in actions(found) if action == "EVICT" and r == 2]
    assert found.ssd is not None
    evicted = sum(int(row["count"]) for row in found.ssd if row["action"] == SsdAction.EVICT)
    assert evicted == 6
    assert gone[0] == 0, "session 0 is silent for longest"
    assert found.outcome.full.resident_ssd == 4


def test_flatcake_copies_shared_prompts_once_where_told() -> None:
    paths = [[1], [1], [1]]
    for told, copies in ((False, 0), (True, 1)):
        found = run(
            corpus_of(paths), policy="flatcake", parameters={"shared_first": told},
            dram_bytes=5, ssd_bytes=5,
        )  # fmt: skip
        assert found.outcome.full.promoted == copies
        assert found.outcome.full.hits_dram == copies
        assert set(found.outcome.full.imbalance().values()) == {0}


def test_labels_say_that_papers_were_not_seen() -> None:
    labels = {name: find_policy(name, {}).label for name in PLAIN_SESSIONS}
    assert labels == {name: f"{name}-like" for name in PLAIN_SESSIONS}
