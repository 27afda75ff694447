"""One clear message for each mistake."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import UsageError
from harness.simulator.corpus import build, load_corpus
from harness.simulator.point import Point
from harness.simulator.policies import find_policy, policy_names
from harness.stores.requests.form import Request, RequestForm
from tests.simulator.cases import BLOCK, Listed, corpus_of, point_of, run

CORPUS = corpus_of([[1], [2]])


def test_an_unknown_policy_is_offered_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown policy 'gandalv'; did you mean gandalf\?"):
        run(CORPUS, policy="gandalv")


def test_an_unknown_model_is_offered_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"kimi-k4.*did you mean kimi-k3"):
        run(CORPUS, chunk_bytes=None, state_bytes=None, model="kimi-k4")


def test_an_unknown_parameter_is_named() -> None:
    with pytest.raises(UsageError, match="policy lru-k: kay: unknown key"):
        run(CORPUS, policy="lru-k", parameters={"kay": 2})


def test_a_parameter_out_of_range_is_named() -> None:
    with pytest.raises(UsageError, match=r"policy gandalf: candidates: .*less than or equal to 64"):
        run(CORPUS, policy="gandalf", parameters={"candidates": 65})


def test_a_state_must_fit_into_dram() -> None:
    with pytest.raises(UsageError, match="one state of this model is 10 B, more than the DRAM"):
        run(CORPUS, dram_bytes=9, state_bytes=10)


def test_a_chunk_must_fit_into_dram() -> None:
    with pytest.raises(UsageError, match="one chunk of this model is 3 B"):
        run(CORPUS, dram_bytes=2, chunk_bytes=3)


def test_dram_of_zero_bytes_is_refused() -> None:
    with pytest.raises(UsageError, match="a DRAM tier of zero bytes holds nothing"):
        run(CORPUS, dram_bytes=0)


def test_an_ssd_of_zero_bytes_is_none() -> None:
    assert run(CORPUS, ssd_bytes=0).outcome.full.written == 0


def test_an_unknown_checkpoint_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown checkpoint 'every:0'"):
        run(CORPUS, checkpoint="every:0", state_bytes=1)


def test_a_policy_says_which_structure_it_needs() -> None:
    with pytest.raises(UsageError, match="gandalf has no meaning under structure free"):
        run(CORPUS, policy="gandalf", structure="free")


def test_ids_of_one_session_in_another_need_a_scope() -> None:
    form = RequestForm(BLOCK)
    rows = [
        Request(form, 0.0, 0, 0, 2 * BLOCK, 0, 0, np.array([1, 2], np.uint64)),
        Request(form, 1.0, 1, 0, 2 * BLOCK, 0, 0, np.array([7, 2], np.uint64)),
    ]
    with pytest.raises(UsageError, match="request 1: an id follows two different prefixes"):
        build(Listed(rows))


def test_ids_that_hold_in_a_session_are_kept_apart() -> None:
    form = RequestForm(BLOCK, session_scope=True)
    rows = [Request(form, float(k), k, 0, BLOCK, 0, 0, np.array([1], np.uint64)) for k in range(2)]
    assert build(Listed(rows)).nodes == 2


def test_a_trace_of_lengths_only_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
    with pytest.raises(UsageError, match="a trace of lengths only"):
        load_corpus(str(path), format_name="azure", note=lambda text: None)


def test_endless_traffic_needs_a_number_of_requests() -> None:
    with pytest.raises(UsageError, match="is endless"):
        load_corpus("chat", note=lambda text: None)


def test_no_request_is_no_corpus() -> None:
    with pytest.raises(UsageError, match="no request is in it"):
        load_corpus("chat", limit=0, note=lambda text: None)


def test_a_point_of_another_trace_is_refused() -> None:
    from harness.simulator.run import simulate

    point = point_of(corpus_of([[1, 2]]))
    with pytest.raises(UsageError, match="the point is of trace"):
        simulate(CORPUS, point)


def test_half_of_the_sizes_is_not_enough() -> None:
    with pytest.raises(ValueError, match="both chunk_bytes and state_bytes"):
        Point(trace="x", block_tokens=1, dram_bytes=1, chunk_bytes=1)


MINE = '''"""Nothing is ever written."""

def demote(s, o):
    return False
'''


def test_a_policy_can_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    corpus = corpus_of([[1], [2], [3], [1]])
    assert run(corpus, policy=str(path)).outcome.full.written == 0
    assert run(corpus, policy=str(path)).label == "mine"


def test_a_file_without_hooks_is_no_policy(tmp_path: Path) -> None:
    path = tmp_path / "nothing.py"
    path.write_text("x = 1\n")
    with pytest.raises(UsageError, match="it defines none of the hooks"):
        find_policy(str(path), {})


def test_a_file_that_fails_says_how(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import nonsense_that_is_not_there\n")
    with pytest.raises(UsageError, match="cannot be loaded: ModuleNotFoundError"):
        find_policy(str(path), {})


def test_a_policy_can_be_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    from harness.simulator import policies

    where = "harness.simulator.policies.write_through"
    point = EntryPoint("mine-too", where, policies.ENTRY_POINTS)

    def points(group: str, name: str | None = None) -> list[EntryPoint]:
        return [point] if name in (None, point.name) else []

    monkeypatch.setattr(policies, "entry_points", points)
    policies.policy_names.cache_clear()
    try:
        assert "mine-too" in policy_names()
        assert find_policy("mine-too", {}).module.__name__.endswith("write_through")
    finally:
        policies.policy_names.cache_clear()


def test_every_policy_says_what_it_does() -> None:
    from harness.simulator.policies import describe_policies

    for name, words in describe_policies().items():
        assert len(words) > 20, name
