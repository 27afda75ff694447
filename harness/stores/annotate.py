"""Joining a block trace to the log of the store that caused it: which request moved which object.

A request belongs to the call that was in flight when it was issued, went the same way and covers
its first byte. Where the store's calls went through the page cache, a write reaches the device
later: it belongs to the last call that wrote its first page. What no call covers (file-system
traffic, other programs) stays without a class and is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.core.ops import PAGE_BYTES, SECTOR_BYTES, Op
from harness.stores.attribution import Attribution
from harness.stores.jit import kernel
from harness.stores.object_log import BUFFERED_KEY, LOG_SCHEMA
from harness.stores.ops import CLASS_NAMES
from harness.trace.parquet import TraceWriter, open_trace

ANNOTATED = ("object_class", "session", "turn", "layer", "key")
SLACK_NS = 2_000_000
"""A store reads its clock before it submits and after it has reaped; more than enough for both."""

_WRITE, _PAGE = int(Op.WRITE), np.uint64(PAGE_BYTES)
_LEAST_PAIRS = 8
_IN_FLIGHT = 4096


@dataclass(frozen=True)
class Annotation:
    """What the join found. ``across`` requests reach beyond the call of their first byte."""

    rows: int
    matched: int
    across: int
    offset_ns: int
    offset_from: str
    by_class: dict[str, dict[str, Any]]

    @property
    def unmatched(self) -> int:
        """Requests that no call explains."""
        return self.rows - self.matched

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "requests": self.rows,
            "matched": self.matched,
            "unmatched": self.unmatched,
            "across_calls": self.across,
            "clock_offset_ns": self.offset_ns,
            "clock_offset_from": self.offset_from,
            "by_class": self.by_class,
        }


class _Calls:
    """The log's calls as arrays, by issue time."""

    def __init__(self, path: Path) -> None:
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowInvalid) as error:
            raise UsageError(f"cannot read {path}: {error}") from error
        missing = [name for name in LOG_SCHEMA.names if name not in table.column_names]
        if missing:
            raise UsageError(f"{path} is no log of objects: no column {', '.join(missing)}")
        self.buffered = BUFFERED_KEY in (table.schema.metadata or {})
        table = table.sort_by("issue_ns").unify_dictionaries().combine_chunks()
        self.column = {
            name: table.column(name).to_numpy()
            for name in LOG_SCHEMA.names
            if name != "object_class"
        }
        names = table.column("object_class").to_pylist()
        number = {name: code for code, name in enumerate(CLASS_NAMES)}
        self.object_class = np.array([number[name] for name in names], np.int8)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.column[name]


def annotate(trace_path: Path, log_path: Path, out_path: Path) -> Annotation:
    """Write ``trace_path`` with the object of every request to ``out_path``.

    UsageError for a log or trace that is none, or if nothing of the one is in the other.
    """
    trace = open_trace(trace_path)
    calls = _Calls(log_path)
    offset_ns, source = _offset(trace_path, calls)
    joiner = _Joiner(calls, offset_ns)
    attribution = Attribution()
    optional = tuple(name for name in trace.columns if name not in ANNOTATED)
    kept = tuple(name for name in optional if name in _optional_names())
    meta = trace.meta.transformed(f"annotate {log_path.name}")
    with TraceWriter(out_path, meta, (*kept, *ANNOTATED), durable=False) as writer:
        for batch in trace.batches(list(optional)):
            found = joiner.join(batch)
            attribution.add(batch, np.where(found >= 0, calls.object_class[found], -1))
            writer.write(_with_objects(batch, calls, found))
    if trace.rows and joiner.matched == 0:
        raise UsageError(f"no request of {trace_path} belongs to a call of {log_path}")
    return Annotation(
        trace.rows, joiner.matched, joiner.across, offset_ns, source, attribution.report()
    )


def _optional_names() -> frozenset[str]:
    from harness.trace.schema import OPTIONAL

    return frozenset(OPTIONAL)


