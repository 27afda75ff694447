"""Merging batches that are sorted by time, in constant memory and stably."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def times(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The ``ts_ns`` column."""
    return np.asarray(batch.column("ts_ns").to_numpy())


def is_sorted(ts_ns: npt.NDArray[np.int64]) -> bool:
    """Whether time never goes backwards."""
    return bool(np.all(ts_ns[1:] >= ts_ns[:-1]))


def sort_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` stably sorted by time."""
    ts_ns = times(batch)
    if is_sorted(ts_ns):
        return batch
    return batch.take(pa.array(np.argsort(ts_ns, kind="stable")))


def join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of all rows; dictionaries are unified."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    return table.to_batches()[0] if table.num_rows else batches[0]


class _Stream:
    """One sorted stream with the rows at its front that were not taken yet."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.front: pa.RecordBatch | None = None
        self.ts_ns: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.advance()

    def advance(self) -> None:
        self.front = next((batch for batch in self._batches if batch.num_rows), None)
        if self.front is not None:
            self.ts_ns = times(self.front)

    def take(self, count: int) -> pa.RecordBatch:
        assert self.front is not None
        taken, self.front = self.front.slice(0, count), self.front.slice(count)
        self.ts_ns = self.ts_ns[count:]
        if self.front.num_rows == 0:
            self.advance()
        return taken


def merge_streams(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """All rows of ``streams``, each sorted by time, in time order.

    Equal times come in the order of the streams. One batch a stream is held.
    """
    live = [stream for stream in map(_Stream, streams) if stream.front is not None]
    while live:
        limits = [int(stream.ts_ns[-1]) for stream in live]
        limit = min(limits)
        first = limits.index(limit)
        parts = []
        # Up to the limit every stream's rows are at hand. Of rows at the limit itself, those of
        # later streams must wait: the first stream may have more of that time.
        for position, stream in enumerate(live):
            side = "right" if position <= first else "left"
            count = int(np.searchsorted(stream.ts_ns, limit, side=side))  # type: ignore[call-overload]
            if count:
                parts.append(stream.take(count))
        live = [stream for stream in live if stream.front is not None]
        yield sort_batch(join(parts))
