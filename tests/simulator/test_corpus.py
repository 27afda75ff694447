"""Prefix trees of the traces held, their golden sums, and what keeps them on disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from harness.simulator.corpus import Corpus, build, first_requests, load_corpus, repeated
from harness.simulator.corpus_cache import read_corpus, write_corpus
from harness.stores.requests.form import Tag
from harness.stores.requests.load import open_requests
from tests.simulator.cases import corpus_of


def quiet(text: str) -> None:
    pass


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.simulator.corpus_cache._folder", lambda: tmp_path / "corpora")


def path(corpus: Corpus, r: int) -> list[int]:
    runs = range(int(corpus.run_of[r]), int(corpus.run_of[r + 1]))
    return [
        int(corpus.run_node[k]) + step for k in runs for step in range(int(corpus.run_length[k]))
    ]


def test_nodes_are_numbered_as_they_appear() -> None:
    corpus = corpus_of([[1, 2], [1, 3, 4], [1, 2, 5]])
    assert [path(corpus, r) for r in range(3)] == [[0, 1], [0, 2, 3], [0, 1, 4]]
    assert corpus.parent.tolist() == [-1, 0, 0, 2, 1]
    assert corpus.depth.tolist() == [0, 1, 1, 2, 2]
    assert corpus.first_request.tolist() == [0, 0, 1, 1, 2]
    assert corpus.references == 8


def test_mooncake_has_its_golden_sums(traces_dir: Path) -> None:
    trace = str(traces_dir / "mooncake" / "conversation_trace.jsonl")
    full = load_corpus(trace, note=quiet)
    assert (full.requests, full.references, full.nodes) == (12_031, 276_491, 170_899)
    assert 1 - full.nodes / full.references == pytest.approx(0.381900, abs=5e-7)
    ceil = load_corpus(trace, partial=True, note=quiet)
    assert (ceil.references, ceil.nodes) == (288_500, 182_790)


def test_lanes_are_those_of_the_request_traces(traces_dir: Path) -> None:
    folder = traces_dir / "claude-code" / "raw-small"
    ours = load_corpus(str(folder), lanes=3, note=quiet)
    theirs = build(open_requests(str(folder), lanes=3))
    assert np.allclose(ours.time_s, theirs.time_s)
    for name in ("session", "turn", "parent", "depth", "first_request", "input_tokens"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
    assert path(ours, 150) == path(theirs, 150)


def test_subagents_are_told_apart(traces_dir: Path) -> None:
    """In lanes, whose order of requests is another than that of the file, and in a part."""
    folder = traces_dir / "claude-code" / "raw-small"
    corpus = load_corpus(str(folder), lanes=3, note=quiet)
    inner = {}
    for number, file in enumerate(sorted(folder.glob("*.json"))):
        entries = json.loads(file.read_text())["requests"]
        inner[number] = sum(len(one.get("requests", ())) for one in entries)
    subagents = corpus.tag == Tag.SUBAGENT
    found = np.bincount(corpus.session[subagents], minlength=len(inner))
    assert found.tolist() == list(inner.values()) and sum(inner.values()) > 0
    assert (corpus.tag[~subagents] == Tag.MAIN).all()
    assert (first_requests(corpus, 50).tag == corpus.tag[:50]).all()


def test_a_seed_orders_the_sessions(traces_dir: Path) -> None:
    folder = str(traces_dir / "claude-code" / "raw-small")
    one, same, other = (load_corpus(folder, lanes=2, seed=s, note=quiet) for s in (1, 1, 2))
    assert one.content_hash == same.content_hash != other.content_hash
    assert one.nodes == other.nodes and one.references == other.references
    rows = [np.flatnonzero(one.session == s) for s in np.unique(one.session)]
    assert all((np.diff(one.turn[r].astype(int)) == 1).all() for r in rows)


def test_a_damaged_cache_is_made_again(tmp_path: Path, traces_dir: Path) -> None:
    folder = str(traces_dir / "claude-code" / "raw-small")
    said: list[str] = []
    first = load_corpus(folder, note=said.append)
    assert said and said[0].startswith("kept ")
    (kept,) = (tmp_path / "corpora").iterdir()
    array = kept / "parent.npy"
    content = bytearray(array.read_bytes())
    content[-1] ^= 1
    array.write_bytes(content)
    said.clear()
    again = load_corpus(folder, note=said.append)
    assert "damaged" in said[0]
    assert again.content_hash == first.content_hash
    said.clear()
    load_corpus(folder, note=said.append)
    assert not said, "the second load is from the cache"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    corpus = corpus_of([[1, 2], [1, 3]])
    write_corpus(corpus, tmp_path / "one")
    found = read_corpus(tmp_path / "one")
    assert found.content_hash == corpus.content_hash
    assert found.parent.tolist() == corpus.parent.tolist()


def test_a_cut_corpus_is_that_of_the_first_requests() -> None:
    paths = [[1, 2], [1, 3, 4], [1, 2, 5]]
    assert first_requests(corpus_of(paths), 2).content_hash == corpus_of(paths[:2]).content_hash


def test_a_repeated_corpus_shares_nothing_between_passes() -> None:
    corpus = repeated(corpus_of([[1, 2], [1, 3]], [0, 0]), 2)
    assert [path(corpus, r) for r in range(4)] == [[0, 1], [0, 2], [3, 4], [3, 5]]
    assert corpus.parent.tolist() == [-1, 0, 0, -1, 3, 3]
    assert corpus.session.tolist() == [0, 0, 1, 1]
    assert corpus.time_s.tolist() == [0.0, 1.0, 1.0, 2.0]