class _Joiner:
    """Sweeps calls and requests by time."""

    def __init__(self, calls: _Calls, offset_ns: int) -> None:
        self._calls, self._offset = calls, offset_ns
        self._flying = np.zeros(_IN_FLIGHT, np.int64)
        self._state = np.zeros(2, np.int64)
        # Last call that wrote each page, for a log of buffered calls; empty for one of direct ones.
        end = int((calls["offset"] + calls["length"]).max(initial=0)) if calls.buffered else 0
        self._writer = np.full(-(-end // PAGE_BYTES), -1, np.int64)
        self.matched = self.across = 0

    def join(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """Number of the call of each request, -1 where there is none."""
        times = batch.column("ts_ns").to_numpy() + self._offset
        start = batch.column("lba").to_numpy() * np.uint64(SECTOR_BYTES)
        size = batch.column("bytes").to_numpy()
        ops = op_codes(batch)
        found = np.empty(len(times), np.int64)
        self._grow(times[-1] if len(times) else 0)
        c = self._calls
        self.across += _sweep(
            times, start, size, ops, c["issue_ns"], c["done_ns"], c["offset"], c["length"],
            c["op"], self._flying, self._state, self._writer, found,
        )  # fmt: skip
        self.matched += int(np.count_nonzero(found >= 0))
        return found

    def _grow(self, until_ns: int) -> None:
        coming = int(np.searchsorted(self._calls["issue_ns"], until_ns + SLACK_NS))
        need = int(self._state[1]) + coming - int(self._state[0])
        if need > len(self._flying):
            grown = np.zeros(2 * need, np.int64)
            grown[: len(self._flying)] = self._flying
            self._flying = grown


def op_codes(batch: pa.RecordBatch) -> NDArray[np.int8]:
    """``core.ops.Op`` of each row of a trace batch."""
    column = batch.column("op")
    letters = column.dictionary.to_pylist()
    codes = np.array([{"R": Op.READ, "W": Op.WRITE}.get(x, Op.OTHER) for x in letters], np.int8)
    return codes[column.indices.to_numpy()]


@kernel
def _sweep(
    times: NDArray[np.int64], start: NDArray[np.uint64], size: NDArray[np.uint64],
    ops: NDArray[np.int8], issue: NDArray[np.int64], done: NDArray[np.int64],
    offset: NDArray[np.uint64], length: NDArray[np.uint64], call_op: NDArray[np.uint8],
    flying: NDArray[np.int64], state: NDArray[np.int64], writer: NDArray[np.int64],
    found: NDArray[np.int64],
) -> int:  # fmt: skip
    """Fill ``found``; requests that reach beyond their call. The newest fitting call is taken."""
    across = 0
    following, held = state[0], state[1]
    for r in range(len(times)):
        while following < len(issue) and issue[following] <= times[r] + SLACK_NS:
            flying[held] = following
            held += 1
            if len(writer) and call_op[following] == _WRITE:
                first = np.int64(offset[following] // _PAGE)
                end = offset[following] + length[following] + _PAGE - np.uint64(1)
                writer[first : np.int64(end // _PAGE)] = following
            following += 1
        kept = 0
        found[r] = -1
        for i in range(held):
            call = flying[i]
            if done[call] + SLACK_NS < times[r]:
                continue
            flying[kept] = call
            kept += 1
            inside = offset[call] <= start[r] < offset[call] + length[call]
            if inside and call_op[call] == ops[r]:
                found[r] = call
        held = kept
        page = np.int64(start[r] // _PAGE)
        if found[r] < 0 and ops[r] == _WRITE and page < len(writer):
            found[r] = writer[page]
        call = found[r]
        if call >= 0 and start[r] + size[r] > offset[call] + length[call]:
            across += 1
    state[0], state[1] = following, held
    return across


def _with_objects(batch: pa.RecordBatch, calls: _Calls, found: NDArray[np.int64]) -> pa.RecordBatch:
    """The batch with the optional columns of the calls found."""
    from harness.trace.schema import OPTIONAL

    none = found < 0
    columns: dict[str, pa.Array] = {name: batch.column(name) for name in batch.schema.names}
    codes = pa.array(np.where(none, 0, calls.object_class[found]).astype(np.int8), mask=none)
    columns["object_class"] = pa.DictionaryArray.from_arrays(codes, pa.array(CLASS_NAMES))
    for name in ANNOTATED[1:]:
        columns[name] = pa.array(calls[name][found], mask=none).cast(OPTIONAL[name])
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _offset(trace_path: Path, calls: _Calls) -> tuple[int, str]:
    """What to add to the trace's times to get the log's clock, and where that comes from.

    The recorder's own clock, if the trace has it; else the median over the pairs of a call and the
    request that begins where it begins, the n-th with the n-th.
    """
    trace = open_trace(trace_path)
    if trace.meta.clock_zero_ns is not None:
        return trace.meta.clock_zero_ns, "recorder"
    columns: Mapping[str, list[NDArray[Any]]] = {"ts": [], "start": [], "op": []}
    for batch in trace.batches(["ts_ns", "op", "lba"]):
        columns["ts"].append(batch.column("ts_ns").to_numpy())
        columns["start"].append(batch.column("lba").to_numpy() * np.uint64(SECTOR_BYTES))
        columns["op"].append(op_codes(batch))
    if not columns["ts"]:
        return 0, "empty trace"
    place = _place(np.concatenate(columns["start"]), np.concatenate(columns["op"]))
    wanted = _place(calls["offset"], calls["op"].astype(np.int8))
    _, mine, theirs = np.intersect1d(
        _nth(place), _nth(wanted), assume_unique=True, return_indices=True
    )
    if len(mine) < min(_LEAST_PAIRS, len(wanted)):
        raise UsageError(f"{trace_path} and the log of objects have hardly a call in common")
    gaps = calls["issue_ns"][theirs] - np.concatenate(columns["ts"])[mine]
    return int(np.median(gaps)), "matching calls"


def _place(start: NDArray[np.uint64], op: NDArray[np.int8]) -> NDArray[np.uint64]:
    """One number for a page-aligned place and a direction."""
    return (start // np.uint64(SECTOR_BYTES)) * np.uint64(8) + op.astype(np.uint64)


def _nth(place: NDArray[np.uint64]) -> NDArray[np.void]:
    """(place, how often it came before) of each entry, as one sortable record."""
    order = np.argsort(place, kind="stable")
    sorted_ = place[order]
    fresh = np.concatenate(([True], sorted_[1:] != sorted_[:-1]))
    first = np.flatnonzero(fresh)
    rank = np.arange(len(place)) - np.repeat(first, np.diff(np.append(first, len(place))))
    records = np.empty(len(place), [("place", "<u8"), ("rank", "<i8")])
    records["place"][order], records["rank"][order] = sorted_, rank
    return records
