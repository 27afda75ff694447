"""Bytes of KV cache a model keeps: what grows with the context, and what does not.

Formulas and their sources: one layer keeps, for each token, keys and values (GQA) or one latent
(MLA); a linear, Mamba or sliding-window layer keeps a state of fixed size. Every dtype is
explicit, because the ratio of a state to a chunk doubles with it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal

from pydantic import BaseModel, Field, PositiveInt

from harness.core.config import Strict, load_yaml

DTYPE_BYTES = {"fp8": 1, "bf16": 2, "fp16": 2, "fp32": 4}

Dtype = Literal["fp8", "bf16", "fp16", "fp32"]


class _Layers(Strict):
    """Layers of one kind; ``growing`` and ``fixed`` are bytes a layer."""

    layers: PositiveInt

    @property
    def growing(self) -> Fraction:
        """Bytes that each token adds to one layer."""
        return Fraction(0)

    @property
    def fixed(self) -> int:
        """Bytes of state of one layer, whatever the context."""
        return 0


class Gqa(_Layers):
    """Full attention with grouped key and value heads."""

    kind: Literal["gqa"]
    kv_heads: PositiveInt
    head_dim: PositiveInt
    dtype: Dtype = "bf16"

    @property
    def growing(self) -> Fraction:
        return Fraction(2 * self.kv_heads * self.head_dim * DTYPE_BYTES[self.dtype])


class Mla(_Layers):
    """Multi-head latent attention; ``entry_bytes`` overrides latent + rope in ``dtype``."""

    kind: Literal["mla"]
    latent: PositiveInt
    rope: int = Field(ge=0)
    dtype: Dtype = "bf16"
    entry_bytes: PositiveInt | None = None

    @property
    def growing(self) -> Fraction:
        return Fraction(self.entry_bytes or (self.latent + self.rope) * DTYPE_BYTES[self.dtype])


class Compressed(_Layers):
    """One stored entry for ``ratio`` tokens (DeepSeek-V4), beside the window that others state."""

    kind: Literal["compressed"]
    entry_bytes: PositiveInt
    ratio: PositiveInt

    @property
    def growing(self) -> Fraction:
        return Fraction(self.entry_bytes, self.ratio)


class Gdn(_Layers):
    """Gated delta net: a recurrent matrix a value head, and a short convolution."""

    kind: Literal["gdn"]
    v_heads: PositiveInt
    k_heads: PositiveInt
    d_k: PositiveInt
    d_v: PositiveInt
    conv: PositiveInt = 4
    state_dtype: Dtype
    conv_dtype: Dtype

    @property
    def fixed(self) -> int:
        recurrent = self.v_heads * self.d_k * self.d_v * DTYPE_BYTES[self.state_dtype]
        width = 2 * self.k_heads * self.d_k + self.v_heads * self.d_v
        return recurrent + (self.conv - 1) * width * DTYPE_BYTES[self.conv_dtype]


class Kda(_Layers):
    """Kimi delta attention: a square matrix a head, and convolutions of q, k and v."""

    kind: Literal["kda"]
    heads: PositiveInt
    dim: PositiveInt
    conv: PositiveInt = 4
    state_dtype: Dtype
    conv_dtype: Dtype

    @property
    def fixed(self) -> int:
        recurrent = self.heads * self.dim * self.dim * DTYPE_BYTES[self.state_dtype]
        width = 3 * self.heads * self.dim
        return recurrent + (self.conv - 1) * width * DTYPE_BYTES[self.conv_dtype]


class Mamba2(_Layers):
    """Mamba-2 state-space layers."""

    kind: Literal["mamba2"]
    heads: PositiveInt
    head_dim: PositiveInt
    state: PositiveInt
    groups: PositiveInt = 8
    conv: PositiveInt = 4
    state_dtype: Dtype
    conv_dtype: Dtype

    @property
    def fixed(self) -> int:
        recurrent = self.heads * self.head_dim * self.state * DTYPE_BYTES[self.state_dtype]
        width = self.heads * self.head_dim + 2 * self.groups * self.state
        return recurrent + (self.conv - 1) * width * DTYPE_BYTES[self.conv_dtype]


class Window(_Layers):
    """Sliding-window attention, kept as a state of the whole window."""

    kind: Literal["window"]
    window: PositiveInt
    kv_heads: PositiveInt = 1
    head_dim: PositiveInt = 1
    dtype: Dtype = "bf16"
    entry_bytes: PositiveInt | None = None

    @property
    def fixed(self) -> int:
        entry = self.entry_bytes or 2 * self.kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]
        return entry * self.window


Layers = Annotated[
    Gqa | Mla | Compressed | Gdn | Kda | Mamba2 | Window, Field(discriminator="kind")
]


class ModelKv(Strict):
    """One model's cache. ``layers`` groups may overlap (a window beside a compressed layer)."""

    name: str
    source: str
    unverified: bool = False
    layers: tuple[Layers, ...] = Field(min_length=1)

    @property
    def layer_bytes(self) -> tuple[Fraction, ...]:
        """Bytes a token of each growing layer, in layer order within each group."""
        return tuple(
            group.growing for group in self.layers if group.growing for _ in range(group.layers)
        )

    @property
    def token_bytes(self) -> Fraction:
        """KV bytes that each token adds over all layers; a fraction where entries are shared."""
        return sum((group.growing * group.layers for group in self.layers), Fraction(0))

    @property
    def state_bytes(self) -> int:
        """Bytes of all states of fixed size, one checkpoint; 0 for a model without any."""
        return sum(group.fixed * group.layers for group in self.layers)

    def chunk_bytes(self, tokens: int) -> int:
        """KV bytes of a chunk of ``tokens`` over all growing layers, rounded up to a byte."""
        exact = self.token_bytes * tokens
        return -(-exact.numerator // exact.denominator)

    def state_ratio(self, tokens: int = 16) -> float:
        """One checkpoint of state against one chunk of ``tokens``; inf where nothing grows."""
        if not self.token_bytes:
            return float("inf")
        return float(self.state_bytes / (self.token_bytes * tokens))


def load_model(name_or_path: str) -> ModelKv:
    """A model of ``workloads/models``, a YAML file like those, or a Hugging Face config.json.

    UsageError offers the nearest names, or names the key that is wrong.
    """
    from harness.stores.names import workload_yaml

    if name_or_path.endswith(".json"):
        from harness.stores.hf_config import read_config

        return read_config(name_or_path)
    return load_yaml(workload_yaml("models", name_or_path), ModelKv)


def describe(model: ModelKv) -> dict[str, object]:
    """The figures that reports print beside the model's name; bytes, exact where whole."""
    return {
        "name": model.name,
        "kv_bytes_per_token": float(model.token_bytes),
        "growing_layers": len(model.layer_bytes),
        "state_bytes": model.state_bytes,
        "ratio_16_tokens": round(model.state_ratio(), 2) if model.state_bytes else 0.0,
        "dtypes": sorted({dtype for group in model.layers for dtype in _dtypes(group)}),
        "source": model.source,
        "unverified": model.unverified,
    }


def _dtypes(group: BaseModel) -> list[str]:
    return [
        f"{field.removesuffix('dtype').rstrip('_') or 'kv'}={value}"
        for field, value in group.model_dump().items()
        if field.endswith("dtype")
    ]
