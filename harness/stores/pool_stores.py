"""Stores of fixed places: Dynamo KVBM's disk tier (``kvbm``) and vLLM's ``vllm-disk``.

Both keep one engine block a place, in one file that is allocated whole and read and written with
direct I/O; a block's place is its number times its size. KVBM moves 16 blocks in each of four
transfers at once and lays a block out as [layer][K/V][page]; vLLM writes a block by one pwritev
with a piece a layer, in one store and one load thread. Fixed states, for which neither is known to
have a place of its own, are cut into places. Nothing is discarded, flushed or headed.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from harness.core.config import Strict
from harness.core.errors import UsageError
from harness.stores.base import need_room
from harness.stores.compiled import CompiledStore, pages
from harness.stores.models import ModelKv
from harness.stores.ops import OpArray
from harness.stores.pool_kernel import P, PoolParams, new_pool, serve
from harness.stores.requests.form import RequestBatch


class Kvbm(Strict):
    """Configuration. ``admission_sights`` 1 turns the frequency filter off, as KVBM v2 does."""

    layout: Literal["kvbm"]
    description: str = ""
    chunk_tokens: PositiveInt = 16
    admission_sights: PositiveInt = 2
    transfers: PositiveInt = 4
    transfer_blocks: PositiveInt = 16


class VllmDisk(Strict):
    """Configuration of vLLM's SimpleCPUOffloadConnector with its disk backend."""

    layout: Literal["vllm-disk"]
    description: str = ""
    chunk_tokens: PositiveInt = 16


class PoolStore(CompiledStore):
    """A pool on a device of ``capacity_bytes`` for one model."""

    def __init__(self, spec: Kvbm | VllmDisk, capacity_bytes: int, model: ModelKv) -> None:
        super().__init__(spec.layout, capacity_bytes, model, spec.chunk_tokens)
        self.spec = spec
        self._params = _params(spec, capacity_bytes, model)
        self._state = new_pool(self._params)

    @property
    def places(self) -> int:
        """Places that the device holds."""
        return self._params.places

    @property
    def streams(self) -> int:
        return self._params.store_streams + self._params.load_streams

    @property
    def largest_op_bytes(self) -> int:
        return self._params.place_bytes

    def _room(self, batch: RequestBatch, chunks: int) -> int:
        return chunks + 2 * self._params.state_pieces * len(batch)

    def _serve(
        self, ops: OpArray, batch: RequestBatch, starts: NDArray[np.int64],
        keys: NDArray[np.uint64], reads: bool,
    ) -> int:  # fmt: skip
        return int(
            serve(self._params, self._state, ops, batch.session, batch.turn, starts, keys, reads)
        )

    def _report(self) -> dict[str, Any]:
        ints = self._state.ints
        return {
            "places": self._params.places,
            "place_bytes": self._params.place_bytes,
            "used_places": int(ints[P.USED]),
            "requests": int(ints[P.REQUESTS]),
            "chunks_wanted": int(ints[P.WANTED]),
            "chunks_hit": int(ints[P.HIT]),
            "chunks_lost_to_missing_state": int(ints[P.CUT_BY_STATE]),
            "evictions": int(ints[P.EVICTED]),
            "evicted": int(ints[P.EVICTED]),
            "not_admitted": int(ints[P.NOT_ADMITTED]),
            "failed_puts": int(ints[P.FAILED]),
        }


def _params(spec: Kvbm | VllmDisk, capacity_bytes: int, model: ModelKv) -> PoolParams:
    place = pages(model.chunk_bytes(spec.chunk_tokens))
    need_room(capacity_bytes, place, f"{spec.layout} with one block")
    places = capacity_bytes // place
    if places >= 2**31:
        raise UsageError(f"{places} blocks of {place} bytes are more than this model can index")
    pieces = -(-model.state_bytes // place)
    sights, streams = 1, 1
    if isinstance(spec, Kvbm):
        sights, streams = spec.admission_sights, spec.transfers * spec.transfer_blocks
    return PoolParams(
        places=places,
        place_bytes=place,
        object_bytes=place,
        state_pieces=pieces,
        state_tail_bytes=pages(model.state_bytes - (pieces - 1) * place) if pieces else 0,
        sights=sights,
        sight_entries=max(1024, 2 * places) if sights > 1 else 1,
        store_streams=streams,
        load_streams=streams,
    )
