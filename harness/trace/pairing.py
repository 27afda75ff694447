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
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from harness.trace.columns import op_codes
from harness.trace.formats.base import ISSUE
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
    open_issues = _events(None)
    for batch in batches:
        event = batch.column("event").to_numpy()
        events = _events(batch)
        issued = np.flatnonzero(event == ISSUE)
        events["row"] = -1
        events["row"][issued] = counts.issues + np.arange(len(issued))
        if len(issued):
            held.append(_Held(batch.take(pa.array(issued)), counts.issues))
            counts.issues += len(issued)
        open_issues = _match(open_issues, events, held, counts)
        rows = counts.issues - held[0].first if held else 0
        while held and (held[0].open == 0 or rows > held_rows):
            done = held.popleft()
            rows -= done.batch.num_rows
            if done.open:
                counts.unfinished += done.open
                open_issues = open_issues[open_issues["row"] >= done.first + done.batch.num_rows]
            yield done.finish()
    for done in held:
        counts.unfinished += done.open
        yield done.finish()


_EVENT = np.dtype(
    [
        ("key", "<u8"),
        ("lba", "<u8"),
        ("bytes", "<u8"),
        ("ts_ns", "<i8"),
        ("row", "<i8"),
        ("dev", "<u4"),
        ("error", "<i4"),
        ("op", "u1"),
        ("covered", "?"),
    ]
)


def _events(batch: pa.RecordBatch | None) -> npt.NDArray[Any]:
    events = np.zeros(0 if batch is None else batch.num_rows, _EVENT)
    if batch is not None:
        for name in ("lba", "bytes", "ts_ns", "dev", "error"):
            events[name] = batch.column(name).to_numpy()
        events["op"] = op_codes(batch.column("op"))
        events["key"] = _mix(events)
    return events


def _mix(events: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """A 64-bit key of what makes two events belong together (its parts are compared too)."""
    key = events["lba"] * np.uint64(0x9E3779B97F4A7C15)
    key ^= (events["bytes"] + np.uint64(1)) * np.uint64(0xC2B2AE3D27D4EB4F)
    key ^= (events["dev"].astype(np.uint64) << np.uint64(8) | events["op"]) * np.uint64(
        0x165667B19E3779F9
    )
    return key


def _match(
    waiting: npt.NDArray[Any],
    events: npt.NDArray[Any],
    held: deque[_Held],
    counts: PairingCounts,
) -> npt.NDArray[Any]:
    """Match the completions among ``events``; returns the issues that are still open."""
    together = np.concatenate([waiting, events])
    partner = np.full(len(together), -1, np.int64)
    if np.any(events["row"] < 0):
        order = np.argsort(np.ascontiguousarray(together["key"]), kind="stable")
        orphans, ambiguous = _pair(together, order, partner)
        counts.orphans += orphans
        counts.ambiguous += ambiguous
        matched = np.flatnonzero(partner >= 0)
        completion = partner[matched]
        ts_ns = together["ts_ns"]
        latency_ns = ts_ns[completion] - ts_ns[matched]
        _record(held, together["row"][matched], latency_ns, together["error"][completion])
    return together[np.flatnonzero((together["row"] >= 0) & (partner < 0))]


def _record(
    held: deque[_Held],
    row: npt.NDArray[np.int64],
    latency_ns: npt.NDArray[np.int64],
    error: npt.NDArray[np.int32],
) -> None:
    """Write latencies to the held batches; ``row`` numbers issues from the trace's start."""
    order = np.argsort(row)
    row, latency_ns, error = row[order], latency_ns[order], error[order]
    bounds = np.searchsorted(row, [batch.first for batch in held] + [np.iinfo(np.int64).max])
    for batch, start, end in zip(held, bounds[:-1], bounds[1:], strict=True):
        if start < end:
            at = row[start:end] - batch.first
            batch.latency_ns[at] = latency_ns[start:end]
            batch.error[at] = error[start:end]
            batch.open -= int(end - start)


@njit(cache=True, nogil=True)
def _same(a: Any, b: Any) -> bool:
    return (
        a["key"] == b["key"]
        and a["lba"] == b["lba"]
        and a["bytes"] == b["bytes"]
        and a["dev"] == b["dev"]
        and a["op"] == b["op"]
    )


@njit(cache=True, nogil=True)
def _pair(events: Any, order: Any, partner: Any) -> tuple[int, int]:
    """Fill ``partner`` (completion of each issue); returns (orphans, ambiguous pairs).

    ``order`` sorts by key, in time order within one; each group is matched with a stack. A pair
    is ambiguous when an identical issue came between its two events.
    """
    below = np.full(len(events), -1, np.int64)
    top, previous, orphans, ambiguous = -1, -1, 0, 0
    for position in order:
        if previous >= 0 and not _same(events[previous], events[position]):
            top = -1
        if events[position]["row"] >= 0:
            if top >= 0:
                events[top]["covered"] = True
            below[position] = top
            top = position
        elif top >= 0:
            partner[top] = position
            ambiguous += events[top]["covered"]
            top = below[top]
        else:
            orphans += 1
        previous = position
    return orphans, ambiguous
