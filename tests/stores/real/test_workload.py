"""Scaling a request trace to a device, and saying what is not installed; no real store needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.errors import MachineError, UsageError
from harness.stores.emission import Emission
from harness.stores.models import load_model
from harness.stores.real.environment import REAL
from harness.stores.real.lmcache_store import RealRun, arguments, run_lmcache, spec_for
from harness.stores.real.workload import scale_factor, write_scaled
from harness.stores.requests.form import RequestSource
from harness.stores.requests.load import open_requests

MIB = 1 << 20


@pytest.fixture
def mooncake(tmp_path: Path) -> RequestSource:
    """Two turns of a chat of 4,096 and 8,192 tokens, and another of 2,048."""
    rows = [
        (0, 4096, [7, 8, 9, 10, 11, 12, 13, 14]),
        (1000, 2048, [90, 91, 92, 93]),
        (2000, 8192, [7, 8, 9, 10, 11, 12, 13, 14, *range(20, 28)]),
    ]
    path = tmp_path / "mooncake.jsonl"
    path.write_text(
        "".join(
            json.dumps(
                {"timestamp": t, "input_length": n, "output_length": 100, "hash_ids": ids}
            ) + "\n"
            for t, n, ids in rows
        )
    )  # fmt: skip
    return open_requests(str(path))


def test_prompts_shrink_until_a_mean_one_takes_a_sixteenth_of_the_device(
    mooncake: RequestSource,
) -> None:
    mean_chunks = (4096 + 2048 + 8192) / 3 / 256  # 18.7
    assert scale_factor(mooncake, 256, int(mean_chunks * 16) + 16) == 1
    assert scale_factor(mooncake, 256, int(mean_chunks * 16) - 16) == 2
    assert scale_factor(mooncake, 256, int(mean_chunks * 16) // 4 - 4) == 8


def test_what_prompts_share_stays_shared_and_other_chunks_stay_different(
    mooncake: RequestSource, tmp_path: Path
) -> None:
    out = tmp_path / "scaled.jsonl"
    scaled = write_scaled(mooncake, out, chunk_tokens=256, factor=4, limit=None)
    first, other, second = [json.loads(line) for line in out.read_text().splitlines()]
    assert (scaled.count, scaled.whole) == (3, True)
    assert first["hash_ids"] == [8, 10, 12, 14]  # a chunk is named by the last block in it
    assert second["hash_ids"][:4] == first["hash_ids"]
    assert len(second["hash_ids"]) == 8
    assert not set(other["hash_ids"]) & set(second["hash_ids"])
    assert (second["session_id"], second["turn"]) == (first["session_id"], 1)
    assert second["input_length"] == 8 * 256
    assert scaled.new_tokens == ((4096 + 100) / 4, (2048 + 100) / 4, (4096 + 100) / 4)
    again = open_requests(str(out), block_tokens=256)
    assert [len(r.ids) for batch in again.batches() for r in batch] == [4, 2, 8]


def test_a_trace_whose_prompts_fill_no_chunk_is_refused(
    mooncake: RequestSource, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="fills a chunk of 16384 tokens"):
        write_scaled(mooncake, tmp_path / "x", chunk_tokens=256, factor=64, limit=None)


def test_the_real_store_is_set_up_as_its_model_says_scaled_to_the_device() -> None:
    spec = spec_for(REAL["lmcache-uring"], 2 << 30)
    assert spec.memory is not None
    assert (spec.memory.size_bytes, spec.meta_total_bytes) == (512 * MIB, 16 * MIB)
    words = arguments(spec, "/dev/loop9", 4 * MIB)
    adapter = json.loads(words[words.index("--l2-adapter") + 1])
    assert adapter["slot_bytes"] == 4 * MIB + 4096
    assert adapter["io_engine"] == "io_uring"
    assert adapter["eviction"] == {
        "eviction_policy": "LRU", "trigger_watermark": 0.8, "eviction_ratio": 0.2,
    }  # fmt: skip


def test_a_store_that_is_not_installed_says_how_to_install_it(
    mooncake: RequestSource, tmp_path: Path
) -> None:
    absent = replace(REAL["lmcache"], folder=".venv-absent")
    run = RealRun(absent, mooncake, "/dev/null", 1 << 30, load_model("llama-3.1-8b-tp8"), tmp_path)
    with pytest.raises(MachineError, match=r"lmcache is not installed: there is no \.venv-absent"):
        run_lmcache(run)
    assert absent.missing is not None
    broken = replace(REAL["lmcache"], folder=".venv", probe_module="no_such_module")
    assert broken.missing == "lmcache is not installed: .venv/ lacks no_such_module"
    assert not Emission("lmcache-raw-block", "chat", "llama-3.1-8b").real


def test_an_unknown_store_is_told_of_the_real_ones_too() -> None:
    with pytest.raises(UsageError, match="did you mean lmcache,") as caught:
        Emission("lmcahe", "chat", "llama-3.1-8b").check()
    assert "known: lmcache, lmcache-uring, vllm, kvbm" in str(caught.value.fix)
