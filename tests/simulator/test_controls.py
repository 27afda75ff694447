"""Generic cache policies as controls: sequences worked out by hand, and the same rules on lists."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from harness.simulator.requestlog import SsdAction
from harness.simulator.run import Run
from tests.simulator.cases import corpus_of, run
from tests.simulator.plain_controls import PLAIN_CONTROLS
from tests.simulator.plain_policies import PLAIN
from tests.simulator.test_engine_against_plain import check, random_corpus, random_options

VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sieve", {}),
    ("s3-fifo", {"small": 0.3}),
    ("s3-fifo", {"small": 0.5, "uses": 1, "writes": "main"}),
    ("two-q", {}),
    ("two-q", {"first": 0.5, "ghosts": 2}),
    ("arc", {}),
    ("w-tinylfu", {}),
    ("w-tinylfu", {"window": 0.4, "protected": 0.5, "sample": 1}),
)


@pytest.mark.parametrize(("policy", "parameters"), VARIANTS, ids=str)
def test_all_counters_equal_those_of_the_rules_on_lists(
    policy: str, parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PLAIN, policy, PLAIN_CONTROLS[policy])
    for seed in range(8):
        rng = random.Random(seed)
        check(random_corpus(rng), policy, parameters, **random_options(rng, policy))


LIBCACHESIM = {
    "lru": (304, 344, 282, 320),
    "sieve": (330, 348, 304, 331),
    "s3-fifo": (326, 338, 313, 328),
    "two-q": (314, 335, 303, 310),
    "arc": (325, 348, 309, 331),
}
"""Hits of libcachesim 0.3.5 on two traces of unit objects, each with 20 and with 50 places."""


@pytest.mark.parametrize("policy", LIBCACHESIM)
def test_one_tier_hits_as_often_as_libcachesim_says(policy: str) -> None:
    hits = []
    for seed in (0, 1):
        rng = random.Random(seed)
        names = [
            int(rng.paretovariate(0.7)) % 150 if rng.random() < 0.8 else 200 + at
            for at in range(500)
        ]
        corpus = corpus_of([[name] for name in names])
        for places in (20, 50):
            one_tier: dict[str, Any] = {"dram_bytes": places, "ssd_bytes": 0, "structure": "free"}
            hits.append(run(corpus, policy=policy, **one_tier).outcome.hits)
    assert tuple(hits) == LIBCACHESIM[policy]


def left_dram(policy: str, names: str, dram_bytes: int, **parameters: Any) -> str:
    """What leaves DRAM, in order: single unit chunks by name, each asked for by a request.

    The SSD is endless, a hit on it moves the chunk up, so that all happens in DRAM, in one tier.
    """
    found = play(policy, names, dram_bytes, **parameters)
    letters = dict(enumerate(dict.fromkeys(names)))
    assert found.ssd is not None
    written = [row for row in found.ssd if row["action"] == SsdAction.WRITE]
    return "".join(letters[int(row["node"]) + k] for row in written for k in range(row["count"]))


def play(policy: str, names: Sequence[str], dram_bytes: int, **parameters: Any) -> Run:
    corpus = corpus_of([[ord(name)] for name in names])
    return run(
        corpus, policy=policy, parameters=parameters, dram_bytes=dram_bytes, ssd_bytes=1000,
        structure="free", on_ssd_hit="move",
    )  # fmt: skip


def test_sieve_spares_what_was_seen_and_its_hand_stays() -> None:
    """A B C, A seen. D: hand clears A, takes B. E: the hand is at C, takes it. F: D, for A is
    behind the hand. A seen again, G: E; H: F; I: past the newest, the hand clears A, takes G."""
    assert left_dram("sieve", "ABCADEFAGHI", 3) == "BCDEFG"


def test_sieve_keeps_its_queue_on_a_hit() -> None:
    """LRU would take B for D; with all seen, the hand clears all and takes the oldest."""
    assert left_dram("sieve", "ABCABCD", 3) == "A"
    assert left_dram("sieve", "ABCCBAD", 3) == "A"
    assert left_dram("lru", "ABCCBAD", 3) == "C"


def test_s3_fifo_sorts_out_what_was_used_once() -> None:
    """Ten places, the small queue has two, A and B, as they fill. A is used twice, B once. K: A
    goes to the main queue, of which C leaves for it. L: B, used once, leaves. B returns as a ghost
    to the main queue: K leaves. M: the small queue, L, is not full, D leaves."""
    assert left_dram("s3-fifo", "ABCDEFGHIJAABKLBM", 10, small=0.2) == "CBKD"


def test_s3_fifo_goes_round_in_its_main_queue() -> None:
    """Four places, one small, A's; one use is enough. E: A joins B, C, D in the main queue, which
    is one too many; they were used and go round, A, whose use is forgotten, leaves. F: E leaves,
    unused. G: F leaves."""
    assert left_dram("s3-fifo", "ABCDABCDEFBG", 4, small=0.25, uses=1) == "AEF"


def test_s3_fifo_can_write_only_what_proved_itself() -> None:
    found = play("s3-fifo", "ABCDABCDEFBG", 4, small=0.25, uses=1, writes="main")
    assert (found.outcome.full.written, found.outcome.full.dropped) == (1, 2)


def test_two_q_lets_returning_ghosts_into_the_lru() -> None:
    """Four places, one for the FIFO, ghosts of two. E: A, F: B. A returns, C leaves, A is in the
    LRU. G: D, H: E (FIFO first while it is over one). A stays."""
    assert left_dram("two-q", "ABCDEFAGH", 4) == "ABCDE"


def test_two_q_forgets_old_ghosts() -> None:
    """Ghosts of two: when A returns after C left, it is new. It waits in the FIFO and leaves."""
    assert left_dram("two-q", "ABCDEFGAHIJK", 4) == "ABCDEFGA"


def test_arc_lets_a_scan_pass_by() -> None:
    """Two places; A is used twice. B, C, D, E: each pushes out the one before it, never A."""
    assert left_dram("arc", "AABCDE", 2) == "BCD"
    assert left_dram("lru", "AABCDE", 2) == "ABC"


def test_arc_learns_from_its_ghosts() -> None:
    """Two places. A A B; C: T1 = B over p = 0, B leaves to B1. B returns: p = 1, T1 = C is not over
    it, so A, of T2, leaves to B2; T2 = B. A returns: B2's ghost, p = 0, C leaves: T2 = B A.
    D: T1 is empty, B leaves. E: T1 = D is over 0, D leaves."""
    assert left_dram("arc", "AABCBADE", 2) == "BACBD"


def test_w_tinylfu_keeps_what_was_asked_for_more_often() -> None:
    """Four places, one of them the window. A and B were asked for twice. E: C, the oldest that
    waits, and the window's D were asked for once, D leaves. E returns and is the candidate of F:
    asked for twice, it takes the place of C. G: F, once, leaves; LRU would keep it."""
    assert left_dram("w-tinylfu", "ABCABDEEFG", 4) == "DCF"
    assert left_dram("lru", "ABCABDEEFG", 4) == "CAB"


def test_w_tinylfu_forgets_by_halves() -> None:
    """Two places, one the window; A and C are asked for four times each. Halved after the sixth
    request, when they are at 4 and 2, they are at 2 and 3 when D comes: A leaves, and C is hit."""
    corpus = corpus_of([[ord(name)] for name in "AAAACCCCDC"])
    one_tier: dict[str, Any] = {"dram_bytes": 2, "ssd_bytes": 0, "structure": "free"}

    def hits(sample: int) -> int:
        parameters = {"sample": sample}
        return run(corpus, policy="w-tinylfu", parameters=parameters, **one_tier).outcome.hits

    assert (hits(3), hits(100)) == (7, 6)


def test_w_tinylfu_hits_nearly_as_often_as_libcachesim_says() -> None:
    """Hits of libcachesim 0.3.5, whose counts are a sketch, of 3,000 with 100 and 300 places; LRU
    is at 2,000 and 2,321, then 2,007 and 2,322."""
    for seed, theirs in ((0, (2136, 2347)), (1, (2103, 2353))):
        rng = random.Random(seed)
        corpus = corpus_of([[int(rng.paretovariate(0.3)) % 1000] for _ in range(3000)])
        for places, hits in zip((100, 300), theirs, strict=True):
            one_tier: dict[str, Any] = {"dram_bytes": places, "ssd_bytes": 0, "structure": "free"}
            ours = run(corpus, policy="w-tinylfu", **one_tier).outcome.hits
            assert ours == pytest.approx(hits, rel=0.02)
