"""Every counter of every policy, against the same rules written once more without any shortcut."""

from __future__ import annotations

import random
from typing import Any

import pytest

from harness.simulator.corpus import Corpus
from harness.simulator.policies import find_policy
from harness.simulator.requestlog import SsdAction
from harness.simulator.run import Run
from tests.simulator.cases import corpus_of, point_of, run
from tests.simulator.plain import Plain
from tests.simulator.plain_policies import PLAIN

CASES = 12
"""Random trees for each policy and variant."""

VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("lru", {}),
    ("write-through", {}),
    ("type-aware", {}),
    ("lru-k", {}),
    ("lru-k", {"k": 3, "ghost": 0}),
    ("lru-k", {"k": 2, "ghost": 0.4}),
    ("lru-k", {"count": "path"}),
    ("lru-k", {"gate": "session"}),
    ("kvbm", {"interval_s": 20}),
    ("kvbm", {"offer": "hit", "max_entries": 5, "interval_s": 6}),
    ("belady-leaf", {}),
    ("oracle-greedy", {}),
    ("oracle-greedy", {"hits_a_gb": 3e8}),
    ("gandalf", {"tbw_bytes": 1e9}),
    ("gandalf", {"tbw_bytes": 3e8, "candidates": 3, "charge": "sum"}),
    ("gandalf", {"tbw_bytes": 1e8, "gate": "cross", "state_hits": "predicted"}),
    ("gandalf", {"alpha": 0}),
    ("gandalf", {"tbw_bytes": 1e9, "target_days": 1e-3}),
)


def random_corpus(rng: random.Random) -> Corpus:
    """Sessions that grow, repeat, go back and branch, some with a prefix in common."""
    sessions: dict[int, list[int]] = {}
    paths, owners, times, clock = [], [], [], 0.0
    fresh = 100
    for _ in range(rng.randrange(5, 50)):
        session = rng.randrange(rng.randrange(1, 7))
        path = sessions.get(session, [session % 2] if rng.random() < 0.7 else [])
        if path and rng.random() < 0.25:
            path = path[: rng.randrange(len(path) + 1)]
        grown = rng.randrange(4)
        path = path + list(range(fresh, fresh + grown))
        fresh += grown
        sessions[session] = path
        clock += rng.random() * 9
        paths.append(path)
        owners.append(session)
        times.append(clock)
    return corpus_of(paths, owners, times)


def random_options(rng: random.Random, policy: str) -> dict[str, Any]:
    allowed = getattr(find_policy(policy, {}).module, "STRUCTURES", ("leaf", "free"))
    state_bytes = rng.choice((0, 0, 1, 3, 5))
    return {
        "state_bytes": state_bytes,
        "dram_bytes": rng.randrange(max(state_bytes, 1), 16),
        "ssd_bytes": rng.choice((0, rng.randrange(1, 25), 1000)),
        "structure": rng.choice(allowed),
        "on_ssd_hit": rng.choice(("stay", "stay", "copy", "move")),
        "checkpoint": rng.choice(("end", "end", "branch", "every:2", "all-turns")),
        "last_token": rng.random() < 0.2,
    }


def ssd_events(found: Run) -> list[tuple[int, int, int, int]]:
    """Writes and evictions one by one; within a request in any order."""
    assert found.ssd is not None
    return sorted(
        (int(row["request"]), int(row["action"]), int(row["object_class"]), int(row["node"]) + k)
        for row in found.ssd
        if row["action"] != SsdAction.READ
        for k in range(int(row["count"]))
    )


def plain_events(plain: Plain) -> list[tuple[int, int, int, int]]:
    codes = {"write": int(SsdAction.WRITE), "evict": int(SsdAction.EVICT)}
    return sorted((r, codes[action], kind, node) for r, action, kind, node in plain.log)


def check(corpus: Corpus, policy: str, parameters: dict[str, Any], **options: Any) -> None:
    found = run(corpus, policy=policy, parameters=parameters, **options)
    point = point_of(corpus, policy=policy, parameters=parameters, **options)
    plain = Plain(corpus, point, PLAIN[policy](**parameters)).play()
    told = f"{policy} {parameters} {options}"
    assert found.requests is not None
    for r, row in enumerate(plain.rows):
        assert row == {name: int(found.requests[name][r]) for name in row}, (told, r)
    for kind, traffic in enumerate((found.outcome.full, found.outcome.state)):
        counted = {k: v for k, v in traffic.model_dump().items() if v and k != "size_bytes"}
        assert counted == plain.counters(kind), told
        assert set(traffic.imbalance().values()) == {0}, told
    assert ssd_events(found) == plain_events(plain), told


@pytest.mark.parametrize(("policy", "parameters"), VARIANTS, ids=lambda x: str(x))
def test_all_counters_equal_those_of_the_plain_rules(
    policy: str, parameters: dict[str, Any]
) -> None:
    for seed in range(CASES):
        rng = random.Random(seed)
        check(random_corpus(rng), policy, parameters, **random_options(rng, policy))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_compiled_runs_count_what_interpreted_ones_do() -> None:
    """Gandalf, whose hooks use all that hooks may: arrays in arrays, helpers, queues, the tree."""
    for seed in range(40):
        rng = random.Random(seed)
        corpus, options = random_corpus(rng), random_options(rng, "gandalf")
        options["parameters"] = {"tbw_bytes": 1e9, "candidates": 2}
        fast = run(corpus, compiled=True, policy="gandalf", **options)
        slow = run(corpus, compiled=False, policy="gandalf", **options)
        assert fast.outcome == slow.outcome
        assert (fast.snapshots == slow.snapshots).all()
        assert fast.requests is not None and slow.requests is not None
        assert (fast.requests == slow.requests).all()
        assert ssd_events(fast) == ssd_events(slow)
