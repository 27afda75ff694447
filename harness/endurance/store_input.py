"""A KV store re-emitted at the drive's size, fresh sessions without end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from harness.core.errors import UsageError
from harness.core.ops import Op
from harness.endurance.arrange import as_commands
from harness.endurance.inputs import Batch, Kind
from harness.stores.ops import CLASS_NAMES, OpArray
from harness.stores.registry import StoreSpec, load_store_spec, make_store
from harness.stores.requests.form import RequestBatch, RequestSource
from harness.stores.requests.load import open_requests

COMMAND_BYTES = 512 << 10
"""Largest command that reaches a drive: 128 segments of 4 KiB, what Linux makes of extents in
fixed buffers and close to the limits of common NVMe drives."""
_PART = 1 << 12
_REQUESTS = 8
"""Requests after which the clock is noted: their writes are a small share of any drive's."""
_ALIGN = 1 << 20
_MOST_IDLE = 100_000
"""Requests without a write after which a store is taken to write nothing any more."""


class StoreInput:
    """A store's writes for a request trace, the store as large as ``store_bytes``.

    A recorded trace starts over with new sessions when it ends. Errors are those of
    ``make_store`` and ``open_requests``.
    """

    kind: Kind = "store"
    endless = True
    has_classes = True

    def __init__(
        self,
        store: str | StoreSpec,
        requests: str,
        model: str,
        store_bytes: int,
        seed: int = 0,
        command_bytes: int = COMMAND_BYTES,
    ) -> None:
        self.spec = load_store_spec(store) if isinstance(store, str) else store
        self.store = store if isinstance(store, str) else self.spec.layout
        self.model, self.seed = model, seed
        self.store_bytes = store_bytes // _ALIGN * _ALIGN
        self.command_bytes = command_bytes
        self.requests: RequestSource = open_requests(requests, seed=seed)
        self.class_names = list(CLASS_NAMES)
        make_store(self.spec, self.store_bytes, model)  # to fail now if it cannot be made

    @property
    def name(self) -> str:
        """Store, requests and model."""
        return f"{self.store} / {self.requests.name} / {self.model}"

    @property
    def labels(self) -> list[str]:
        """What a reader must know: repeated sessions."""
        if self.requests.endless:
            return []
        return ["the request trace starts over with fresh sessions when it ends"]

    @property
    def facts(self) -> dict[str, Any]:
        """What the result says of it."""
        return {
            "store": self.store,
            "chunk_tokens": self.spec.chunk_tokens,
            "requests": self.requests.name,
            "model": self.model,
            "seed": self.requests.seed,
            "store_bytes": self.store_bytes,
            "command_bytes": self.command_bytes,
        }

    def batches(self) -> Iterator[Batch]:
        """The writes and discards of an empty store from its first request on."""
        store = make_store(self.spec, self.store_bytes, self.model)
        tokens = idle = 0
        for requests in self._requests():
            ops = store.serve_batch(requests, reads=False)
            idle = 0 if len(ops) else idle + len(requests)
            if idle >= _MOST_IDLE:
                raise UsageError(
                    f"{self.store} has written nothing for {idle:,} requests: is it full and "
                    "evicts nothing? Then it wears the drive no further",
                    fix="take a store that evicts: harness stores list",
                )
            tokens += int(requests.new_tokens.sum(dtype=np.int64))
            for at in range(0, len(ops), _PART):
                ends = at + _PART >= len(ops)
                clock = float(requests.time_s[-1]) if ends else None
                yield self._batch(ops[at : at + _PART], clock, tokens if ends else 0)
            tokens = 0 if len(ops) else tokens

    def _requests(self) -> Iterator[RequestBatch]:
        for batch in fresh_sessions(self.requests):
            yield from batch.parts(_REQUESTS)

    def _batch(self, ops: OpArray, clock_s: float | None, new_tokens: int) -> Batch:
        ops = ops[ops["op"] != Op.READ]
        plain = Batch(
            ops["offset"].copy(),
            ops["length"].copy(),
            ops["op"].copy(),
            classes=ops["object_class"].copy(),
            clock_s=clock_s,
            new_tokens=new_tokens,
        )
        return as_commands(plain, ops["stream"], self.command_bytes)


def fresh_sessions(source: RequestSource) -> Iterator[RequestBatch]:
    """A request trace again and again; sessions and prefixes of each pass are new ones."""
    epoch, clock, sessions = 0, 0.0, 0
    while True:
        end, most, count = clock, 0, 0
        for batch in source.batches():
            most = max(most, int(batch.session.max(initial=0)))
            if epoch:
                batch = _renamed(batch, epoch, clock, sessions)
            end = max(end, float(batch.time_s[-1]))
            count += len(batch)
            yield batch
        if count == 0:
            raise UsageError(f"{source.name} holds no request")
        epoch, clock, sessions = epoch + 1, end, sessions + most + 1


def _renamed(batch: RequestBatch, epoch: int, clock_s: float, sessions: int) -> RequestBatch:
    salt = np.uint64(epoch * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
    return replace(
        batch,
        time_s=batch.time_s + clock_s,
        session=(batch.session + np.uint32(sessions)).astype(np.uint32),
        ids=batch.ids ^ salt,
    )
