"""What a block trace is: its columns, its flags and its file metadata.

A trace is a table with one row a block request, in issue order. The required columns are
``SCHEMA``; ``OPTIONAL`` lists what a trace may hold besides.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field

from harness.core.config import Strict, validate
from harness.core.errors import UsageError
from harness.core.ops import OP_LETTERS

SCHEMA_VERSION = 1
METADATA_KEY = b"harness.trace"
"""Key of the JSON-encoded ``TraceMeta`` in a Parquet file's key-value metadata."""

OP_TYPE = pa.dictionary(pa.int8(), pa.string())
"""Operation letters; the index of a letter is its ``harness.core.ops.Op`` code."""
OP_DICTIONARY = pa.array(list(OP_LETTERS), pa.string())

SCHEMA = pa.schema(
    [
        pa.field("ts_ns", pa.int64(), nullable=False),
        pa.field("op", OP_TYPE, nullable=False),
        pa.field("lba", pa.uint64(), nullable=False),
        pa.field("bytes", pa.uint64(), nullable=False),
        pa.field("pages", pa.uint32(), nullable=False),
        pa.field("latency_ns", pa.int64()),
        pa.field("flags", pa.uint16(), nullable=False),
        pa.field("dev", pa.uint32(), nullable=False),
        pa.field("pid", pa.int32()),
        pa.field("comm", pa.dictionary(pa.int32(), pa.string())),
        pa.field("error", pa.int32(), nullable=False),
    ]
)
"""Required columns.

``ts_ns`` issue time since the first request; ``lba`` in 512-byte sectors of the whole device;
``pages`` the 4 KiB pages touched; ``latency_ns`` null where no completion was seen; ``dev`` is
major << 20 | minor; ``pid`` and ``comm`` null where the source does not know the issuer;
``error`` 0 or -errno.
"""

OPTIONAL: dict[str, pa.DataType] = {
    "queue_depth": pa.uint32(),
    "source": pa.dictionary(pa.int8(), pa.string()),
    "placement_id": pa.uint16(),
    "object_class": pa.dictionary(pa.int8(), pa.string()),
    "session": pa.uint32(),
    "turn": pa.uint32(),
    "layer": pa.int32(),
    "key": pa.uint64(),
}
"""Columns a trace may have besides, all nullable.

``queue_depth`` requests in flight at issue, this one included; ``source`` rq, bio or nvme.
"""

NO_CLOCK_NOTE = "the source has no clock: ts_ns counts requests"
"""Note of a trace whose times mean nothing but an order (``has_clock``)."""

FLAG_SYNC = 1
FLAG_FUA = 2
FLAG_META = 4
FLAG_READAHEAD = 8
FLAG_BACKGROUND = 16
FLAG_PREFLUSH = 32


class DeviceMeta(Strict):
    """The traced device; a field is None where the source does not say it."""

    name: str | None = None
    model: str | None = None
    serial: str | None = None
    size_bytes: int | None = Field(default=None, ge=0)
    logical_block: int | None = Field(default=None, ge=1)
    physical_block: int | None = Field(default=None, ge=1)
    max_sectors_kb: int | None = Field(default=None, ge=1)
    max_segments: int | None = Field(default=None, ge=1)
    scheduler: str | None = None


class TraceMeta(Strict):
    """Metadata of a trace file; None where it was not measured or the source does not say.

    ``started`` is UTC, ISO 8601; ``clock_zero_ns`` what the recorder's clock showed at ts_ns 0,
    which aligns traces of one host exactly. ``events_lost`` counts issues that the recorder missed.
    ``source`` is "capture" or the name of the foreign format. ``history`` names every
    transform that was applied, oldest first; ``notes`` are for people.
    """

    schema_version: Literal[1] = 1
    source: str = "capture"
    device: DeviceMeta | None = None
    kernel: str | None = None
    host: str | None = None
    command: str | None = None
    started: str | None = None
    clock_zero_ns: int | None = None
    events_seen: int | None = None
    events_lost: int | None = None
    completions_lost: int | None = None
    verdict: Literal["LOSSLESS", "LOSSY", "UNKNOWN"] | None = None
    witness: dict[str, Any] | None = None
    notes: list[str] = Field(default_factory=list)
    history: list[str] = Field(default_factory=list)

    def to_json(self) -> str:
        """The form kept in the file."""
        return json.dumps(self.model_dump(mode="json"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> TraceMeta:
        """Inverse of ``to_json``; UsageError, naming ``where``, for anything else."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise UsageError(f"{where}: trace metadata is not JSON: {error}") from error
        version = data.get("schema_version") if isinstance(data, dict) else None
        if version != SCHEMA_VERSION:
            raise UsageError(
                f"{where}: trace schema version {version!r}, this program reads {SCHEMA_VERSION}"
            )
        return validate(data, cls, where)

    @property
    def stretched(self) -> bool:
        """Whether addresses were stretched or folded: a WAF of this trace would mean nothing."""
        return any(step.startswith(("scale stretch", "scale fold")) for step in self.history)

    @property
    def has_clock(self) -> bool:
        """Whether ``ts_ns`` is time; else it numbers the requests."""
        return NO_CLOCK_NOTE not in self.notes

    def noted(self, *notes: str) -> TraceMeta:
        """A copy with ``notes`` added."""
        return self.model_copy(update={"notes": [*self.notes, *notes]})

    def transformed(self, *steps: str) -> TraceMeta:
        """A copy with ``steps`` added to the history."""
        return self.model_copy(update={"history": [*self.history, *steps]})


def trace_schema(optional: tuple[str, ...] = ()) -> pa.Schema:
    """``SCHEMA`` with the named optional columns after it; ValueError for an unknown name."""
    unknown = [name for name in optional if name not in OPTIONAL]
    if unknown:
        raise ValueError(f"not an optional trace column: {', '.join(unknown)}")
    schema = SCHEMA
    for name, kind in OPTIONAL.items():
        if name in optional:
            schema = schema.append(pa.field(name, kind))
    return schema


def utc(epoch_ns: int) -> str:
    """Nanoseconds since 1970 as ISO 8601 with all nine decimals, as ``TraceMeta.started`` is."""
    seconds, ns = divmod(epoch_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ns:09d}Z"
