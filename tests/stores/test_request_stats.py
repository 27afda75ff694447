"""Statistics of request traces: published values, and a slow but plain second computation."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.stores.requests.form import Request, RequestBatch, RequestForm
from harness.stores.requests.histogram import BUCKETS, count, percentiles
from harness.stores.requests.load import open_requests
from harness.stores.requests.stats import RequestStats, request_stats


@pytest.fixture(scope="module")
def mooncake(shared_dir: Path) -> RequestStats:
    path = shared_dir / "traces/mooncake/conversation_trace.jsonl"
    return request_stats(open_requests(str(path)))


def test_mooncake_conversation_has_its_published_values(mooncake: RequestStats) -> None:
    assert (mooncake.requests, mooncake.references) == (12_031, 288_500)
    assert mooncake.distinct_blocks == 182_790
    assert round(mooncake.one_shot_share, 6) == 0.758499
    assert round(mooncake.ideal_prefix_hit, 6) == 0.366412
    data = mooncake.as_json()
    assert data["mean_context_tokens"] == pytest.approx(12_035, abs=0.5)
    assert data["mean_output_tokens"] == pytest.approx(343, abs=0.5)
    gaps = data["reuse_gap_requests"]
    assert gaps["p50"] == pytest.approx(384, rel=0.016)
    assert gaps["p90"] == pytest.approx(1748, rel=0.016)
    assert gaps["p99"] == pytest.approx(5527, rel=0.016)
    states = data["state_reuse"]
    assert states["never"] == pytest.approx(0.656, abs=0.0005)
    assert states["once"] == pytest.approx(0.296, abs=0.0005)
    assert states["twice"] + states["more"] == pytest.approx(0.048, abs=0.0005)


@pytest.mark.parametrize(
    ("blocks", "hit"),
    [
        (1_000, 0.044475), (3_000, 0.065029), (10_000, 0.211165), (30_000, 0.325709),
        (50_000, 0.354558), (100_000, 0.363688),
    ],
)  # fmt: skip
def test_mooncake_lru_curve(mooncake: RequestStats, blocks: int, hit: float) -> None:
    assert round(mooncake.lru_hit(blocks), 6) == hit


def test_mooncake_full_blocks_only(traces_dir: Path) -> None:
    path = traces_dir / "mooncake/conversation_trace.jsonl"
    stats = request_stats(open_requests(str(path)), full_blocks_only=True)
    assert (stats.references, stats.distinct_blocks) == (276_491, 170_899)
    assert round(stats.one_shot_share, 6) == 0.742210
    assert round(stats.ideal_prefix_hit, 6) == 0.381900


@pytest.mark.slow
def test_claude_code_has_its_published_values(traces_dir: Path) -> None:
    path = traces_dir / "claude-code/traces-710of739.tar.zst"
    stats = request_stats(open_requests(str(path)))
    assert (stats.requests, stats.references) == (49_334, 94_310_647)
    assert stats.distinct_blocks == 3_450_959
    assert int(np.count_nonzero(stats.accesses == 1)) == 228_726
    assert stats.ideal_prefix_hit == 90_859_688 / 94_310_647
    data = stats.as_json()
    assert data["sessions"] == 710
    assert data["mean_context_tokens"] == pytest.approx(122_379, abs=0.5)
    assert data["mean_output_tokens"] == pytest.approx(440, abs=0.5)
    assert data["session_blocks"]["p50"] == 3_262
    assert data["session_blocks"]["max"] == 37_200
    assert data["state_reuse"]["never"] == pytest.approx(0.082, abs=0.0005)
    assert data["state_reuse"]["once"] == pytest.approx(0.878, abs=0.0005)


def test_lengths_only_traces_say_that_reuse_is_unknown(traces_dir: Path) -> None:
    path = traces_dir / "azure/AzureLLMInferenceTrace_code.csv"
    data = request_stats(open_requests(str(path))).as_json()
    assert data["requests"] == 8_819
    assert data["mean_context_tokens"] == pytest.approx(2_048, abs=0.5)
    assert data["one_shot_share"] is data["lru_hit"] is None


def plain_lru(references: list[int], capacity: int) -> int:
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for block in references:
        if block in held:
            hits += 1
            held.move_to_end(block)
        else:
            held[block] = None
            if len(held) > capacity:
                held.popitem(last=False)
    return hits


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=12), min_size=1, max_size=30))
def test_the_hit_curve_is_that_of_a_plain_lru(prompts: list[list[int]]) -> None:
    form = RequestForm(block_tokens=1)
    requests = [
        Request(form, float(n), 0, n, len(ids), 0, 0, np.array(ids, np.uint64))
        for n, ids in enumerate(prompts)
    ]

    class Source:
        name, seed, endless = "lists", None, False

        def __init__(self) -> None:
            self.form = form

        def batches(self):  # type: ignore[no-untyped-def]
            yield RequestBatch.of(requests)

    stats = request_stats(Source())
    references = [block for ids in prompts for block in ids]
    for capacity in (1, 2, 3, 5, 10, 31):
        assert stats.lru_hit(capacity) == plain_lru(references, capacity) / len(references)


@pytest.mark.slow
def test_the_hit_curve_survives_renumbering() -> None:
    """More accesses than positions, so that the bitmap is renumbered several times."""
    form = RequestForm(block_tokens=1)
    rng = np.random.default_rng(5)
    references = rng.zipf(1.3, 1_200_000).astype(np.uint64) % 5000

    class Source:
        name, seed, endless = "zipf", None, False

        def __init__(self) -> None:
            self.form = form

        def batches(self):  # type: ignore[no-untyped-def]
            for part in np.array_split(references, 40):
                rows = len(part)
                zero = np.zeros(rows, np.uint32)
                yield RequestBatch(
                    form, np.zeros(rows), zero, zero, zero + np.uint32(1), zero, zero,
                    np.arange(rows + 1), part, np.zeros(rows, np.uint8),
                )  # fmt: skip

    stats = request_stats(Source())
    listed = references.tolist()
    for capacity in (10, 300, 4000):
        assert stats.lru_hit(capacity) == plain_lru(listed, capacity) / len(listed)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=200))
def test_percentiles_are_within_a_64th(values: list[int]) -> None:
    histogram = np.zeros(BUCKETS, np.int64)
    for value in values:
        count(histogram, value, 1)
    ordered = sorted(values)
    for share in (0.5, 0.9, 1.0):
        exact = ordered[max(0, int(np.ceil(share * len(values))) - 1)]
        found = percentiles(histogram, [share])[0]
        assert found is not None
        assert exact * (1 - 1 / 64) - 1 <= found <= exact


def test_the_command_prints_json_and_draws(tmp_path: Path) -> None:
    plot = tmp_path / "reuse.svg"
    command = [
        sys.executable, "-m", "harness", "requests", "stats", "chat", "--limit", "500", "--seed",
        "4", "--model", "llama-3.1-8b", "--plot", str(plot), "--capacity", "777", "--json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    data = json.loads(done.stdout)
    assert data["requests"] == 500
    assert 777 in [point["blocks"] for point in data["lru_hit"]]
    assert data["model"]["block_bytes"] == 64 * 131_072
    assert plot.read_text().count("<svg") == 1


def test_the_command_refuses_traffic_without_end() -> None:
    command = [sys.executable, "-m", "harness", "requests", "stats", "chat"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--limit" in done.stderr
