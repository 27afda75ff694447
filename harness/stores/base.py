"""What every store is: requests in, ops out, at any capacity and for a whole life."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from harness.core.errors import UsageError
from harness.core.units import format_size
from harness.stores.ops import OpArray
from harness.stores.requests.form import Request, RequestBatch, RequestSource, take


class Store(Protocol):
    """A KV store as the I/O that it causes.

    ``serve`` and ``serve_batch`` return the calls, in issue order, that the store makes up to the
    time of the last request given: reads of what the request hit, and those writes that its store
    workers have come to by then. What they still hold comes out with later requests or ``close``.
    Times must not go backwards. ``streams`` bounds the ``stream`` of its ops, ``largest_op_bytes``
    their length; ``fixed_buffers`` tells that it does I/O from buffers registered with a ring,
    ``buffered`` that it goes through the page cache.
    ``reads=False`` leaves read ops out (a drive's wear does not need
    them); what is hit, kept and written stays the same.
    """

    @property
    def name(self) -> str: ...
    @property
    def capacity_bytes(self) -> int: ...
    @property
    def streams(self) -> int: ...
    @property
    def largest_op_bytes(self) -> int: ...
    @property
    def fixed_buffers(self) -> bool: ...
    @property
    def buffered(self) -> bool: ...
    def serve(self, request: Request) -> OpArray: ...
    def serve_batch(self, batch: RequestBatch, *, reads: bool = True) -> OpArray: ...
    def close(self) -> OpArray: ...
    def report(self) -> dict[str, Any]: ...


def op_stream(
    store: Store,
    requests: RequestSource | Iterable[RequestBatch],
    *,
    limit: int | None = None,
    reads: bool = True,
) -> Iterator[OpArray]:
    """The store's ops for a request trace, without a device; endless if the trace is.

    ``limit`` counts requests. The last array is what the store writes when it is closed.
    """
    batches = requests.batches() if hasattr(requests, "batches") else requests
    for batch in take(batches, limit):
        ops = store.serve_batch(batch, reads=reads)
        if len(ops):
            yield ops
    rest = store.close()
    if len(rest):
        yield rest


def need_room(capacity_bytes: int, least_bytes: int, what: str) -> None:
    """UsageError if a device of ``capacity_bytes`` cannot hold ``what``."""
    if capacity_bytes < least_bytes:
        raise UsageError(
            f"a device of {format_size(capacity_bytes)} is too small: {what} needs "
            f"{format_size(least_bytes)} ({least_bytes} bytes)",
            fix="take a larger device, or a model with smaller chunks",
        )
