"""From the loader's stream to a trace file: a process of its own.

``python -m harness.capture.recorder OPTIONS < stream`` prints one JSON line once the probe is
attached and one with the result at the end. Being a process of its own, it does not share the
interpreter with the traced work, has its own memory bound, and completes the trace even when
whoever started it is killed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.capture import stream
from harness.capture.pairing import MAX_BATCH, CommTable, Pairer, Rows
from harness.capture.records import KIND_SHIFT, Decoder, Kind
from harness.capture.verdict import Evidence, Judgement, judge
from harness.capture.witness import Witness
from harness.core.ops import OP_LETTERS
from harness.trace.parquet import TraceWriter
from harness.trace.schema import DeviceMeta, TraceMeta

_OPTIONAL = ("queue_depth", "source")
# How much of a quiet recording a kill -9 can take with it.
_SEGMENT_S = 10.0
_NO_SECTOR = np.uint64((1 << 56) - 1)


class Recorder:
    """Takes what ``stream.batches`` yields, writes the trace, and judges it at the end."""

    def __init__(self, hello: Mapping[str, Any], out: Path, command: str, filtered: bool) -> None:
        self._hello = hello
        self._decoder = Decoder.from_meaning(hello["meaning"])
        self._comm = CommTable()
        self._pairer = Pairer(Kind.ISSUE, Kind.COMPLETE, self._comm)
        self._devices = hello["devices"]
        self._witnesses = {
            device["dev"]: Witness(device, filtered=filtered) for device in self._devices
        }
        self._start_ns: int | None = None
        self._received = 0
        self._end: Mapping[str, Any] | None = None
        self._last_flush_s = time.monotonic()
        self._bytes = np.zeros(len(OP_LETTERS), np.int64)
        self._requests = np.zeros(len(OP_LETTERS), np.int64)
        self._without_latency = 0
        self.pairing_cpu_s = 0.0
        self.writing_cpu_s = 0.0
        self.writer = TraceWriter(out, self._meta(command), _OPTIONAL)

    def _meta(self, command: str) -> TraceMeta:
        started = self._hello["clock"]["realtime_ns"] / 1e9
        notes = []
        if len(self._devices) > 1:
            others = ", ".join(f"{d['name']} (dev {d['dev']})" for d in self._devices[1:])
            notes.append(f"the device described is the first; also traced: {others}")
        for device in self._devices:
            if device["first_sector"] is not None:
                notes.append(
                    f"{device['path']} is a partition: sectors {device['first_sector']} to "
                    f"{device['first_sector'] + device['sectors'] - 1} of {device['name']}; "
                    "addresses are those of the whole device"
                )
        return TraceMeta(
            device=DeviceMeta(**self._devices[0]["facts"]),
            kernel=self._hello["kernel"],
            host=self._hello["host"],
            command=command,
            started=datetime.fromtimestamp(started, UTC).isoformat(),
            notes=notes,
        )

    def take(self, kind: int, content: Any) -> None:
        """One item of the stream after HELLO."""
        if kind == stream.DATA:
            self._received += len(content)
            for first in range(0, len(content), MAX_BATCH):
                self._add(content[first : first + MAX_BATCH])
        elif kind == stream.STOP:
            for device, snapshot in zip(self._devices, content["devices"], strict=True):
                self._witnesses[device["dev"]].stop(snapshot)
        elif kind == stream.END:
            self._end = content

    def _add(self, slots: npt.NDArray[np.void]) -> None:
        before = time.process_time()
        self._pairer.add(slots)
        self._testify(slots)
        rows = self._pairer.take()
        self.pairing_cpu_s += time.process_time() - before
        if rows is not None:
            self._write(rows)
        if time.monotonic() - self._last_flush_s > _SEGMENT_S:
            self.writer.flush()
            self._last_flush_s = time.monotonic()

    def _testify(self, slots: npt.NDArray[np.void]) -> None:
        kinds = (slots["kind_sector"] >> KIND_SHIFT).astype(np.uint8)
        ends = slots[(kinds == Kind.COMPLETE) | (kinds == Kind.COMPLETE_PART)]
        last = (ends["kind_sector"] >> KIND_SHIFT) == Kind.COMPLETE
        ops = self._decoder.ops(ends["cmd_flags"])
        for dev, witness in self._witnesses.items():
            mine = slice(None) if len(self._witnesses) == 1 else ends["dev"] == dev
            witness.add(ends["ts_ns"][mine], ops[mine], ends["bytes"][mine], last[mine])

    def _write(self, rows: Rows) -> None:
        before = time.process_time()
        if self._start_ns is None:
            self._start_ns = int(rows["ts_ns"][0])
        ops = self._decoder.ops(rows["cmd_flags"])
        size = len(ops)
        self._requests += np.bincount(ops, minlength=len(OP_LETTERS))
        self._bytes += np.bincount(ops, rows["bytes"], len(OP_LETTERS)).astype(np.int64)
        self._without_latency += int(np.count_nonzero(rows["latency_ns"] < 0))
        lba = np.where(rows["sector"] == _NO_SECTOR, np.uint64(0), rows["sector"])
        self.writer.write(
            {
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
                "queue_depth": rows["queue_depth"],
                "source": pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, np.int8)), ["rq"]),
            }
        )
        self.writing_cpu_s += time.process_time() - before

    def finish(self) -> dict[str, Any]:
        """Write what is left, put the verdict into the metadata, and say it."""
        open_rows = self._pairer.open_rows()
        in_flight = self._presume(open_rows)
        rows = self._pairer.take(everything=True)
        if rows is not None:
            self._write(rows)
        witnesses = {
            device["name"]: self._witnesses[device["dev"]].judge() for device in self._devices
        }
        counts = self._pairer.counts
        judgement = judge(
            Evidence(
                end=self._end,
                received=self._received,
                witnesses=list(witnesses.values()),
                unpaired=counts.unpaired_completions,
                in_flight_at_start=sum(sum(d["inflight"]) for d in self._devices),
                without_latency=self._without_latency,
            )
        )
        witness = {name: result.to_dict() for name, result in witnesses.items()}
        meta = self.writer.meta.noted(*judgement.notes)
        self.writer.meta = meta.model_copy(
            update={
                "events_seen": self._received,
                "events_lost": judgement.lost,
                "completions_lost": judgement.completions_lost,
                "verdict": judgement.verdict,
                "witness": witness,
            }
        )
        return self._result(judgement, witness, in_flight)

    def _presume(self, open_rows: Rows) -> int:
        """Tell the witnesses of requests without a completion; how many are still in flight."""
        for dev, witness in self._witnesses.items():
            for rows in self._pairer.presumed:
                mine = rows["dev"] == dev
                ops = self._decoder.ops(rows["cmd_flags"][mine])
                witness.presume(ops, rows["bytes"][mine], certain=True)
            mine = open_rows["dev"] == dev
            ops = self._decoder.ops(open_rows["cmd_flags"][mine])
            witness.presume(ops, open_rows["bytes"][mine], certain=False)
        return len(open_rows["ts_ns"])

    def _result(
        self, judgement: Judgement, witness: dict[str, Any], in_flight: int
    ) -> dict[str, Any]:
        end = self._end or {}
        return {
            "verdict": judgement.verdict,
            "requests": self.writer.rows,
            "events": self._received,
            "lost": judgement.lost,
            "completions_lost": judgement.completions_lost,
            "without_latency": self._without_latency,
            "unfinished_at_end": in_flight,
            "trace": str(self.writer.path),
            "notes": list(self.writer.meta.notes),
            "witness": witness,
            "operations": {
                letter: {"requests": int(n), "bytes": int(size)}
                for letter, n, size in zip(OP_LETTERS, self._requests, self._bytes, strict=True)
                if n
            },
            "pairing": asdict(self._pairer.counts),
            "devices": {
                device["name"]: counters
                for device, counters in zip(self._devices, end.get("devices", ()), strict=False)
            },
            "ring_full_per_cpu": end.get("ring_full_per_cpu"),
            "missed": end.get("missed"),
            "cpu_s": {
                "loader": end.get("cpu_s"),
                "pairing": self.pairing_cpu_s,
                "writing": self.writing_cpu_s,
            },
        }
