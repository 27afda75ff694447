"""Stores of one file an object: ``lmcache-local-disk``, ``sglang-file`` and ``vllm-fs``.

What differs is the object (a chunk, an engine page, an engine block), how many threads write and
read, the cap and what is reclaimed. All write a file by one call and read it by one. The fixed
states of a hybrid model are files of their own. SGLang's calls go through the page cache, and so
reach the device later and in other pieces; the ops are its calls.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from harness.core.config import Size, Strict
from harness.core.errors import UsageError
from harness.core.ops import PAGE_BYTES
from harness.stores.base import need_room
from harness.stores.compiled import CompiledStore, pages
from harness.stores.file_kernel import MOST_EXTENTS, F, FileParams, new_files, serve
from harness.stores.models import ModelKv
from harness.stores.ops import OpArray
from harness.stores.requests.form import RequestBatch


class FileLayout(Strict):
    """Configuration. ``cap_bytes`` null is ``cap_share`` of what the file system can hold.

    ``evict``: none (the real default of SGLang and vLLM), one-by-one, or burst, which goes down to
    ``burst_to`` of the cap.
    """

    layout: Literal["lmcache-local-disk", "sglang-file", "vllm-fs"]
    description: str = ""
    chunk_tokens: PositiveInt
    cap_bytes: Size | None = None
    cap_share: float = Field(1.0, gt=0, le=1)
    evict: Literal["none", "one-by-one", "burst"]
    burst_to: float = Field(0.9, gt=0, le=1)
    store_threads: PositiveInt
    load_threads: PositiveInt


class FileStore(CompiledStore):
    """Files on a file system over a device of ``capacity_bytes``, for one model."""

    def __init__(self, spec: FileLayout, capacity_bytes: int, model: ModelKv) -> None:
        super().__init__(spec.layout, capacity_bytes, model, spec.chunk_tokens)
        self.spec = spec
        self.buffered = spec.layout == "sglang-file"
        self._params = _params(spec, capacity_bytes, model)
        self._state = new_files(self._params, capacity_bytes)
        free = int(self._state.space.ints[2])
        cap = min(self._params.cap_pages, int(spec.cap_share * free))
        self._params = self._params._replace(cap_pages=cap)
        if cap < self._params.chunk_pages:
            raise UsageError(f"{spec.layout}: the cap of {cap * PAGE_BYTES} bytes holds no file")

    @property
    def streams(self) -> int:
        return self.spec.store_threads + self.spec.load_threads

    @property
    def largest_op_bytes(self) -> int:
        return max(self._params.chunk_pages, self._params.state_pages) * PAGE_BYTES

    def _room(self, batch: RequestBatch, chunks: int) -> int:
        return MOST_EXTENTS * (chunks + 2 * len(batch))

    def _serve(
        self, ops: OpArray, batch: RequestBatch, starts: NDArray[np.int64],
        keys: NDArray[np.uint64], reads: bool,
    ) -> int:  # fmt: skip
        return int(
            serve(self._params, self._state, ops, batch.session, batch.turn, starts, keys, reads)
        )

    def _report(self) -> dict[str, Any]:
        ints = self._state.ints
        files = self._params.files - int(ints[F.FREE_ROWS])
        return {
            "cap_bytes": self._params.cap_pages * PAGE_BYTES,
            "used_bytes": int(ints[F.USED_PAGES]) * PAGE_BYTES,
            "touched_bytes": int(self._state.touched.sum()) * 256 * PAGE_BYTES,
            "files": files,
            "extents_per_file": int(ints[F.EXTENTS]) / files if files else 0.0,
            "requests": int(ints[F.REQUESTS]),
            "chunks_wanted": int(ints[F.WANTED]),
            "chunks_hit": int(ints[F.HIT]),
            "chunks_lost_to_missing_state": int(ints[F.CUT_BY_STATE]),
            "evictions": int(ints[F.BURSTS] or ints[F.EVICTED]),
            "evicted": int(ints[F.EVICTED]),
            "failed_puts": int(ints[F.FAILED]),
        }


def _params(spec: FileLayout, capacity_bytes: int, model: ModelKv) -> FileParams:
    chunk = pages(model.chunk_bytes(spec.chunk_tokens)) // PAGE_BYTES
    need_room(capacity_bytes, 64 << 20, f"{spec.layout} on a file system")
    files = capacity_bytes // (chunk * PAGE_BYTES) + 1
    if files >= 2**31:
        raise UsageError(f"{files} files are more than this model can index")
    total = capacity_bytes // PAGE_BYTES
    return FileParams(
        files=files,
        chunk_pages=chunk,
        state_pages=pages(model.state_bytes) // PAGE_BYTES,
        cap_pages=min(total, (spec.cap_bytes or capacity_bytes) // PAGE_BYTES),
        evicts=spec.evict != "none",
        burst=spec.burst_to if spec.evict == "burst" else 0.0,
        store_streams=spec.store_threads,
        load_streams=spec.load_threads,
    )
