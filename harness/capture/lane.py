"""One kind of events on its way into one trace file: requests, or bios."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.capture import nvme
from harness.capture.comm import CommTable
from harness.capture.pairing import Pairer
from harness.capture.records import Decoder, Kind
from harness.capture.rows import Rows
from harness.core.ops import OP_LETTERS, Op
from harness.trace.parquet import TraceWriter
from harness.trace.schema import TraceMeta, utc

_OPTIONAL = ("queue_depth", "source")
_PLACEMENT = "placement_id"
_SOURCES = ["rq", "bio", "nvme"]

_NO_SECTOR = np.uint64((1 << 56) - 1)
_KINDS = {"rq": (Kind.ISSUE, Kind.COMPLETE), "bio": (Kind.BIO_ISSUE, Kind.BIO_COMPLETE)}


class Lane:
    """Pairs events of one ``source`` ("rq" or "bio") and writes them to ``out``.

    ``issues_only`` for bios that end inside requests: the kernel tells nothing of their end.
    ``clock`` pairs "monotonic_ns", the clock of the events, with "realtime_ns" of one moment, so
    that steps of the latter during the recording change nothing. A finished segment of the trace
    is written at least every ``segment_s``.
    """

    def __init__(
        self,
        source: str,
        decoder: Decoder,
        out: Path,
        meta: TraceMeta,
        *,
        clock: Mapping[str, int],
        segment_s: float,
        with_nvme: bool = False,
        issues_only: bool = False,
    ) -> None:
        self.source = source
        self._clock = clock
        self._segment_s = segment_s
        self._decoder = decoder
        self._comm = CommTable()
        issue, complete = _KINDS[source]
        self._issues_only = issues_only
        # The bio of a completion has moved on, and without BTF sectors are what pairing goes by.
        checked = source == "rq" and decoder.blk_status
        fixed = decoder.op_of != Op.OTHER if checked else None
        self.pairer = Pairer(
            issue, None if issues_only else complete, self._comm, fixed, with_nvme=with_nvme
        )
        self._with_nvme = with_nvme
        placement = (_PLACEMENT,) if with_nvme else ()
        self.writer = TraceWriter(out, meta, (*_OPTIONAL, *placement))
        self._start_ns: int | None = None
        self._last_flush_s = time.monotonic()
        self._requests = np.zeros(len(OP_LETTERS), np.int64)
        self._bytes = np.zeros(len(OP_LETTERS), np.int64)
        self.without_latency = 0
        self.pairing_cpu_s = 0.0
        self.writing_cpu_s = 0.0

    def add(self, slots: npt.NDArray[np.void] | None) -> Rows | None:
        """Take events in stream order; the rows that were finished by them and are written.

        None says that no event came for a while: then no straggler is waited for.
        """
        before = time.process_time()
        if slots is not None:
            self.pairer.add(slots)
        self._amend()
        rows = self.pairer.take(quiet=slots is None)
        self.pairing_cpu_s += time.process_time() - before
        if rows is not None:
            self._write(rows)
        self.flush_if_due()
        return rows

    def flush_if_due(self) -> None:
        """Finish the segment if the last one is ``segment_s`` old."""
        if time.monotonic() - self._last_flush_s > self._segment_s:
            self.writer.flush()
            self._last_flush_s = time.monotonic()

    def _amend(self) -> None:
        for row, latency_ns, status in self.pairer.amendments:
            (error,) = self._decoder.errors(np.array([status], np.uint32))
            self.writer.amend(row, latency_ns, int(error))
            self.without_latency -= 1
        self.pairer.amendments.clear()

    def finish(self) -> Rows | None:
        """Write what is left, also requests whose completion was not seen."""
        rows = self.pairer.take(everything=True)
        if rows is not None:
            self._write(rows)
        return rows

    def ops(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """``Op`` codes of rows."""
        return self._decoder.ops(rows["cmd_flags"])

    def _write(self, rows: Rows) -> None:
        before = time.process_time()
        if self._start_ns is None:
            self._start_ns = int(rows["ts_ns"][0])
            since_ns = self._start_ns - self._clock["monotonic_ns"]
            self.writer.meta = self.writer.meta.model_copy(
                update={
                    "started": utc(self._clock["realtime_ns"] + since_ns),
                    "clock_zero_ns": self._start_ns,
                }
            )
        ops = self.ops(rows)
        self._requests += np.bincount(ops, minlength=len(OP_LETTERS))
        self._bytes += np.bincount(ops, rows["bytes"], len(OP_LETTERS)).astype(np.int64)
        self.without_latency += int(np.count_nonzero(rows["latency_ns"] < 0))
        # Flushes have no address; the kernel says -1.
        lba = np.where(rows["sector"] == _NO_SECTOR, np.uint64(0), rows["sector"])
        columns = {
            "ts_ns": rows["ts_ns"] - self._start_ns,
            "op": ops,
            "lba": lba,
            "bytes": rows["bytes"],
            "latency_ns": rows["latency_ns"],
            "flags": self._decoder.flags(rows["cmd_flags"]),
            "dev": rows["dev"],
            "pid": rows["pid"],
            "comm": pa.DictionaryArray.from_arrays(pa.array(rows["comm"]), self._comm.names),
            "error": self._decoder.errors(rows["status"]),
            "queue_depth": self._depths(rows),
            "source": self._sources(rows),
        }
        if self._with_nvme:
            placement = nvme.placements(rows["nvme"])
            columns[_PLACEMENT] = pa.array(placement, pa.int32(), mask=placement < 0)
        self.writer.write(columns)
        self.writing_cpu_s += time.process_time() - before

    def _sources(self, rows: Rows) -> pa.Array:
        codes = np.full(len(rows["ts_ns"]), _SOURCES.index(self.source), np.int8)
        codes[nvme.rewritten(rows["nvme"])] = _SOURCES.index("nvme")
        return pa.DictionaryArray.from_arrays(pa.array(codes), _SOURCES)

    def _depths(self, rows: Rows) -> pa.Array:
        depths = pa.array(rows["queue_depth"])
        return pa.nulls(len(depths), pa.uint32()) if self._issues_only else depths

    def summary(self) -> dict[str, Any]:
        """Rows, operations and what pairing saw."""
        return {
            "requests": self.writer.rows,
            "without_latency": self.without_latency,
            "operations": {
                letter: {"requests": int(n), "bytes": int(size)}
                for letter, n, size in zip(OP_LETTERS, self._requests, self._bytes, strict=True)
                if n
            },
            "pairing": asdict(self.pairer.counts),
        }
