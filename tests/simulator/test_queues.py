"""Queues whose keys hold for a request: computed as far as needed, they let go the same objects."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.simulator import run as runs
from harness.simulator import start
from harness.simulator.state import TICK, State, most_ticks, tick_type
from tests.simulator.cases import run
from tests.simulator.test_engine_against_plain import (
    check,
    random_corpus,
    random_options,
    ssd_events,
)

CASES = 40

USES_OVER_AGE = '''"""First goes what was used least for each request since it was touched."""
from typing import Any, NamedTuple
import numpy as np
from harness.simulator.hooks import lower, expire
from harness.simulator.state import NOW

REBUILD = True

class Own(NamedTuple):
    uses: np.ndarray

def create(world, settings):
    return Own(np.zeros(world.objects))

def used(s: Any, first: int, count: int) -> None:
    for o in range(first, first + count):
        s.p.uses[o] += 1
        if s.p.uses[o] % 3 == 0:
            s.p.uses[o] = 0
            for q in range(4):
                lower(s, q, o)

def begin(s: Any, r: int) -> None:
    if r % 7 == 0:
        s.p.uses[:] /= 2
        for q in range(4):
            expire(s, q)

def key(s: Any, q: int, o: int) -> float:
    return (s.p.uses[o] + 1) / (s.reg[NOW] - s.stamp[o] + 1)

def least(s: Any, q: int, o: int, until: int) -> float:
    return (s.p.uses[o] + 1) / max(until - s.stamp[o], 1)
'''


@pytest.mark.parametrize("ahead", (1, 3, 64))
def test_bounds_change_no_victim(tmp_path: Path, ahead: int) -> None:
    anew, bounded = tmp_path / "anew.py", tmp_path / "bounded.py"
    anew.write_text(USES_OVER_AGE)
    bounded.write_text(USES_OVER_AGE + f"\nAHEAD = {ahead}\n")
    evicted = 0
    for seed in range(CASES):
        rng = random.Random(seed)
        corpus, options = random_corpus(rng), random_options(rng, "lru")
        ours = run(corpus, policy=str(bounded), **options)
        theirs = run(corpus, policy=str(anew), **options)
        assert ours.outcome == theirs.outcome, (seed, options)
        assert ssd_events(ours) == ssd_events(theirs), (seed, options)
        evicted += theirs.outcome.full.evicted
    assert evicted > CASES


@pytest.mark.parametrize(
    ("seed", "parameters"),
    [
        (189, {"tbw_bytes": 1e9}),
        (301, {"tbw_bytes": 1e9}),
        *((seed, {"alpha": 0}) for seed in (129, 234, 262)),
    ],
)
def test_a_state_made_above_others_counts_once_it_is_there(
    seed: int, parameters: dict[str, Any]
) -> None:
    """Room was made for it when it was not; what that remembered of states above must not stay."""
    rng = random.Random(seed)
    check(random_corpus(rng), "gandalf", parameters, **random_options(rng, "gandalf"))


def test_what_is_a_candidate_again_has_the_key_that_it_had_in_the_request() -> None:
    """A chunk on the SSD whose child was moved there, and evicted again, for the same request."""
    rng = random.Random(290)
    check(random_corpus(rng), "gandalf", {"alpha": 0}, **random_options(rng, "gandalf"))


def test_what_the_ssd_has_no_room_for_costs_without_end_even_if_wear_weighs_nothing() -> None:
    """An infinite charge times an ``alpha`` of 0 is no number, of which numpy warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(CASES):
            rng = random.Random(seed)
            options = random_options(rng, "gandalf")
            run(random_corpus(rng), policy="gandalf", parameters={"alpha": 0}, **options)


def test_ticks_are_as_wide_as_they_are_many() -> None:
    assert tick_type(2**31 - 1) is np.int32
    assert tick_type(2**31) is np.int64


def test_no_run_has_more_ticks_than_its_trace_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: list[int] = []
    states: list[State] = []

    def noted(*counts: int) -> int:
        bounds.append(most_ticks(*counts))
        return bounds[-1]

    def kept(*given: Any) -> State:
        states.append(start.new_state(*given))
        return states[-1]

    monkeypatch.setattr(start, "most_ticks", noted)
    monkeypatch.setattr(runs, "new_state", kept)
    for seed in range(CASES):
        rng = random.Random(seed)
        corpus, options = random_corpus(rng), random_options(rng, "gandalf")
        for checkpoint in ("end", "every:1"):
            run(corpus, policy="gandalf", **(options | {"checkpoint": checkpoint}))
            assert 0 < states[-1].reg[TICK] <= bounds[-1], (seed, checkpoint)
