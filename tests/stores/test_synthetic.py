"""Synthetic traffic: the same for a seed, chained ids, and the moments it is calibrated to."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import UsageError
from harness.stores.requests.form import Request
from harness.stores.requests.load import open_requests
from harness.stores.requests.stats import request_stats
from harness.stores.requests.synthetic import SyntheticRequests, SyntheticSpec

BASE = {
    "kind": "synthetic",
    "block_tokens": 16,
    "pool": {"lanes": 3, "rate_per_s": 1.0},
    "new_tokens": {"mean": 100, "median": 80},
    "output_tokens": {"mean": 50, "median": 40},
    "turns": {"mean": 5, "median": 5},
}


def some(count: int, seed: int = 1, **changes: object) -> list[Request]:
    spec = SyntheticSpec.model_validate({**BASE, **changes})
    rows = (r for batch in SyntheticRequests(spec, seed).batches() for r in batch)
    return list(islice(rows, count))


def test_a_seed_gives_the_same_requests_and_another_seed_others() -> None:
    first, again, other = some(300), some(300), some(300, seed=2)
    assert all(np.array_equal(a.ids, b.ids) for a, b in zip(first, again, strict=True))
    assert [r.time_s for r in first] == [r.time_s for r in again]
    assert not set(first[50].ids.tolist()) & set(other[50].ids.tolist())


def test_a_turn_repeats_the_prompt_before_it_and_counts_what_is_new() -> None:
    by_session: dict[int, list[Request]] = {}
    for request in some(2000, shared={"tokens": 64}):
        by_session.setdefault(request.session, []).append(request)
    longest = max(by_session.values(), key=len)
    assert len(longest) == 5
    for before, after in pairwise(longest):
        assert after.turn == before.turn + 1
        assert after.ids[: len(before.ids)].tolist() == before.ids.tolist()
        grown = after.input_tokens - before.input_tokens
        assert after.new_tokens == grown - before.output_tokens + after.output_tokens
    assert len(longest[-1].ids) == longest[-1].input_tokens // 16


def test_sessions_share_the_system_prompt_only() -> None:
    requests = some(400, shared={"tokens": 64})
    sessions = {r.session: r for r in requests}
    one, two = list(sessions.values())[:2]
    assert one.ids[:4].tolist() == two.ids[:4].tolist()
    assert not set(one.ids[4:].tolist()) & set(two.ids[4:].tolist())


def test_going_back_keeps_the_prompt_before_last_and_starting_over_only_the_shared_part() -> None:
    back = some(3000, branch_share=0.5, turns={"mean": 40, "median": 40})
    by_session: dict[int, list[Request]] = {}
    for request in back:
        by_session.setdefault(request.session, []).append(request)
    shared = []
    for rows in by_session.values():
        for a, b in pairwise(rows):
            same = int(np.cumprod(a.ids[: len(b.ids)] == b.ids[: len(a.ids)]).sum())
            shared.append(same == min(len(a.ids), len(b.ids)))
    assert 0.3 < np.mean(shared) < 0.7
    over = some(500, restart_share=0.5, shared={"tokens": 64})
    assert all(r.ids[:4].tolist() == over[0].ids[:4].tolist() for r in over)


def test_fresh_sessions_join_for_ever_and_times_never_go_back() -> None:
    requests = some(5000, open={"sessions_per_s": 2.0, "think_s": {"mean": 9, "median": 5}},
                    pool=None)  # fmt: skip
    times = np.array([r.time_s for r in requests])
    assert np.all(np.diff(times) >= 0)
    assert 5000 / times[-1] == pytest.approx(10, rel=0.1)  # 2 sessions a second of 5 turns
    assert len({r.session for r in requests}) > 900


def test_a_full_context_ends_the_session_or_starts_it_over() -> None:
    ended = some(3000, max_context_tokens=400, turns={"mean": 50, "median": 50})
    assert max(r.input_tokens for r in ended) == 400
    assert max(r.turn for r in ended) < 15
    over = some(3000, max_context_tokens=400, turns={"mean": 50, "median": 50}, when_full="restart")
    assert max(r.turn for r in over) == 49


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pool": None}, "either pool or open"),
        ({"turns": {"mean": 1, "median": 2}}, "below its median"),
        ({"shared": {"tokens": 131072}}, "less than max_context_tokens"),
        ({"lanes": 3}, "lanes: unknown key"),
        ({"block_tokens": -1}, "block_tokens"),
    ],
)
def test_a_wrong_specification_names_the_key(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    import yaml

    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**BASE, **change}))
    with pytest.raises(UsageError, match=message):
        open_requests(str(path))


def test_chat_has_the_moments_of_mooncake_conversation() -> None:
    stats = request_stats(open_requests("chat-production", seed=1), limit=12_031)
    data = stats.as_json()
    assert stats.one_shot_share == pytest.approx(0.7585, abs=0.03)
    assert stats.ideal_prefix_hit == pytest.approx(0.3664, abs=0.03)
    assert data["accesses_per_block"] == pytest.approx(1.58, rel=0.05)
    assert data["reuse_gap_requests"]["p50"] == pytest.approx(384, rel=0.15)
    assert data["reuse_gap_requests"]["p90"] == pytest.approx(1748, rel=0.15)
    assert data["new_blocks_per_request"]["p50"] == 5
    assert data["new_blocks_per_request"]["p90"] == pytest.approx(38, rel=0.2)
    assert data["mean_context_tokens"] == pytest.approx(12_035, rel=0.1)
    assert data["mean_output_tokens"] == pytest.approx(343, rel=0.05)
    assert data["state_reuse"]["never"] == pytest.approx(0.656, abs=0.06)
    assert stats.lru_hit(10_000) == pytest.approx(0.211, abs=0.03)


@pytest.mark.slow
def test_agentic_has_the_moments_of_claude_code() -> None:
    stats = request_stats(open_requests("agentic", seed=1), limit=20_000)
    data = stats.as_json()
    assert stats.one_shot_share == pytest.approx(0.0663, abs=0.015)
    assert stats.ideal_prefix_hit == pytest.approx(0.9634, abs=0.01)
    assert data["new_blocks_per_request"]["p50"] == pytest.approx(11, abs=2)
    assert data["new_blocks_per_request"]["p90"] == pytest.approx(75, rel=0.1)
    assert data["new_blocks_per_request"]["p99"] == pytest.approx(1473, rel=0.25)
    assert stats.distinct_blocks / stats.requests == pytest.approx(70, rel=0.1)
    assert data["session_blocks"]["p50"] == pytest.approx(3262, rel=0.1)
    assert data["session_blocks"]["mean"] == pytest.approx(4860, rel=0.1)
    assert data["mean_context_tokens"] == pytest.approx(122_379, rel=0.15)
    states = data["state_reuse"]
    assert states["never"] == pytest.approx(0.082, abs=0.015)
    assert states["once"] == pytest.approx(0.878, abs=0.015)
    assert states["twice"] + states["more"] == pytest.approx(0.040, abs=0.01)


def test_long_documents_have_the_moments_of_mooncake_synthetic() -> None:
    stats = request_stats(open_requests("long-document", seed=1), limit=3_993)
    data = stats.as_json()
    assert stats.one_shot_share == pytest.approx(0.5845, abs=0.03)
    assert stats.ideal_prefix_hit == pytest.approx(0.640, abs=0.02)
    assert data["accesses_per_block"] == pytest.approx(2.78, rel=0.1)
    assert data["reuse_gap_requests"]["p50"] == pytest.approx(233, rel=0.1)
    assert data["reuse_gap_requests"]["p90"] == pytest.approx(1100, rel=0.1)
    assert data["reuse_gap_s"]["p50"] == pytest.approx(59, rel=0.15)
    assert data["reuse_gap_s"]["p90"] == pytest.approx(282, rel=0.15)
    assert data["mean_context_tokens"] == pytest.approx(15_325, rel=0.1)
    assert data["state_reuse"]["never"] == pytest.approx(0.807, abs=0.06)


def test_the_aiperf_shape_writes_1180_tokens_a_turn() -> None:
    rows = list(
        islice(
            (r for b in open_requests("aiperf-100r-500o-noshare", seed=1).batches() for r in b),
            9000,
        )
    )
    assert {r.new_tokens for r in rows} == {1180}
    assert {r.output_tokens for r in rows} == {500}
    ended = [r for r in rows if r.turn == 99]
    assert ended
    assert {r.input_tokens for r in ended} == {100 * 1180 - 500}
