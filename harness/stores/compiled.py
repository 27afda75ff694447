"""The part of a store that does not depend on its layout: batches in, counted ops out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.ops import PAGE_BYTES
from harness.stores.chunks import chunk_keys
from harness.stores.models import ModelKv
from harness.stores.ops import OpArray, empty_ops
from harness.stores.requests.form import Request, RequestBatch
from harness.stores.tally import Tally


def pages(size_bytes: int) -> int:
    """``size_bytes`` rounded up to whole pages."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


class CompiledStore(ABC):
    """Base of the stores whose life is a compiled function over a batch.

    fixed_buffers: whether I/O is from buffers registered with a ring. buffered: whether it goes
    through the page cache.
    """

    fixed_buffers = False
    buffered = False

    def __init__(self, name: str, capacity_bytes: int, model: ModelKv, chunk_tokens: int) -> None:
        self.name, self.capacity_bytes, self.model = name, capacity_bytes, model
        self.chunk_tokens = chunk_tokens
        self._tally = Tally()
        self._params: Any = None
        self._state: Any = None

    @property
    def arrays(self) -> tuple[Any, Any]:
        """The layout's parameters and state, for kernels that place objects of others' choice."""
        return self._params, self._state

    @property
    @abstractmethod
    def streams(self) -> int:
        """Bound of the ``stream`` of the store's ops."""

    @property
    @abstractmethod
    def largest_op_bytes(self) -> int:
        """Bound of the length of the store's ops."""

    @abstractmethod
    def _room(self, batch: RequestBatch, chunks: int) -> int:
        """Ops that a batch can cause at most."""

    @abstractmethod
    def _serve(
        self, ops: OpArray, batch: RequestBatch, starts: NDArray[np.int64],
        keys: NDArray[np.uint64], reads: bool,
    ) -> int:  # fmt: skip
        """Fill ``ops`` with what the batch causes; how many."""

    @abstractmethod
    def _report(self) -> dict[str, Any]:
        """What the layout has to say."""

    def serve(self, request: Request) -> OpArray:
        """Ops of one request (see ``base.Store``)."""
        return self.serve_batch(RequestBatch.of([request]))

    def serve_batch(self, batch: RequestBatch, *, reads: bool = True) -> OpArray:
        """Ops of a batch (see ``base.Store``)."""
        starts, keys = chunk_keys(batch, self.chunk_tokens)
        ops = empty_ops(self._room(batch, len(keys)))
        return self._counted(ops[: self._serve(ops, batch, starts, keys, reads)])

    def close(self) -> OpArray:
        """Nothing is held back, nothing is written at the end, unless a layout says so."""
        return empty_ops()

    def report(self) -> dict[str, Any]:
        """What the store did, in counts and bytes."""
        return {
            "store": self.name,
            "capacity_bytes": self.capacity_bytes,
            "issues_discards": False,
            **self._report(),
            **self._tally.report(),
        }

    def _counted(self, ops: OpArray) -> OpArray:
        self._tally.add(ops)
        return ops
