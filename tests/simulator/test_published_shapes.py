"""What the published simulator argues from, on the Claude Code sessions: shapes, not digits."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from harness.simulator.bounds import state_uses
from harness.simulator.corpus import Corpus, load_corpus
from harness.simulator.outcome import Outcome
from harness.simulator.point import Point, trace_id
from harness.simulator.run import simulate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LARGE, SMALL = ("100GB", "1TB"), ("25GB", "250GB")


@pytest.fixture
def corpus(traces_dir: Path) -> Corpus:
    """710 sessions, 20 at a time."""
    trace = traces_dir / "claude-code" / "traces-710of739.tar.zst"
    if not trace.exists():
        pytest.skip(f"{trace} is not there")
    return _loaded(trace)


@cache
def _loaded(trace: Path) -> Corpus:
    return load_corpus(str(trace), lanes=20, seed=1, note=lambda text: None)


def outcome(corpus: Corpus, policy: str, model: str, tiers: tuple[str, str]) -> Outcome:
    point = Point(
        trace=trace_id(corpus.name, corpus.content_hash), lanes=20, seed=1, model=model,
        block_tokens=64, policy=policy, structure="free", dram_bytes=tiers[0],  # type: ignore[arg-type]
        ssd_bytes=tiers[1],  # type: ignore[arg-type]
    )  # fmt: skip
    return simulate(corpus, point).outcome


def written(found: Outcome) -> int:
    return found.full.written_bytes + found.state.written_bytes


def test_most_states_are_asked_for_once_or_never(corpus: Corpus) -> None:
    uses = state_uses(corpus)
    assert np.mean(uses == 0) == pytest.approx(0.082, abs=0.001)
    assert np.mean(uses == 1) == pytest.approx(0.878, abs=0.001)


@pytest.mark.parametrize(("model", "gain"), [("kimi-k3", 4.6), ("qwen3.5-27b", 1.5)])
def test_placing_by_type_saves_writes_where_dram_holds_the_live_states(
    corpus: Corpus, model: str, gain: float
) -> None:
    """Most states that LRU writes have done their work before, and few are read back."""
    lru, strict = (outcome(corpus, name, model, LARGE) for name in ("lru", "type-aware"))
    assert written(lru) / written(strict) == pytest.approx(gain, rel=0.05)
    assert lru.miss == pytest.approx(0.043, abs=0.001)
    assert strict.miss == pytest.approx(lru.miss, abs=0.002)
    assert strict.state.written == 0 and strict.full.hits_dram == 0
    assert lru.state.used_before / lru.state.written > 0.8
    assert lru.state.useful / lru.state.written < 0.1


def test_placing_by_type_misses_where_dram_does_not_hold_them(corpus: Corpus) -> None:
    """25 GB are 55 states of this model; more are live."""
    lru, strict = (outcome(corpus, name, "kimi-k3", SMALL) for name in ("lru", "type-aware"))
    assert lru.miss == pytest.approx(0.043, abs=0.001)
    assert strict.miss == pytest.approx(0.158, abs=0.01)
    assert strict.stranded > 10 * lru.stranded
