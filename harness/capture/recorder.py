"""From the loader's messages to a trace and its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.capture import fifo, stream
from harness.capture.lane import Lane
from harness.capture.nvme import NvmeCommands
from harness.capture.records import KIND_SHIFT, Decoder, Kind, chosen
from harness.capture.rows import MAX_BATCH, Rows
from harness.capture.verdict import Evidence, Judgement, judge
from harness.capture.witness import Witness
from harness.core.errors import UsageError
from harness.core.ops import OP_LETTERS
from harness.trace.schema import DeviceMeta, TraceMeta, utc


def bios_path(out: Path) -> Path:
    """Where the view before splitting goes that belongs to the trace ``out``."""
    return out.with_name(f"{out.stem}.bios{out.suffix}")


class Recorder:
    """Takes what ``stream.batches`` yields and writes the trace; use as a context manager.

    Parameters
    ----------
    hello
        The loader's first message.
    out
        The trace: of requests, or of bios where the devices have no requests of their own.
    segment_s
        A finished segment of the trace is written at least this often.
    bios
        Record bios beside the requests too, in ``bios_path(out)``.
    """

    def __init__(
        self, hello: Mapping[str, Any], out: Path, command: str, *, bios: bool, segment_s: float
    ) -> None:
        self._hello = hello
        self._devices = hello["devices"]
        by_bio = {bool(device["bio_based"]) for device in self._devices}
        if len(by_bio) > 1:
            raise UsageError(
                "some of the devices take requests and some only bios",
                fix="capture them apart, at the same time if need be",
            )
        self._bio_based = by_bio.pop()
        self._fifo = None if hello["meaning"] else fifo.FifoKeys()
        decoder = fifo.DECODER if self._fifo else Decoder.from_meaning(hello["meaning"])
        self._decoder = decoder
        self._nvme = self._nvme_commands()
        meta = self._meta(command)
        self._main = Lane(
            "bio" if self._bio_based else "rq",
            decoder,
            out,
            meta,
            clock=hello["clock"],
            segment_s=segment_s,
            with_nvme=self._nvme is not None,
        )
        self._beside = None
        if bios and not self._bio_based:
            note = (
                "bios before splitting and merging, which end inside their requests and so have "
                f"no latency; the requests are in {out.name}"
            )
            self._beside = Lane(
                "bio",
                decoder,
                bios_path(out),
                meta.noted(note),
                clock=hello["clock"],
                segment_s=segment_s,
                issues_only=True,
            )
        self._witnesses = {
            device["dev"]: Witness(device, sectors_only=self._bio_based) for device in self._devices
        }
        self._received = 0
        self._end: Mapping[str, Any] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Recorder:
        for lane in self._lanes():
            self._stack.enter_context(lane.writer)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _lanes(self) -> list[Lane]:
        return [self._main] + ([self._beside] if self._beside else [])

    def _nvme_commands(self) -> NvmeCommands | None:
        nvme = {d["dev"]: d["logical_block"] for d in self._devices if d["name"].startswith("nvme")}
        return NvmeCommands(self._decoder, nvme) if nvme and self._fifo is None else None

    def _meta(self, command: str) -> TraceMeta:
        notes = list(self._hello["notes"])
        if self._fifo is not None:
            notes.append("no BTF: completions are paired first in, first out by device and sectors")
        if len(self._devices) > 1:
            others = ", ".join(f"{d['name']} (dev {d['dev']})" for d in self._devices[1:])
            notes.append(f"the device described is the first; also traced: {others}")
        for device in self._devices:
            if device["hidden_paths"]:
                notes.append(
                    f"{device['name']} is a multipath head: its requests were seen on "
                    + ", ".join(device["hidden_paths"])
                )
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
            command=command or None,
            started=utc(self._hello["clock"]["realtime_ns"]),
            notes=notes,
        )

    def take(self, kind: int, content: Any) -> None:
        """One item of the stream after HELLO."""
        if kind == stream.DATA:
            self._received += len(content)
            for first in range(0, len(content), MAX_BATCH):
                self._add(content[first : first + MAX_BATCH])
        elif kind == stream.QUIET:
            self._add(None)
        elif kind == stream.HELD:
            for lane in self._lanes():
                lane.flush_if_due()
        elif kind == stream.STOP:
            for device, snapshot in zip(self._devices, content["devices"], strict=True):
                self._witnesses[device["dev"]].stop(snapshot)
        elif kind == stream.END:
            self._end = content

    def _add(self, slots: npt.NDArray[np.void] | None) -> None:
        if self._fifo is not None and slots is not None:
            slots = self._fifo.assign(slots)
        if self._nvme is not None and slots is not None:
            slots = self._nvme.apply(slots)
        for lane in self._lanes():
            rows = lane.add(slots)
            if self._bio_based and rows is not None:
                self._testify_bios(rows)
        if not self._bio_based and slots is not None:
            self._testify(slots)

    def _testify(self, slots: npt.NDArray[np.void]) -> None:
        kinds = (slots["kind_sector"] >> KIND_SHIFT).astype(np.uint8)
        ends = chosen(slots, (kinds == Kind.COMPLETE) | (kinds == Kind.COMPLETE_PART))
        last = (ends["kind_sector"] >> KIND_SHIFT) == Kind.COMPLETE
        ops = self._decoder.ops(ends["cmd_flags"])
        for dev, witness in self._witnesses.items():
            mine = slice(None) if len(self._witnesses) == 1 else ends["dev"] == dev
            witness.add(ends["ts_ns"][mine], ops[mine], ends["bytes"][mine], last[mine])

    def _testify_bios(self, rows: Rows) -> None:
        """A completed bio has lost its size, so its row speaks for it."""
        done = rows["latency_ns"] >= 0
        ended = rows["ts_ns"] + rows["latency_ns"]
        ops = self._main.ops(rows)
        for dev, witness in self._witnesses.items():
            mine = done & (rows["dev"] == dev)
            witness.add(ended[mine], ops[mine], rows["bytes"][mine], np.ones(mine.sum(), bool))

    def finish(self) -> dict[str, Any]:
        """Write what is left, put the verdict into the metadata, and say it."""
        unfinished = self._presume(self._main.pairer.open_rows())
        for lane in self._lanes():
            rows = lane.finish()
            if lane is self._main and self._bio_based and rows is not None:
                self._testify_bios(rows)
        witnesses = {
            device["name"]: self._witnesses[device["dev"]].judge() for device in self._devices
        }
        in_flight = sum((self._end or {"inflight": [unfinished]})["inflight"])
        judgement = judge(
            Evidence(
                end=self._end,
                received=self._received,
                witnesses=list(witnesses.values()),
                unpaired=self._unpaired(),
                in_flight_at_start=sum(sum(device["inflight"]) for device in self._devices),
                without_completion=self._main.pairer.counts.reissued
                + max(0, unfinished - in_flight),
                keyed=self._fifo is None,
            )
        )
        judgement = replace(judgement, notes=judgement.notes + self._unattributed())
        witness = {name: result.to_dict() for name, result in witnesses.items()}
        for lane in self._lanes():
            lane.writer.meta = lane.writer.meta.noted(*judgement.notes).model_copy(
                update={
                    "events_seen": self._received,
                    "events_lost": judgement.lost,
                    "completions_lost": judgement.completions_lost,
                    "verdict": judgement.verdict,
                    "witness": witness,
                }
            )
        return self._result(judgement, witness, unfinished)

    def _unpaired(self) -> int:
        """Completions whose issue was not seen; not those of requests that pairing forgot."""
        counts = self._main.pairer.counts
        return max(0, counts.unpaired_completions - counts.forgotten)

    def _unattributed(self) -> tuple[str, ...]:
        """What a filter on processes left out, which may have been theirs all the same."""
        if not self._hello["by_issuer"] or self._end is None:
            return ()
        left_out = {
            letter: sum(int(d[f"rejected_{letter}_requests"]) for d in self._end["devices"])
            for letter in OP_LETTERS
        }
        shown = ", ".join(f"{count} {letter}" for letter, count in left_out.items() if count)
        return (
            f"requests not attributed to the wanted processes: {shown or 'none'} (write-back, "
            "discards and flushes are issued by kernel workers, whoever caused them)",
        )

    def _presume(self, open_rows: Rows) -> int:
        """Tell the witnesses of requests without a completion; how many never saw one."""
        for dev, witness in self._witnesses.items():
            for rows, certain in [(r, True) for r in self._main.pairer.presumed] + [
                (open_rows, False)
            ]:
                mine = rows["dev"] == dev
                witness.presume(self._main.ops(rows)[mine], rows["bytes"][mine], certain=certain)
        return len(open_rows["ts_ns"])

    def _result(
        self, judgement: Judgement, witness: dict[str, Any], unfinished: int
    ) -> dict[str, Any]:
        end = self._end or {}
        result = {
            "verdict": judgement.verdict,
            "events": self._received,
            "lost": judgement.lost,
            "completions_lost": judgement.completions_lost,
            "trace": str(self._main.writer.path),
            **self._main.summary(),
            "unfinished_at_end": unfinished,
            "complete": self._end is not None,
            "paired_by": "request address" if self._fifo is None else "first in, first out",
            "ambiguous": self._fifo.ambiguous if self._fifo else 0,
            "notes": list(self._main.writer.meta.notes),
            "witness": witness,
            "devices": {
                device["name"]: counters
                for device, counters in zip(self._devices, end.get("devices", ()), strict=False)
            },
            "ring_full_per_cpu": end.get("ring_full_per_cpu"),
            "missed": end.get("missed"),
            "cpu_s": {
                "loader": end.get("cpu_s"),
                "pairing": sum(lane.pairing_cpu_s for lane in self._lanes()),
                "writing": sum(lane.writing_cpu_s for lane in self._lanes()),
            },
        }
        if self._beside is not None:
            result["bios"] = {"trace": str(self._beside.writer.path), **self._beside.summary()}
        return result
