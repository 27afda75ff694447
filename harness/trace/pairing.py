"""From issue and completion events to one row a request.

An event carries no request identity, so a completion belongs to an open issue of the same
device, sector, length and operation. Where several such issues are open at once (counted as
ambiguous) the newest is taken: if an earlier completion was lost, this keeps later latencies
right, and where none was lost the latencies of the group keep their sum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.trace.columns import op_codes
from harness.trace.formats.base import ISSUE
from harness.trace.open_issues import OpenIssues
from harness.trace.schema import SCHEMA

HELD_ROWS = 1 << 20
"""Rows that wait for completions; an issue that is further back is given up as lost."""


@dataclass
class PairingCounts:
    """What pairing found: issues never completed, completions never issued, unclear pairs."""

    issues: int = 0
    unfinished: int = 0
    orphans: int = 0
    ambiguous: int = 0

    def notes(self) -> list[str]:
        """Sentences for the trace's metadata."""
        found = []
        if self.orphans:
            found.append(
                f"{self.orphans} completions without an issue dropped (issued before the start, "
                "or the issue was lost)"
            )
        if self.ambiguous:
            found.append(
                f"{self.ambiguous} latencies are ambiguous: an identical request came meanwhile "
                "(the newest is paired first)"
            )
        return found


class _Held:
    """Issues of one batch with what is known of their completions."""

    def __init__(self, batch: pa.RecordBatch, first: int) -> None:
        self.batch = batch
        self.first = first
        self.latency_ns = np.full(batch.num_rows, -1, np.int64)
        self.error = np.zeros(batch.num_rows, np.int32)
        self.open = batch.num_rows

    def finish(self) -> pa.RecordBatch:
        columns = {name: self.batch.column(name) for name in SCHEMA.names}
        columns["latency_ns"] = pa.array(self.latency_ns, mask=self.latency_ns < 0)
        columns["error"] = pa.array(self.error)
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=SCHEMA)


def pair_events(
    batches: Iterator[pa.RecordBatch], counts: PairingCounts, held_rows: int = HELD_ROWS
) -> Iterator[pa.RecordBatch]:
    """Event batches in time order -> batches of requests in issue order with latencies.

    ``counts`` is filled on the way. At most ``held_rows`` requests and one batch are held.
    """
    held: deque[_Held] = deque()
    flying = OpenIssues()
    for batch in batches:
        event = batch.column("event").to_numpy()
        issued = np.flatnonzero(event == ISSUE)
        row = np.full(len(event), -1, np.int64)
        row[issued] = counts.issues + np.arange(len(issued))
        if len(issued):
            held.append(_Held(batch.take(pa.array(issued)), counts.issues))
            counts.issues += len(issued)
        forget = held[0].first if held else counts.issues
        _record(held, *_pairs(flying, batch, row, forget))
        waiting = counts.issues - held[0].first if held else 0
        while held and (held[0].open == 0 or waiting > held_rows):
            done = held.popleft()
            waiting -= done.batch.num_rows
            counts.unfinished += done.open
            yield done.finish()
    for done in held:
        counts.unfinished += done.open
        yield done.finish()
    counts.orphans, counts.ambiguous = flying.orphans, flying.ambiguous


def _pairs(
    flying: OpenIssues, batch: pa.RecordBatch, row: npt.NDArray[np.int64], forget: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """(issue number, latency in ns, error) of the requests that complete in ``batch``."""
    ts_ns, lba, size, dev, error = (
        batch.column(name).to_numpy() for name in ("ts_ns", "lba", "bytes", "dev", "error")
    )
    rest = dev.astype(np.uint64) << np.uint64(8) | op_codes(batch.column("op"))
    number, event, latency_ns = flying.follow(ts_ns, lba, size, rest, row, forget)
    return number, latency_ns, error[event]


def _record(
    held: deque[_Held],
    row: npt.NDArray[np.int64],
    latency_ns: npt.NDArray[np.int64],
    error: npt.NDArray[np.int32],
) -> None:
    """Write latencies to the held batches; ``row`` numbers issues from the trace's start."""
    if len(row) == 0:
        return
    firsts = np.array([batch.first for batch in held])
    owner = np.searchsorted(firsts, row, side="right") - 1
    for number in np.unique(owner):
        batch, mine = held[int(number)], owner == number
        at = row[mine] - batch.first
        batch.latency_ns[at] = latency_ns[mine]
        batch.error[at] = error[mine]
        batch.open -= len(at)
