"""Sessions laid out on the device by a store's own allocator, really written, then found again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.bench.drive import Engine
from harness.bench.grid import Placement
from harness.bench.plans import Ranges, by_layer
from harness.bench.traffic import BLOCK_TOKENS, OTHERS_AT_ONCE, OTHERS_TURNS, Traffic
from harness.core.errors import UsageError
from harness.core.ops import Op
from harness.core.progress import Progress, quiet
from harness.core.units import format_size
from harness.stores.base import Store
from harness.stores.lmcache_raw_block import LmcacheRawBlock
from harness.stores.models import ModelKv, load_model
from harness.stores.mooncake_stores import BucketStore
from harness.stores.ops import OpArray
from harness.stores.registry import StoreSpec, load_store_spec, make_store
from harness.stores.requests.form import Request, RequestBatch
from harness.stores.session_contiguous import SessionContiguous

SPARE_SESSIONS = OTHERS_AT_ONCE + 1
"""Room beside the sessions to be read: for others that age the store, and for its watermark."""

LEAST_BUCKETS = 8
"""A store of a few buckets would reclaim the sessions with its first one."""

WRITE_BYTES = 1 << 20
WRITE_DEPTH = 8
_BATCH = 64
_SMALL_META_BYTES = 8 << 20


@dataclass(frozen=True)
class Region:
    """Where on the device a store lies."""

    base: int
    size_bytes: int


class Placed:
    """A store in a region, its traffic, and after ``write`` the sessions' ranges.

    UsageError when the store's unit or the model does not fit the region.
    """

    def __init__(self, placement: Placement, region: Region, seed: int) -> None:
        self.placement, self.region = placement, region
        self.model = load_model(placement.model)
        self.spec = fit_spec(load_store_spec(placement.store), placement, region.size_bytes)
        self.store: Store = make_store(self.spec, region.size_bytes, self.model)
        sights = getattr(self.spec, "admission_sights", 1)
        tail = 2 * _bucket_bytes(self.spec)
        self.traffic = Traffic(
            placement, region.size_bytes, float(self.model.token_bytes), seed, sights, tail
        )
        self.sessions: list[Ranges] = []
        self.written_bytes = 0

    def write(self, engine: Engine, progress: Progress = quiet) -> None:
        """Issue everything that the store writes, in its order, and find the sessions.

        UsageError when the store did not keep the sessions whole.
        """
        expected = self.placement.age * self.region.size_bytes + session_bytes(
            self.placement, self.model
        )
        for ops in self.write_ops(self.traffic.requests()):
            self.written_bytes += write_ops(engine, ops)
            progress(self.written_bytes, expected, f"filling {self.placement.store}")
        for number in self.traffic.session_numbers():
            self.sessions.append(self._find(number, engine))

    def write_ops(self, requests: Iterator[Request], batch_size: int = _BATCH) -> Iterator[OpArray]:
        """The store's writes for ``requests``, at their place on the device."""
        while batch := list(itertools.islice(requests, batch_size)):
            ops = self.store.serve_batch(RequestBatch.of(batch), reads=False)
            yield self._writes(ops)

    def report(self) -> dict[str, Any]:
        """What the store says of itself, and where it lies."""
        return {
            **self.placement.model_dump(),
            "region_offset": self.region.base,
            "region_bytes": self.region.size_bytes,
            "written_bytes": self.written_bytes,
            "store_report": self.store.report(),
        }

    def _find(self, session: int, engine: Engine) -> Ranges:
        ops = self.store.serve(self.traffic.restore(session))
        self.written_bytes += write_ops(engine, self._writes(ops))
        reads = ops[(ops["op"] == Op.READ) & (ops["session"] == session)]
        heads = self.store.heads(reads["key"]) if isinstance(self.store, BucketStore) else None
        found = by_layer(reads, self.spec.layout, self.model, self.spec.chunk_tokens, heads)
        needed = session_bytes(self.placement, self.model) // self.placement.sessions
        if found.wanted_bytes < needed:
            raise UsageError(
                f"{self.placement.store} kept only {format_size(found.wanted_bytes)} of a session "
                f"of {format_size(needed)} in {format_size(self.region.size_bytes)}"
            )
        return Ranges(found.offset + np.uint64(self.region.base), found.length, found.layer)

    def _writes(self, ops: OpArray) -> OpArray:
        writes = ops[ops["op"] == Op.WRITE].copy()
        writes["offset"] += np.uint64(self.region.base)
        return writes


def write_ops(engine: Engine, ops: OpArray) -> int:
    """Write ``ops`` in order with incompressible data; bytes written."""
    if len(ops) == 0:
        return 0
    pieces = -(-ops["length"].astype(np.int64) // WRITE_BYTES)
    owner = np.repeat(np.arange(len(ops)), pieces)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = number.astype(np.uint64) * np.uint64(WRITE_BYTES)
    length = np.minimum(np.uint64(WRITE_BYTES), ops["length"][owner] - start)
    engine.run(ops["offset"][owner] + start, length, write=True)
    return int(length.sum())


def session_bytes(placement: Placement, model: ModelKv) -> int:
    """KV bytes of all sessions of a placement, full blocks only, states aside."""
    blocks = placement.context_tokens // BLOCK_TOKENS
    return placement.sessions * int(model.token_bytes * blocks * BLOCK_TOKENS)


def needed_bytes(placement: Placement) -> int:
    """Capacity that a store needs so that it holds the sessions and can be aged."""
    model = load_model(placement.model)
    each = session_bytes(placement, model) // placement.sessions
    # A state a turn, and an extent has room for one: a hybrid session chains an extent a turn.
    own, others = (placement.turns, OTHERS_TURNS) if model.state_bytes else (1, 1)
    extents = placement.sessions * own + SPARE_SESSIONS * others
    # Ranges and states are padded to pages and slots have headers: a sixteenth covers that.
    total = extents * (each + model.state_bytes) * 17 // 16 + 2 * _SMALL_META_BYTES
    total = max(total, LEAST_BUCKETS * _bucket_bytes(load_store_spec(placement.store)))
    return -(-total // WRITE_BYTES) * WRITE_BYTES


def _bucket_bytes(spec: StoreSpec) -> int:
    """Bytes of the buckets that a store fills; 0 for a store without any."""
    return int(getattr(spec, "bucket_bytes", 0))


def fit_spec(spec: StoreSpec, placement: Placement, capacity_bytes: int) -> StoreSpec:
    """A store's configuration for a benchmark's region.

    The chunk that the placement asks for; one extent a session; and a checkpoint region that
    does not eat a small region's slots.
    """
    changes: dict[str, int | None] = {}
    chunk = placement.chunk_tokens or spec.chunk_tokens
    changes["chunk_tokens"] = chunk
    if isinstance(spec, SessionContiguous):
        changes["extent_tokens"] = -(-placement.context_tokens // chunk) * chunk
    if isinstance(spec, LmcacheRawBlock) and spec.meta_total_bytes > capacity_bytes // 16:
        changes["meta_total_bytes"] = _SMALL_META_BYTES
    if isinstance(spec, LmcacheRawBlock):
        # What host memory still holds would never be read back from the device.
        changes["memory"] = None
    return spec.model_copy(update=changes)
