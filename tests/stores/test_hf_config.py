"""Hugging Face configurations give the figures that the shipped models have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UsageError
from harness.stores.models import load_model

LLAMA = {
    "model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_size": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "hidden_size": 7168, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN35 = {
    "text_config": {
        "num_hidden_layers": 64, "num_attention_heads": 24, "num_key_value_heads": 4,
        "head_dim": 256, "hidden_size": 5120, "full_attention_interval": 4,
        "linear_num_value_heads": 48, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "dtype": "bfloat16",
    }
}  # fmt: skip
KIMI = {
    "num_hidden_layers": 27, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "dtype": "bfloat16",
    "num_attention_heads": 32, "hidden_size": 2304,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "kda_layers": [n for n in range(1, 28) if n not in (4, 8, 12, 16, 20, 24, 27)],
        "num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
    },
}  # fmt: skip
GEMMA = {
    "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
    "hidden_size": 5376, "sliding_window": 1024, "sliding_window_pattern": 6,
    "torch_dtype": "bfloat16",
}  # fmt: skip
NEMOTRON = {
    "num_hidden_layers": 52, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "hidden_size": 4096, "torch_dtype": "bfloat16", "mamba_num_heads": 128, "mamba_head_dim": 64,
    "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "mamba_ssm_cache_dtype": "bfloat16",
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
}  # fmt: skip


def write(tmp_path: Path, data: Any) -> str:
    path = tmp_path / "config.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("config", "known"),
    [
        (LLAMA, "llama-3.1-8b"),
        (DEEPSEEK, "deepseek-v3"),
        ({**DEEPSEEK, "index_head_dim": 128}, "deepseek-v3.2"),
        (QWEN35, "qwen3.5-27b"),
        (KIMI, "kimi-linear-48b"),
        (GEMMA, "gemma3-27b"),
        (NEMOTRON, "nemotron-h-8b"),
    ],
)
def test_a_configuration_gives_the_known_bytes(
    tmp_path: Path, config: dict[str, Any], known: str
) -> None:
    model, expected = load_model(write(tmp_path, config)), load_model(known)
    assert model.token_bytes == expected.token_bytes
    assert model.state_bytes == expected.state_bytes


def test_an_unused_sliding_window_is_no_window(tmp_path: Path) -> None:
    config = {**LLAMA, "sliding_window": 4096, "use_sliding_window": False}
    assert load_model(write(tmp_path, config)).state_bytes == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object"),
        ({k: v for k, v in LLAMA.items() if k != "num_hidden_layers"}, "num_hidden_layers"),
        ({**LLAMA, "num_key_value_heads": -8}, "num_key_value_heads"),
        ({**LLAMA, "torch_dtype": "int3"}, "torch_dtype: unknown dtype 'int3'"),
        ({**LLAMA, "layer_types": ["retention"]}, "unknown kind 'retention'"),
        ({**LLAMA, "mamba_d_state": 16}, "not understood"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, data: Any, message: str) -> None:
    path = write(tmp_path, data)
    with pytest.raises(UsageError, match=message) as caught:
        load_model(path)
    assert path in str(caught.value)
