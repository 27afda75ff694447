"""What wears a drive: an op list or a block trace, as batches of commands.

A store re-emitted at the drive's size is in ``store_input``; ways to repeat, tile or perturb an
input in ``arrange``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from harness.core.errors import UsageError
from harness.core.ops import SECTOR_BYTES, Op
from harness.trace.columns import op_codes
from harness.trace.formats import detect
from harness.trace.formats.oplist import read_oplist
from harness.trace.source import open_source

Kind = Literal["oplist", "trace", "store"]


@dataclass(frozen=True)
class Batch:
    """Commands in order, n of them.

    ``placement`` and ``classes`` are None where the input does not know them. ``clock_s`` is
    the time of the input's own clock after this batch, ``new_tokens`` what the requests behind
    it added; ``ends_repeat`` marks the last batch of a pass over a repeated input.
    """

    offset: np.ndarray  # uint64[n], bytes
    length: np.ndarray  # uint64[n], bytes
    op: np.ndarray  # uint8[n], codes of Op
    placement: np.ndarray | None = None  # uint8[n]
    classes: np.ndarray | None = None  # uint8[n], index into class_names
    clock_s: float | None = None
    new_tokens: int = 0
    ends_repeat: bool = False

    def part(self, start: int, stop: int) -> Batch:
        """Rows ``start`` to ``stop``, as views."""
        rows = slice(start, stop)
        return Batch(
            self.offset[rows],
            self.length[rows],
            self.op[rows],
            None if self.placement is None else self.placement[rows],
            None if self.classes is None else self.classes[rows],
        )

    def taken(self, rows: np.ndarray) -> Batch:
        """The rows of index array ``rows``, with the clock and marks of this batch."""
        return Batch(
            self.offset[rows],
            self.length[rows],
            self.op[rows],
            None if self.placement is None else self.placement[rows],
            None if self.classes is None else self.classes[rows],
            self.clock_s,
            self.new_tokens,
            self.ends_repeat,
        )


class Input(Protocol):
    """Something that can be written to a drive again and again from its start.

    ``endless`` ones must be stopped. ``class_names`` names the values of ``classes`` (empty:
    there are none). ``labels`` are what a reader of the WAF must know about the input.
    """

    @property
    def kind(self) -> Kind: ...
    @property
    def name(self) -> str: ...
    @property
    def endless(self) -> bool: ...
    @property
    def has_classes(self) -> bool: ...
    @property
    def class_names(self) -> list[str]: ...
    @property
    def labels(self) -> list[str]: ...
    @property
    def facts(self) -> dict[str, Any]: ...
    def batches(self) -> Iterator[Batch]: ...


@dataclass
class OpListInput:
    """An op list: each row one command, SNAP rows ask for the counters."""

    path: Path
    kind: Kind = "oplist"
    endless: bool = False
    has_classes: bool = False
    class_names: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    @property
    def facts(self) -> dict[str, Any]:
        """What the result says of it."""
        return {"oplist": str(self.path)}

    def batches(self) -> Iterator[Batch]:
        """The file once; UsageError for a malformed or empty one."""
        rows = 0
        for offset, length, op in read_oplist(self.path):
            rows += len(op)
            yield Batch(offset, length, op)
        if rows == 0:
            raise UsageError(f"{self.path} holds no command")


class TraceInput:
    """A block trace in any readable format, in time order.

    UsageError for a trace whose addresses were stretched or folded: its WAF would say nothing
    of the store.
    """

    kind: Kind = "trace"
    endless = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self._source = open_source(path)
        if self._source.meta.stretched:
            raise UsageError(
                f"{path}: addresses were stretched or folded ({self._source.meta.history[-1]}); "
                "a WAF of it would be an artefact of the scaling",
                fix="re-emit the store at the drive's size (--store, --requests), or tile the "
                "original trace (--scale tile)",
            )
        self.has_classes = "object_class" in self._source.columns
        self.class_names: list[str] = []
        self.labels: list[str] = []
        if self._source.meta.verdict == "LOSSY":
            self.labels.append(f"the trace is LOSSY: {self._source.meta.events_lost} events lost")

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    @property
    def facts(self) -> dict[str, Any]:
        """What the result says of it: path, content hash, history."""
        digest = None
        if self.path.is_file():
            with self.path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {
            "trace": str(self.path),
            "trace_sha256": digest,
            "trace_history": list(self._source.meta.history),
        }

    def batches(self) -> Iterator[Batch]:
        """The trace once; UsageError for one without a request."""
        columns = ["op", "lba", "bytes"]
        columns += [c for c in ("placement_id", "object_class") if c in self._source.columns]
        rows = 0
        for batch in self._source.batches(columns):
            rows += batch.num_rows
            yield Batch(
                batch.column("lba").to_numpy() * np.uint64(SECTOR_BYTES),
                batch.column("bytes").to_numpy(),
                op_codes(batch.column("op")),
                _placement(batch) if "placement_id" in columns else None,
                self._classes(batch.column("object_class")) if self.has_classes else None,
            )
        if rows == 0:
            raise UsageError(f"{self.path} holds no request")

    def _classes(self, column: pa.Array) -> np.ndarray:
        """Class numbers of a batch; names get numbers in the order in which they appear."""
        encoded = column.cast(pa.string()).fill_null("(none)").dictionary_encode()
        numbers = []
        for name in encoded.dictionary.to_pylist():
            if name not in self.class_names:
                self.class_names.append(name)
            numbers.append(min(self.class_names.index(name), 255))
        return np.array(numbers, np.uint8)[encoded.indices.to_numpy()]


def _placement(batch: pa.RecordBatch) -> np.ndarray:
    ids = batch.column("placement_id").fill_null(0).to_numpy(zero_copy_only=False)
    return np.asarray(np.minimum(ids, 255).astype(np.uint8))


def open_input(path: Path) -> OpListInput | TraceInput:
    """An op list or a block trace, by its content; UsageError for anything else."""
    if not path.exists():
        raise UsageError(f"no such file: {path}")
    path = path.resolve()
    return OpListInput(path) if detect(path) == "oplist" else TraceInput(path)


def written_bytes(batch: Batch) -> np.ndarray:
    """uint64[n]: running sum of the bytes that the batch writes."""
    return np.asarray(np.cumsum(np.where(batch.op == Op.WRITE, batch.length, 0), dtype=np.uint64))
