"""A point: all that one simulated run depends on, and the key under which its result is kept."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import Field, PositiveInt, model_validator

from harness.core.config import Size, Strict

Structure = Literal["leaf", "free"]
OnSsdHit = Literal["stay", "copy", "move"]


class Point(Strict):
    """One run of a policy over a trace; two equal points give equal outcomes.

    Attributes
    ----------
    trace
        Name and content hash of the corpus, ``name@hash``: ``trace_id`` makes it.
    lanes, seed
        How recorded sessions were interleaved, or synthetic traffic was made; None where neither.
    model, block_tokens
        Of ``workloads/models`` or a file; tokens a chunk.
    chunk_bytes, state_bytes
        In place of the model's sizes, for hand-made cases.
    checkpoint
        Where states are made: ``end``, ``round``, ``branch``, ``every:M`` or ``all-turns``.
    policy, parameters
        A name, a file of hooks or an entry point; its parameters by name.
    dram_bytes, ssd_bytes
        Capacities; an SSD of 0 bytes is none.
    structure
        ``leaf``: residency stays closed under prefixes. ``free``: any object may go.
    on_ssd_hit
        Whether an object hit on the SSD stays there, is copied to DRAM, or moves.
    replays
        Passes over the trace, each with fresh keys on the warm cache.
    warmup
        Share of the requests whose counters are dropped.
    last_token
        Leave at least one token of every prompt to be computed.
    """

    trace: str
    lanes: PositiveInt | None = None
    seed: int | None = None
    model: str = ""
    block_tokens: PositiveInt
    chunk_bytes: PositiveInt | None = None
    state_bytes: int | None = Field(None, ge=0)
    checkpoint: str = "end"
    policy: str = "lru"
    parameters: dict[str, Any] = Field(default_factory=dict)
    dram_bytes: Size
    ssd_bytes: Size = 0
    structure: Structure = "leaf"
    on_ssd_hit: OnSsdHit = "stay"
    replays: PositiveInt = 1
    warmup: float = Field(0.0, ge=0, lt=1)
    last_token: bool = False

    @model_validator(mode="after")
    def _sized(self) -> Point:
        if (self.chunk_bytes is None) != (self.state_bytes is None):
            raise ValueError("give both chunk_bytes and state_bytes, or neither")
        if not self.model and self.chunk_bytes is None:
            raise ValueError("give a model, or chunk_bytes and state_bytes")
        return self

    def canonical(self) -> str:
        """The point as JSON with sorted keys and no spaces."""
        return json.dumps(self.model_dump(), sort_keys=True, separators=(",", ":"))

    @property
    def key(self) -> str:
        """16 hex digits of the canonical form; with a code version, the name of its record."""
        return hashlib.blake2b(self.canonical().encode(), digest_size=8).hexdigest()


def trace_id(name: str, content_hash: str) -> str:
    """How a point names a corpus."""
    return f"{name}@{content_hash}"
