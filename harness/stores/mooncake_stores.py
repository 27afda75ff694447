"""Mooncake Store's disk backends: ``mooncake-bucket`` (the default) and ``mooncake-offset``.

Both are buffered in the original, also with io_uring, and emitted so; offsets and lengths are
rounded to pages. The write of a bucket is one gathered call; it is given as a range an object, one
after the other, so that each carries its object. Neither discards. Fixed states are objects of
their own.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from harness.core.config import Size, Strict
from harness.core.errors import UsageError
from harness.core.ops import PAGE_BYTES
from harness.stores.base import need_room
from harness.stores.bucket_kernel import MOST_EXTENTS, B, BucketParams, new_buckets, write_full
from harness.stores.bucket_kernel import serve as serve_buckets
from harness.stores.compiled import CompiledStore, pages
from harness.stores.index import index_get
from harness.stores.models import ModelKv
from harness.stores.offset_kernel import O, OffsetParams, new_offset
from harness.stores.offset_kernel import serve as serve_offset
from harness.stores.ops import OpArray, empty_ops
from harness.stores.requests.form import RequestBatch


class MooncakeBucket(Strict):
    """Configuration. ``quota_share`` of the disk, and the watermarks are shares of that."""

    layout: Literal["mooncake-bucket"]
    description: str = ""
    chunk_tokens: PositiveInt = 64
    bucket_bytes: Size = 256 << 20
    bucket_keys: PositiveInt = 500
    heartbeat_s: PositiveFloat = 10.0
    key_bytes: PositiveInt = 64
    entry_bytes: PositiveInt = 128
    evict: Literal["none", "fifo", "lru"] = "fifo"
    quota_share: float = Field(0.9, gt=0, le=1)
    high_watermark: float = Field(0.9, gt=0, le=1)
    low_watermark: float = Field(0.8, gt=0, le=1)
    load_streams: PositiveInt = 32


class MooncakeOffset(Strict):
    """Configuration: one file of the whole device, first in, first out between watermarks."""

    layout: Literal["mooncake-offset"]
    description: str = ""
    chunk_tokens: PositiveInt = 64
    evict: Literal["none", "fifo"] = "fifo"
    high_watermark: float = Field(0.9, gt=0, le=1)
    low_watermark: float = Field(0.8, gt=0, le=1)
    threads: PositiveInt = 4


class BucketStore(CompiledStore):
    """Buckets on a file system over a device of ``capacity_bytes``, for one model."""

    buffered = True

    def __init__(self, spec: MooncakeBucket, capacity_bytes: int, model: ModelKv) -> None:
        super().__init__(spec.layout, capacity_bytes, model, spec.chunk_tokens)
        self.spec = spec
        self._params = _bucket_params(spec, capacity_bytes, model)
        self._state = new_buckets(self._params, capacity_bytes)

    @property
    def streams(self) -> int:
        return 1 + self.spec.load_streams

    @property
    def largest_op_bytes(self) -> int:
        return pages(max(self._params.chunk_bytes, self._params.state_bytes)) + 2 * PAGE_BYTES

    def _room(self, batch: RequestBatch, chunks: int) -> int:
        return self._most_ops(chunks + 2 * len(batch))

    def _most_ops(self, objects: int) -> int:
        """Each object read and written once, and cut wherever its bucket's file is cut."""
        p = self._params
        largest = p.record_key_bytes + max(p.chunk_bytes, p.state_bytes)
        least = max(1, min(p.bucket_keys, p.bucket_bytes // largest))
        waiting = objects + int(self._state.ints[B.WAITING])
        return 2 * objects + waiting + (MOST_EXTENTS + 1) * (2 * objects // least + 2)

    def _serve(
        self, ops: OpArray, batch: RequestBatch, starts: NDArray[np.int64],
        keys: NDArray[np.uint64], reads: bool,
    ) -> int:  # fmt: skip
        count = serve_buckets(
            self._params, self._state, ops, batch.time_s, batch.session, batch.turn, starts, keys,
            reads,
        )  # fmt: skip
        return int(count)

    def heads(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Bytes from the first page that a read of each of ``keys`` fetches to its value.

        Values are unaligned. uint64[n] -> int64[n], 0 for what is not in a bucket.
        """
        state = self._state
        rows = [index_get(state.keys, state.values, key) for key in keys]
        return np.array([0 if row < 0 else state.row_start[row] % PAGE_BYTES for row in rows])

    def close(self) -> OpArray:
        """The whole buckets that are waiting; what does not fill one is never written."""
        ops = empty_ops(self._most_ops(int(self._state.ints[B.WAITING])))
        return self._counted(ops[: write_full(self._params, self._state, ops, 0)])

    def _report(self) -> dict[str, Any]:
        ints = self._state.ints
        return {
            "buckets": self._params.buckets - int(ints[B.FREE_BUCKETS]),
            "buckets_written": int(ints[B.BUCKETS_WRITTEN]),
            "used_bytes": int(ints[B.USED_PAGES]) * PAGE_BYTES,
            "waiting_in_memory": int(ints[B.WAITING]),
            "requests": int(ints[B.REQUESTS]),
            "chunks_wanted": int(ints[B.WANTED]),
            "chunks_hit": int(ints[B.HIT]),
            "chunks_lost_to_missing_state": int(ints[B.CUT_BY_STATE]),
            "hits_in_memory": int(ints[B.IN_MEMORY]),
            "evictions": int(ints[B.BUCKETS_EVICTED]),
            "evicted": int(ints[B.OBJECTS_EVICTED]),
            "failed_puts": int(ints[B.FAILED]),
        }


class OffsetStore(CompiledStore):
    """Records in one file on a device of ``capacity_bytes``, for one model."""

    buffered = True

    def __init__(self, spec: MooncakeOffset, capacity_bytes: int, model: ModelKv) -> None:
        super().__init__(spec.layout, capacity_bytes, model, spec.chunk_tokens)
        self.spec = spec
        self._params = _offset_params(spec, capacity_bytes, model)
        self._state = new_offset(self._params)

    @property
    def streams(self) -> int:
        return 2 * self.spec.threads

    @property
    def largest_op_bytes(self) -> int:
        return (max(self._params.chunk_pages, self._params.state_pages) + 1) * PAGE_BYTES

    def _room(self, batch: RequestBatch, chunks: int) -> int:
        return chunks + 2 * len(batch)

    def _serve(
        self, ops: OpArray, batch: RequestBatch, starts: NDArray[np.int64],
        keys: NDArray[np.uint64], reads: bool,
    ) -> int:  # fmt: skip
        return int(
            serve_offset(
                self._params, self._state, ops, batch.session, batch.turn, starts, keys, reads
            )
        )

    def _report(self) -> dict[str, Any]:
        ints = self._state.ints
        return {
            "records": self._params.records - int(ints[O.FREE_ROWS]),
            "used_bytes": int(ints[O.USED_PAGES]) * PAGE_BYTES,
            "requests": int(ints[O.REQUESTS]),
            "chunks_wanted": int(ints[O.WANTED]),
            "chunks_hit": int(ints[O.HIT]),
            "chunks_lost_to_missing_state": int(ints[O.CUT_BY_STATE]),
            "evictions": int(ints[O.EVICTED]),
            "evicted": int(ints[O.EVICTED]),
            "evicted_for_want_of_a_range": int(ints[O.NO_RANGE]),
            "failed_puts": int(ints[O.FAILED]),
        }


def _bucket_params(spec: MooncakeBucket, capacity_bytes: int, model: ModelKv) -> BucketParams:
    chunk = model.chunk_bytes(spec.chunk_tokens)
    quota = int(capacity_bytes * spec.quota_share) // PAGE_BYTES
    high = int(quota * spec.high_watermark) if spec.evict != "none" else quota
    least = min(spec.bucket_bytes, spec.bucket_keys * (chunk + spec.key_bytes)) // 2
    need_room(high * PAGE_BYTES, max(spec.bucket_bytes, chunk), f"{spec.layout} with one bucket")
    objects = capacity_bytes // chunk + 4 * spec.bucket_keys + 65536
    if objects >= 2**31:
        raise UsageError(f"{objects} objects are more than this model can index")
    return BucketParams(
        buckets=capacity_bytes // max(1, least) + 8,
        objects=objects,
        bucket_bytes=spec.bucket_bytes,
        bucket_keys=spec.bucket_keys,
        record_key_bytes=spec.key_bytes,
        entry_bytes=spec.entry_bytes,
        chunk_bytes=chunk,
        state_bytes=model.state_bytes,
        heartbeat_s=spec.heartbeat_s,
        evicts=spec.evict != "none",
        lru=spec.evict == "lru",
        high=high,
        low=int(quota * spec.low_watermark),
        load_streams=spec.load_streams,
    )


def _offset_params(spec: MooncakeOffset, capacity_bytes: int, model: ModelKv) -> OffsetParams:
    chunk = pages(model.chunk_bytes(spec.chunk_tokens)) // PAGE_BYTES
    total = capacity_bytes // PAGE_BYTES
    need_room(capacity_bytes, 2 * (chunk + 1) * PAGE_BYTES, f"{spec.layout} with two records")
    records = total // (chunk + 1) + 1
    if records >= 2**30:
        raise UsageError(f"{records} records are more than this model can index")
    return OffsetParams(
        records=records,
        total_pages=total,
        chunk_pages=chunk,
        state_pages=pages(model.state_bytes) // PAGE_BYTES,
        evicts=spec.evict != "none",
        high=int(total * spec.high_watermark),
        low=int(total * spec.low_watermark),
        threads=spec.threads,
    )
