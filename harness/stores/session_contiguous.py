"""The session-contiguous, layer-ordered layout (FlatCake FC-CIO), built from its description.

Addresses have 64 bits: 4 of medium (0 memory, 1 SSD), 12 of node, 48 of byte offset; the store says
by them where a session lies, and a device cannot be larger than they reach. Chosen here, since the
description leaves it open: an extent holds ``extent_tokens``, a session that outgrows it chains
another of that size, "oldest" is idle longest, and the extent freed first is used first.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from harness.core.config import Strict
from harness.core.errors import UsageError
from harness.core.ops import PAGE_BYTES
from harness.stores.base import need_room
from harness.stores.compiled import CompiledStore, pages
from harness.stores.index import ABSENT, index_get
from harness.stores.models import ModelKv
from harness.stores.ops import OpArray
from harness.stores.requests.form import RequestBatch
from harness.stores.session_kernel import segment_bytes, serve
from harness.stores.session_state import S, SessionParams, new_session_state

MEDIUM_MEMORY, MEDIUM_SSD = 0, 1
_NODE_BITS, _OFFSET_BITS = 12, 48


class SessionContiguous(Strict):
    """Configuration. ``append_streams`` requests write at once, their ranges interleaved.

    ``node`` is the one whose SSD this is, in addresses.
    """

    layout: Literal["session-contiguous"]
    description: str = ""
    chunk_tokens: PositiveInt = 256
    extent_tokens: PositiveInt = 16384
    high_watermark: float = Field(0.9, gt=0, le=1)
    append_streams: int = Field(4, ge=1, le=63)
    read_streams: PositiveInt = 8
    node: int = Field(0, ge=0, lt=1 << 12)


class SessionContiguousStore(CompiledStore):
    """The store on a device of ``capacity_bytes`` for one model."""

    def __init__(self, spec: SessionContiguous, capacity_bytes: int, model: ModelKv) -> None:
        super().__init__(spec.layout, capacity_bytes, model, spec.chunk_tokens)
        self.spec = spec
        self._params = _params(spec, capacity_bytes, model)
        self._state = new_session_state(self._params)

    @property
    def extent_bytes(self) -> int:
        """Bytes pre-allocated to a session at a time."""
        return self._params.extent_bytes

    def addresses(self, session: int) -> NDArray[np.uint64]:
        """64-bit address of each segment of a session (and each state), oldest first.

        uint64[segments]; empty for a session that is not held.
        """
        state = self._state
        who = index_get(state.session_keys, state.session_values, np.uint64(session))
        found: list[int] = []
        row = int(state.session_rows[who]) if who != ABSENT else -1
        while row >= 0:
            if state.row_segment[row] == row:
                base = int(state.segment_base[row])
                found.append(pack_address(MEDIUM_SSD, self.spec.node, base))
            row = int(state.row_next[row])
        return np.array(found[::-1], np.uint64)

    @property
    def streams(self) -> int:
        """Append streams, then read streams."""
        return self.spec.append_streams + self.spec.read_streams

    @property
    def largest_op_bytes(self) -> int:
        """A layer's range of a segment that fills an extent, or a state."""
        p = self._params
        chunks = max(1, p.extent_bytes // max(1, int(p.layer_bytes.sum())))
        return max(int(p.layer_bytes.max(initial=0)) * chunks + PAGE_BYTES, p.state_bytes)

    def _room(self, batch: RequestBatch, chunks: int) -> int:
        return (len(self._params.layer_bytes) + 1) * (chunks + len(batch))

    def _serve(
        self, ops: OpArray, batch: RequestBatch, starts: NDArray[np.int64],
        keys: NDArray[np.uint64], reads: bool,
    ) -> int:  # fmt: skip
        order = np.empty(len(ops), np.int64)
        self._state.ints[S.OPS] = 0
        serve(self._params, self._state, ops, order, batch.session, batch.turn, starts, keys, reads)
        count = int(self._state.ints[S.OPS])
        ops[:count] = ops[:count][np.argsort(order[:count], kind="stable")]
        self._state.ints[S.GROUP_SIZE] = self.spec.append_streams
        return count

    def _report(self) -> dict[str, Any]:
        ints = self._state.ints
        return {
            "extents": self._params.extents,
            "extent_bytes": self._params.extent_bytes,
            "used_extents": self._params.extents - int(ints[S.FREE_EXTENTS]),
            "live_sessions": self._params.extents - int(ints[S.FREE_SESSIONS]),
            "chained_extents": int(ints[S.CHAINED_EXTENTS]),
            "segments": int(ints[S.SEGMENTS]),
            "requests": int(ints[S.REQUESTS]),
            "chunks_wanted": int(ints[S.CHUNKS_WANTED]),
            "chunks_hit": int(ints[S.CHUNKS_HIT]),
            "chunks_lost_to_missing_state": int(ints[S.CUT_BY_STATE]),
            "evictions": int(ints[S.RECLAIMED_SESSIONS]),
            "evicted": int(ints[S.RECLAIMED_CHUNKS]),
            "failed_puts": int(ints[S.FAILED_PUTS]),
        }


def pack_address(medium: int, node: int, offset: int) -> int:
    """The 64-bit address of a block; UsageError if a part does not fit its bits."""
    for name, value, bits in (
        ("medium", medium, 4),
        ("node", node, _NODE_BITS),
        ("offset", offset, _OFFSET_BITS),
    ):
        if not 0 <= value < 1 << bits:
            raise UsageError(f"{name} {value} does not fit {bits} bits of a block address")
    return (medium << (_NODE_BITS + _OFFSET_BITS)) | (node << _OFFSET_BITS) | offset


def unpack_address(address: int) -> tuple[int, int, int]:
    """Medium, node and byte offset of a 64-bit address."""
    low = (1 << _OFFSET_BITS) - 1
    node = (address >> _OFFSET_BITS) & ((1 << _NODE_BITS) - 1)
    return address >> (_NODE_BITS + _OFFSET_BITS), node, address & low


def _params(spec: SessionContiguous, capacity_bytes: int, model: ModelKv) -> SessionParams:
    layer_bytes = np.array(
        [-(-(b * spec.chunk_tokens).numerator // (b * spec.chunk_tokens).denominator)
         for b in model.layer_bytes],
        np.int64,
    )  # fmt: skip
    state = pages(model.state_bytes)
    chunks = max(1, spec.extent_tokens // spec.chunk_tokens)
    draft = SessionParams(
        extents=1, extent_bytes=0, page_bytes=PAGE_BYTES, chunk_rows=1, layer_bytes=layer_bytes,
        state_bytes=state, watermark_extents=1, append_streams=spec.append_streams,
        read_streams=spec.read_streams,
    )  # fmt: skip
    extent = int(segment_bytes(draft, chunks)) + state
    need_room(capacity_bytes, extent, f"{spec.layout} with one session's extent")
    pack_address(MEDIUM_SSD, spec.node, capacity_bytes - 1)
    extents = capacity_bytes // extent
    if extents >= 2**31:
        raise UsageError(f"{extents} extents of {extent} bytes are more than this model can index")
    return draft._replace(
        extents=extents,
        extent_bytes=extent,
        chunk_rows=extents * (chunks + (extent // state if state else 0)),
        watermark_extents=max(1, int(spec.high_watermark * extents)),
    )
