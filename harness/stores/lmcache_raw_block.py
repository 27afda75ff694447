"""LMCache's ``raw_block`` store (0.5.6, read in source; confirmed on captures).

On the device: two checkpoint copies, each half of ``meta_total_bytes``, then slots back to back. A
slot is a 4 KiB header and the payload, K of all layers and then V of all layers of one chunk. No
discard, flush or FUA is ever issued. Fixed states of hybrid models are cut into slot-sized pieces,
since a larger object would not fit a slot; a hit must end where all pieces of a state are held.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from harness.core.config import Size, Strict
from harness.core.errors import UsageError
from harness.core.ops import PAGE_BYTES
from harness.core.units import format_size
from harness.stores.base import need_room
from harness.stores.compiled import CompiledStore, pages
from harness.stores.models import ModelKv
from harness.stores.ops import OpArray, empty_ops
from harness.stores.requests.form import RequestBatch
from harness.stores.slot_kernel import serve
from harness.stores.slot_state import N, SlotParams, SlotState, new_state
from harness.stores.slot_workers import checkpoint, drain

_WRITE_RACE = 1.5
"""Places by which io_uring's writes overtake each other; fitted to captures on 4 and 32 MiB
chunks, like those of reads below."""


class Eviction(Strict):
    """LRU by the second: at ``watermark`` of the slots, ``ratio`` of the keys go."""

    watermark: float = Field(0.8, gt=0, le=1)
    ratio: float = Field(0.2, gt=0, le=1)
    interval_s: PositiveFloat = 1.0


class Memory(Strict):
    """LMCache's L1: host memory through which all chunks pass; evicts like the slots do."""

    size_bytes: Size
    watermark: float = Field(0.8, gt=0, le=1)
    ratio: float = Field(0.2, gt=0, le=1)


class LmcacheRawBlock(Strict):
    """Configuration, by LMCache's names where it has them.

    ``eviction: null`` is the real store without an eviction policy and the legacy plugin: once
    full, every put fails. ``drain_mbps`` is the assumed speed (1e6 B/s) of all store workers
    together, which decides how often the writes of two requests interleave; ``load_mbps`` that at
    which a request's hits are loaded and used, which decides how long they take up memory (null:
    not at all). ``memory: null`` is L1 as a mere write buffer (``skip_l1``): every hit is read from
    the device.
    """

    layout: Literal["lmcache-raw-block"]
    description: str = ""
    engine: Literal["posix", "io_uring"] = "posix"
    chunk_tokens: PositiveInt = 256
    slot_bytes: Size | None = None
    header_bytes: Size = 4096
    meta_total_bytes: Size = 256 << 20
    meta_checkpoint_interval_s: PositiveFloat = 60.0
    meta_idle_quiet_s: PositiveFloat = 0.1
    entry_bytes: PositiveInt = 165
    num_store_workers: PositiveInt = 2
    num_load_workers: PositiveInt = 4
    iouring_batch: PositiveInt = 64
    eviction: Eviction | None = Eviction()
    memory: Memory | None = None
    drain_mbps: PositiveFloat = 900.0
    load_mbps: PositiveFloat | None = None


class RawBlockStore(CompiledStore):
    """The store on a device of ``capacity_bytes`` for one model."""

    def __init__(self, spec: LmcacheRawBlock, capacity_bytes: int, model: ModelKv) -> None:
        super().__init__(spec.layout, capacity_bytes, model, spec.chunk_tokens)
        self.spec = spec
        self.fixed_buffers = _uring(spec)
        self._params = _params(spec, capacity_bytes, model)
        self._state = new_state(self._params)

    @property
    def slots(self) -> int:
        """Slots that the device holds."""
        return self._params.slots

    @property
    def slot_bytes(self) -> int:
        """Header and payload."""
        return self._params.slot_bytes

    @property
    def data_start(self) -> int:
        """Byte offset of slot 0."""
        return self._params.data_start

    @property
    def streams(self) -> int:
        """A lane a worker, or for each of its batch, and one for checkpoints."""
        return (self._params.store_workers + self._params.load_workers) * self._params.batch + 1

    @property
    def largest_op_bytes(self) -> int:
        """A payload, a piece of state, or the JSON of a full index."""
        p = self._params
        index = min(p.checkpoint_half - PAGE_BYTES, pages(p.slots * p.entry_bytes + 1))
        return max(p.payload_bytes, p.state_piece_bytes if p.state_pieces else 0, index)

    def _room(self, batch: RequestBatch, chunks: int) -> int:
        return _room(self._params, self._state, batch, chunks)

    def _serve(
        self, ops: OpArray, batch: RequestBatch, starts: NDArray[np.int64],
        keys: NDArray[np.uint64], reads: bool,
    ) -> int:  # fmt: skip
        self._state.ints[N.OPS] = 0
        serve(
            self._params, self._state, ops, batch.time_s, batch.session, batch.turn, starts, keys,
            reads,
        )  # fmt: skip
        return int(self._state.ints[N.OPS])

    def close(self) -> OpArray:
        """Let the workers finish, then write the checkpoint that closing writes."""
        ops = empty_ops(2 * int(self._state.queue_held.sum()) + 4)
        self._state.ints[N.OPS] = 0
        drain(self._params, self._state, ops)
        if self._state.ints[N.DIRTY]:
            checkpoint(self._params, self._state, ops)
        return self._counted(ops[: self._state.ints[N.OPS]])

    def _report(self) -> dict[str, Any]:
        ints, params = self._state.ints, self._params
        return {
            "engine": self.spec.engine,
            "slots": params.slots,
            "slot_bytes": params.slot_bytes,
            "data_start": params.data_start,
            "used_slots": int(ints[N.USED]),
            "touched_slots": int(ints[N.BUMP]),
            "slot_writes": _spread(self._state.writes[: ints[N.BUMP]]),
            "requests": int(ints[N.REQUESTS]),
            "chunks_wanted": int(ints[N.CHUNKS_WANTED]),
            "chunks_hit": int(ints[N.CHUNKS_HIT]),
            "chunks_lost_to_missing_state": int(ints[N.CUT_BY_STATE]),
            "hits_in_memory": int(ints[N.HIT_IN_MEMORY]),
            "hits_dropped_for_want_of_memory": int(ints[N.DROPPED_HITS]),
            "not_stored_for_want_of_memory": int(ints[N.MEMORY_FULL]),
            "evictions": int(ints[N.EVICTIONS]),
            "evicted": int(ints[N.EVICTED]),
            "failed_puts": int(ints[N.FAILED_PUTS]),
            "checkpoints": int(ints[N.CHECKPOINTS]),
            "checkpoints_too_large": int(ints[N.CHECKPOINTS_SKIPPED]),
        }


