"""A model's cache from its Hugging Face ``config.json``, read offline.

Understood: grouped-query attention (Llama, Qwen, Mistral …), latent attention (DeepSeek V2 to
V3.2), sliding windows, and hybrids with gated delta nets (Qwen3-Next, Qwen3.5), delta attention
(Kimi-Linear) or Mamba-2 (Nemotron-H). Where a configuration has no word for the dtype of a
recurrent state, fp32 is taken, as the serving engines do, and the model's dtype for its
convolution. What is not understood is refused, never guessed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.core.config import validate
from harness.core.errors import UsageError
from harness.stores.models import ModelKv

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float8_e4m3fn": "fp8"}
_FOREIGN = ("mamba_d_state", "ssm_cfg", "attn_layer_indices", "rwkv_hidden_size", "lru_width")


class _Config:
    """A configuration's keys, with errors that name file and key."""

    def __init__(self, data: dict[str, Any], path: str) -> None:
        self.data, self.path = data, path

    def get(self, *names: str, default: Any = None) -> Any:
        """The first of ``names`` that is there and not null."""
        for name in names:
            if self.data.get(name) is not None:
                return self.data[name]
        return default

    def number(self, *names: str, default: int | None = None) -> int:
        """A positive whole number."""
        value = self.get(*names, default=default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(f"{self.path}: {names[0]}: expected a positive number, got {value!r}")
        return value

    def dtype(self, *names: str, default: str) -> str:
        """A dtype by its torch name."""
        value = str(self.get(*names, default=default)).removeprefix("torch.")
        if value in _DTYPES.values():
            return value
        if value not in _DTYPES:
            raise UsageError(f"{self.path}: {names[0]}: unknown dtype {value!r}")
        return _DTYPES[value]


def read_config(path: str) -> ModelKv:
    """The model of a ``config.json``; UsageError names the file and the key that is wrong."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise UsageError(f"{path}: expected an object")
    inner = data.get("text_config")
    merged = {**data, **inner} if isinstance(inner, dict) else data
    config = _Config(merged, path)
    foreign = [key for key in _FOREIGN if config.get(key) is not None]
    if foreign:
        raise UsageError(
            f"{path}: this kind of hybrid is not understood ({foreign[0]})",
            fix="describe it in a YAML file like those in workloads/models",
        )
    name = str(config.get("_name_or_path", "model_type", default=Path(path).parent.name))
    described = {"name": name, "source": f"config file {path}", "layers": _groups(config)}
    return validate(described, ModelKv, path)


def _groups(config: _Config) -> list[dict[str, Any]]:
    kinds = _layer_kinds(config)
    kv = config.dtype("torch_dtype", "dtype", default="bfloat16")
    makers = {"full": _full, "linear": _linear, "sliding": _sliding, "mamba": _mamba}
    groups = []
    for kind, maker in makers.items():
        count = kinds.count(kind)
        if count:
            groups.append({"layers": count, **maker(config, kv)})
    return groups


def _layer_kinds(config: _Config) -> list[str]:
    """One of full, linear, sliding or mamba for every layer that keeps anything."""
    layers = config.number("num_hidden_layers")
    pattern = config.get("hybrid_override_pattern")
    if pattern is not None:
        return [{"M": "mamba", "*": "full"}[c] for c in str(pattern) if c in "M*"]
    types = config.get("layer_types")
    if types is not None:
        return [_kind(str(word), config) for word in types]
    linear = config.get("linear_attn_config")
    if isinstance(linear, dict):
        return ["full"] * len(linear.get("full_attn_layers", [])) + ["linear"] * len(
            linear.get("kda_layers", [])
        )
    if config.get("linear_num_value_heads") is not None:
        every = config.number("full_attention_interval", default=4)
        return ["linear" if (n + 1) % every else "full" for n in range(layers)]
    if config.get("sliding_window") and config.get("use_sliding_window", default=True):
        every = int(config.get("sliding_window_pattern", "_sliding_window_pattern", default=0))
        return ["sliding" if not every or (n + 1) % every else "full" for n in range(layers)]
    return ["full"] * layers


def _kind(word: str, config: _Config) -> str:
    kinds = {
        "full_attention": "full",
        "attention": "full",
        "linear_attention": "linear",
        "sliding_attention": "sliding",
        "mamba": "mamba",
    }
    if word not in kinds:
        raise UsageError(f"{config.path}: layer_types: unknown kind {word!r}")
    return kinds[word]


def _full(config: _Config, kv: str) -> dict[str, Any]:
    if config.get("kv_lora_rank") is None:
        return {"kind": "gqa", **_heads(config), "dtype": kv}
    latent = config.number("kv_lora_rank")
    rope = config.number("qk_rope_head_dim")
    group: dict[str, Any] = {"kind": "mla", "latent": latent, "rope": rope, "dtype": kv}
    indexer = config.get("index_head_dim")
    if indexer is not None:
        width = {"fp8": 1, "bf16": 2, "fp16": 2, "fp32": 4}[kv]
        group["entry_bytes"] = (latent + rope + int(indexer)) * width
    return group


def _heads(config: _Config) -> dict[str, int]:
    heads = config.number("num_attention_heads")
    return {
        "kv_heads": config.number("num_key_value_heads", default=heads),
        "head_dim": config.number("head_dim", default=config.number("hidden_size") // heads),
    }


def _sliding(config: _Config, kv: str) -> dict[str, Any]:
    window = config.number("sliding_window")
    return {"kind": "window", "window": window, **_heads(config), "dtype": kv}


def _linear(config: _Config, kv: str) -> dict[str, Any]:
    state = config.dtype("mamba_ssm_dtype", "mamba_ssm_cache_dtype", default="float32")
    delta = config.get("linear_attn_config")
    if isinstance(delta, dict):
        inner = _Config(delta, f"{config.path}: linear_attn_config")
        return {
            "kind": "kda",
            "heads": inner.number("num_heads"),
            "dim": inner.number("head_dim"),
            "conv": inner.number("short_conv_kernel_size", default=4),
            "state_dtype": state,
            "conv_dtype": kv,
        }
    return {
        "kind": "gdn",
        "v_heads": config.number("linear_num_value_heads"),
        "k_heads": config.number("linear_num_key_heads"),
        "d_k": config.number("linear_key_head_dim"),
        "d_v": config.number("linear_value_head_dim"),
        "conv": config.number("linear_conv_kernel_dim", default=4),
        "state_dtype": state,
        "conv_dtype": kv,
    }


def _mamba(config: _Config, kv: str) -> dict[str, Any]:
    return {
        "kind": "mamba2",
        "heads": config.number("mamba_num_heads"),
        "head_dim": config.number("mamba_head_dim"),
        "state": config.number("ssm_state_size"),
        "groups": config.number("n_groups", default=8),
        "conv": config.number("conv_kernel", default=4),
        "state_dtype": config.dtype("mamba_ssm_cache_dtype", "mamba_ssm_dtype", default="float32"),
        "conv_dtype": kv,
    }
