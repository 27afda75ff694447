"""A block trace of a slot store, seen as chunks: which slots were written and read, in what order.

Every write of one header that begins where a slot begins is the header of a chunk, and nothing else
begins there, so header writes give the commit order; reads are chunks from the first request at a
payload's start. Figures are dimensionless where possible, so that runs of different length and
device compare.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.core.ops import PAGE_BYTES, SECTOR_BYTES

FIFTHS = 5
_HEADER = PAGE_BYTES


@dataclass(frozen=True)
class SlotLayout:
    """Where the slots of a store lie."""

    data_start: int
    slot_bytes: int

    @property
    def payload_bytes(self) -> int:
        """A slot less its header."""
        return self.slot_bytes - _HEADER


@dataclass(frozen=True)
class SlotView:
    """What was seen. Slots are numbers in time order; sizes are requests' bytes."""

    layout: SlotLayout
    written: NDArray[np.int64]
    read: NDArray[np.int64]
    write_sizes: NDArray[np.int64]
    read_sizes: NDArray[np.int64]
    header_bytes: int
    payload_written: int
    metadata_bytes: int
    other_ops: int
    depth: NDArray[np.int64]

    @property
    def touched(self) -> int:
        """Distinct slots written."""
        return len(np.unique(self.written))

    def overwrite_factor(self) -> float:
        """Chunks written a slot touched."""
        return len(self.written) / max(1, self.touched)

    def payload_per_header(self) -> float:
        """Payload bytes a header, over a slot's payload: 1 where nothing was lost."""
        return self.payload_written / max(1, len(self.written)) / self.layout.payload_bytes

    def moved_per_header(self) -> float:
        """Chunks read or written a chunk written."""
        return 1 + len(self.read) / max(1, len(self.written))

    def metadata_share(self) -> float:
        """Bytes written outside the slots, over all bytes written."""
        total = self.metadata_bytes + self.header_bytes + self.payload_written
        return self.metadata_bytes / max(1, total)

    def adjacent(self, slots: NDArray[np.int64], fifth: int) -> float:
        """Share of chunks in slot n+1 right after slot n, in the first (0) or last (4) fifth."""
        part = _fifth(slots, fifth)
        return float(np.mean(np.diff(part) == 1)) if len(part) > 1 else 0.0

    def median_jump(self, slots: NDArray[np.int64], fifth: int) -> float:
        """Median distance of neighbours in time, over the slots touched."""
        part = _fifth(slots, fifth)
        if len(part) < 2:
            return 0.0
        return float(np.median(np.abs(np.diff(part)))) / max(1, self.touched)

    def reuse(self) -> tuple[float, float, float]:
        """10th, 50th and 90th percentile of writes a slot touched."""
        counts = np.unique(self.written, return_counts=True)[1]
        if not len(counts):
            return 0.0, 0.0, 0.0
        found = np.percentile(counts, (10, 50, 90))
        return float(found[0]), float(found[1]), float(found[2])

    def top_share(self) -> float:
        """Slots touched over the highest slot touched: 1 where the bump pointer left no hole."""
        return self.touched / (int(self.written.max(initial=0)) + 1)

    def mean_request(self, writes: bool) -> float:
        """Mean bytes of a request for payload."""
        sizes = self.write_sizes if writes else self.read_sizes
        return float(sizes.mean()) if len(sizes) else 0.0

    def commonest(self, writes: bool) -> int:
        """The request size that moved most bytes."""
        sizes = self.write_sizes if writes else self.read_sizes
        if not len(sizes):
            return 0
        values, counts = np.unique(sizes, return_counts=True)
        return int(values[int(np.argmax(values * counts))])

    def busy_depth(self) -> float:
        """Median of the bytes in flight at issue, in payloads; 0 without completions."""
        return float(np.median(self.depth)) / self.layout.payload_bytes if len(self.depth) else 0.0


def _fifth(slots: NDArray[np.int64], fifth: int) -> NDArray[np.int64]:
    size = len(slots) // FIFTHS
    return slots[fifth * size : (fifth + 1) * size]


def view_slots(batches: Iterable[pa.RecordBatch], layout: SlotLayout) -> SlotView:
    """Look at a trace (columns ts_ns, op, lba, bytes, latency_ns) as chunks of ``layout``.

    UsageError if no header of the layout is in it.
    """
    columns: dict[str, list[NDArray[Any]]] = {
        name: [] for name in ("ts_ns", "op", "start", "bytes", "end_ns")
    }
    for batch in batches:
        letters = np.array(batch.column("op").dictionary.to_pylist())
        times = batch.column("ts_ns").to_numpy()
        latency = batch.column("latency_ns").to_numpy(zero_copy_only=False).astype(float)
        columns["ts_ns"].append(times)
        columns["op"].append(letters[batch.column("op").indices.to_numpy()])
        columns["start"].append(batch.column("lba").to_numpy().astype(np.int64) * SECTOR_BYTES)
        columns["bytes"].append(batch.column("bytes").to_numpy().astype(np.int64))
        columns["end_ns"].append(np.where(np.isnan(latency), -1, times + np.nan_to_num(latency)))
    table = {name: np.concatenate(parts) for name, parts in columns.items() if parts}
    if not table:
        raise UsageError("the trace is empty")
    return _view(table, layout)


def _view(table: dict[str, NDArray[Any]], layout: SlotLayout) -> SlotView:
    start, size, op = table["start"], table["bytes"], table["op"]
    write, read = op == "W", op == "R"
    inside = (start - layout.data_start) % layout.slot_bytes
    slot = (start - layout.data_start) // layout.slot_bytes
    data = start >= layout.data_start
    header = write & data & (inside == 0) & (size == _HEADER)
    payload = write & data & ~header
    first_read = read & data & (inside == _HEADER)
    if not header.any():
        raise UsageError(
            f"no header of slots of {layout.slot_bytes} bytes from {layout.data_start} on"
        )
    return SlotView(
        layout=layout,
        written=slot[header],
        read=slot[first_read],
        write_sizes=size[payload],
        read_sizes=size[read & data],
        header_bytes=int(size[header].sum()),
        payload_written=int(size[payload].sum()),
        metadata_bytes=int(size[write & ~data].sum()),
        other_ops=int(np.count_nonzero(~write & ~read)),
        depth=_in_flight(table),
    )


def _in_flight(table: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Bytes in flight at each issue, the new request included; empty without completions."""
    known = table["end_ns"] >= 0
    if not known.any():
        return np.empty(0, np.int64)
    begin = table["ts_ns"][known]
    order = np.argsort(table["end_ns"][known], kind="stable")
    ends = table["end_ns"][known][order]
    done = np.concatenate(([0], np.cumsum(table["bytes"][known][order])))
    issued = np.cumsum(table["bytes"][known])
    return issued - done[np.searchsorted(ends, begin, side="right")]