def _params(spec: LmcacheRawBlock, capacity_bytes: int, model: ModelKv) -> SlotParams:
    payload = pages(model.chunk_bytes(spec.chunk_tokens))
    slot = spec.slot_bytes or spec.header_bytes + payload
    if spec.header_bytes + payload > slot:
        raise UsageError(
            f"a chunk of {spec.chunk_tokens} tokens of {model.name} is {format_size(payload)}; "
            f"with its header it does not fit slot_bytes of {format_size(slot)}",
            fix=f"slot_bytes: {spec.header_bytes + payload} or more (leave it out for just that), "
            "a smaller chunk_tokens, or another model",
        )
    need_room(capacity_bytes, spec.meta_total_bytes + slot, f"{spec.layout} with one slot")
    payload_room = slot - spec.header_bytes
    pieces = -(-model.state_bytes // payload_room)
    tail = pages(model.state_bytes - (pieces - 1) * payload_room) if pieces else 0
    eviction = spec.eviction
    return SlotParams(
        slots=(capacity_bytes - spec.meta_total_bytes) // slot,
        slot_bytes=slot,
        data_start=spec.meta_total_bytes,
        header_bytes=spec.header_bytes,
        payload_bytes=payload,
        state_pieces=pieces,
        state_piece_bytes=payload_room,
        state_tail_bytes=tail,
        store_workers=spec.num_store_workers,
        write_race=_WRITE_RACE if _uring(spec) else 0.0,
        read_race=_read_race(payload) if _uring(spec) else 0.0,
        load_workers=spec.num_load_workers,
        batch=spec.iouring_batch if _uring(spec) else 1,
        watermark=eviction.watermark if eviction else np.inf,
        eviction_ratio=eviction.ratio if eviction else 0.0,
        tick_s=eviction.interval_s if eviction else 1.0,
        chunk_write_s=payload * spec.num_store_workers / (spec.drain_mbps * 1e6),
        chunk_read_s=payload / (spec.load_mbps * 1e6) if spec.load_mbps else 0.0,
        checkpoint_half=spec.meta_total_bytes // 2,
        checkpoint_interval_s=spec.meta_checkpoint_interval_s,
        checkpoint_quiet_s=spec.meta_idle_quiet_s,
        entry_bytes=spec.entry_bytes,
        memory_chunks=spec.memory.size_bytes // payload if spec.memory else 0,
        memory_watermark=spec.memory.watermark if spec.memory else 1.0,
        memory_ratio=spec.memory.ratio if spec.memory else 0.0,
    )


def _read_race(chunk_bytes: int) -> float:
    """Places by which io_uring's reads overtake each other: 2 for 4 MiB chunks, 3 for 32 MiB."""
    return max(1.0, 2 + math.log2(chunk_bytes / (4 << 20)) / 3)


def _uring(spec: LmcacheRawBlock) -> bool:
    return spec.engine == "io_uring"


def _room(params: SlotParams, state: SlotState, batch: RequestBatch, chunks: int) -> int:
    """Ops that a batch can cause at most: each chunk read or written, states, checkpoints."""
    objects = chunks + params.state_pieces * len(batch)
    held = int(state.queue_held.sum())
    return 2 * (objects + held) + params.state_pieces * len(batch) + 2 * len(batch)


def _spread(writes: np.ndarray) -> dict[str, float]:
    if not len(writes):
        return {"min": 0, "median": 0, "max": 0}
    return {
        "min": int(writes.min()),
        "median": float(np.median(writes)),
        "max": int(writes.max()),
    }
