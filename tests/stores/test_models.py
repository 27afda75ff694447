"""Model figures against the published ratios and the catalogue."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from harness.core.errors import UsageError
from harness.stores.models import load_model
from harness.stores.names import workload_names


@pytest.mark.parametrize(
    ("name", "token_bytes", "state_bytes", "ratio"),
    [
        ("qwen3.5-27b", 65536, 153_944_064, 146.81),
        ("kimi-k3", 27648, 449_372_160, 1015.83),
        ("gemma3-27b", 81920, 436_207_616, 332.8),
        ("nemotron-h-8b", 16384, 51_806_208, 197.62),
    ],
)
def test_state_against_a_16_token_chunk(
    name: str, token_bytes: int, state_bytes: int, ratio: float
) -> None:
    model = load_model(name)
    assert model.token_bytes == token_bytes
    assert model.state_bytes == state_bytes
    assert model.state_ratio(16) == pytest.approx(ratio, rel=1e-4)


def test_bf16_state_halves_the_published_ratio() -> None:
    model = load_model("qwen3.5-27b")
    groups = [
        group.model_copy(update={"state_dtype": "bf16"}) if group.kind == "gdn" else group
        for group in model.layers
    ]
    assert model.model_copy(update={"layers": tuple(groups)}).state_ratio(16) == pytest.approx(
        74.8, abs=0.05
    )


def test_deepseek_v4_flash_keeps_0_8_gib_for_219k_tokens() -> None:
    model = load_model("deepseek-v4-flash")
    growing = 219_000 * model.token_bytes / 2**30
    assert float(growing) == pytest.approx(0.785, abs=0.0005)
    assert float(growing) + model.state_bytes / 2**30 == pytest.approx(0.788, abs=0.0005)


def test_an_unknown_model_offers_near_names() -> None:
    with pytest.raises(UsageError, match=r"did you mean .*qwen3\.5-27b"):
        load_model("qwen35-27b")


CATALOGUE = {
    "Qwen3.5-27B": "qwen3.5-27b",
    "Kimi-K3": "kimi-k3",
    "Kimi-Linear-48B-A3B": "kimi-linear-48b",
    "Qwen3-Next-80B-A3B": "qwen3-next-80b",
    "Nemotron-H-8B": "nemotron-h-8b",
    "Nemotron-H-47B": "nemotron-h-47b",
    "Nemotron-H-56B": "nemotron-h-56b",
    "Nemotron-3-Nano-30B": "nemotron-3-nano-30b",
    "Gemma3-27B": "gemma3-27b",
    "Llama-3.1-8B": "llama-3.1-8b",
    "Llama-3.1-70B": "llama-3.1-70b",
    "Llama-3.1-405B": "llama-3.1-405b",
    "Qwen3-8B": "qwen3-8b",
    "Qwen3-32B": "qwen3-32b",
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "Qwen3-235B-A22B": "qwen3-235b-a22b",
    "DeepSeek-V3/R1 bf16": "deepseek-v3",
    "DeepSeek-V3/R1 fp8_ds_mla": "deepseek-v3-fp8",
    "DeepSeek-V4-Flash (vLLM fp8_ds_mla)": "deepseek-v4-flash",
}


def test_every_row_of_the_catalogue(shared_dir: Path) -> None:
    path = shared_dir / "reference" / "model_kv_catalogue.csv"
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["model"] for row in rows} == set(CATALOGUE)
    for row in rows:
        model = load_model(CATALOGUE[row["model"]])
        assert float(model.token_bytes) == float(row["kv_bytes_per_token"]), row["model"]
        assert model.state_bytes == int(row["fixed_bytes_total"]), row["model"]


def test_all_shipped_models_load() -> None:
    for name in workload_names("models"):
        assert load_model(name).token_bytes > 0
