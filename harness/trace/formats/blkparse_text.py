"""Writing blkparse text: an issue (D) and a completion (C) line a request, in time order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.core.ops import SECTOR_BYTES, Op
from harness.trace.columns import latencies, op_codes
from harness.trace.formats.base import Writing
from harness.trace.formats.csvtext import CsvOut, seconds_text
from harness.trace.rwbs import format_rwbs

_DTYPE = np.dtype(
    [
        ("ts_ns", "<i8"),
        ("completion", "?"),
        ("op", "u1"),
        ("flags", "<u2"),
        ("lba", "<u8"),
        ("count", "<u8"),
        ("dev", "<u4"),
        ("pid", "<i4"),
        ("comm", "<i4"),
        ("error", "<i4"),
    ]
)


def write(batches: Iterator[pa.RecordBatch], path: Path, writing: Writing) -> None:
    """Write ``batches`` as blkparse prints them (CPU 0); completions wait until their time."""
    names: list[str] = []
    waiting = np.zeros(0, _DTYPE)
    sequence = 0
    with CsvOut(path, pa.schema([("line", pa.string())]), header=False) as out:
        for batch in batches:
            issues = _issues(batch, names)
            done = latencies(batch.column("latency_ns"))
            completions = issues[done >= 0]
            completions["ts_ns"] += done[done >= 0]
            completions["completion"] = True
            events = np.concatenate([waiting, issues, completions])
            events = events[np.argsort(events["ts_ns"], kind="stable")]
            ready = np.searchsorted(events["ts_ns"], issues["ts_ns"][-1], side="left")
            ready = max(int(ready), _issues_end(events))
            out.lines(_lines(events[:ready], names, sequence))
            sequence, waiting = sequence + ready, events[ready:]
        out.lines(_lines(waiting, names, sequence))


def _issues_end(events: npt.NDArray[Any]) -> int:
    """Events up to the last issue: everything before it is complete."""
    issued = np.flatnonzero(~events["completion"])
    return int(issued[-1]) + 1 if len(issued) else 0


def _issues(batch: pa.RecordBatch, names: list[str]) -> npt.NDArray[Any]:
    events = np.zeros(batch.num_rows, _DTYPE)
    for name in ("ts_ns", "flags", "lba", "dev", "error"):
        events[name] = batch.column(name).to_numpy()
    events["op"] = op_codes(batch.column("op"))
    size = batch.column("bytes").to_numpy()
    events["count"] = (size + np.uint64(SECTOR_BYTES - 1)) // np.uint64(SECTOR_BYTES)
    events["pid"] = batch.column("pid").fill_null(0).to_numpy(zero_copy_only=False)
    comm = batch.column("comm").cast(pa.string()).fill_null("").dictionary_encode()
    known = []
    for name in comm.dictionary.to_pylist():
        if name not in names:
            names.append(name)
        known.append(names.index(name))
    events["comm"] = np.array(known, np.int32)[comm.indices.to_numpy()] if known else 0
    return events


def _lines(events: npt.NDArray[Any], names: list[str], sequence: int) -> pa.Array:
    dev = _each(events["dev"], lambda value: f"{int(value) >> 20:3d},{int(value) & 0xFFFFF:<3d}")
    number = pa.array(np.arange(sequence + 1, sequence + 1 + len(events))).cast(pa.string())
    time = pc.utf8_lpad(seconds_text(events["ts_ns"]), 15, " ")
    pid = np.where(events["completion"], 0, events["pid"])
    columns = [
        pc.binary_join_element_wise(dev, " 0", ""),
        pc.utf8_lpad(number, 8, " "),
        time,
        pc.utf8_lpad(pa.array(pid).cast(pa.string()), 5, " "),
        pa.array([" D", " C"]).take(pa.array(events["completion"].astype(np.int8))),
        _rwbs(events),
        _extent(events),
        _word(events, names),
    ]
    return pc.binary_join_element_wise(*columns, " ")


def _each(values: npt.NDArray[Any], text: Any) -> pa.Array:
    """A text for each value, made once for each distinct one."""
    distinct, index = np.unique(values, return_inverse=True)
    return pa.array([text(value) for value in distinct], pa.string()).take(pa.array(index))


def _rwbs(events: npt.NDArray[Any]) -> pa.Array:
    both = events["op"].astype(np.uint32) << np.uint32(16) | events["flags"]
    return _each(both, lambda value: f"{format_rwbs(Op(int(value) >> 16), int(value) & 0xFFFF):>3}")


def _extent(events: npt.NDArray[Any]) -> pa.Array:
    sector, count = (pa.array(events[name]).cast(pa.string()) for name in ("lba", "count"))
    extent = pc.binary_join_element_wise(sector, count, " + ")
    return pc.if_else(pa.array(events["count"] > 0), extent, "")


def _word(events: npt.NDArray[Any], names: list[str]) -> pa.Array:
    issuer = pa.array([f"[{name}]" for name in names] or [""], pa.string())
    outcome = _each(-events["error"], lambda value: f"[{value}]")
    return pc.if_else(
        pa.array(events["completion"]), outcome, issuer.take(pa.array(events["comm"]))
    )
