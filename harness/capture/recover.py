"""One trace of what a killed recorder left in ``FILE.parts/``.

That is finished segments of rows, and files of records of which it had made none (``backlog``).
Some records of the first such file may be rows already: a recorder removes a file once it has read
all of it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.capture import stream
from harness.capture.recorder import Recorder
from harness.core.errors import MeasurementError, UsageError
from harness.trace import segments
from harness.trace.parquet import Trace, TraceWriter, open_trace
from harness.trace.schema import OPTIONAL, TraceMeta


class RawFiles:
    """The frames of several raw files as those of one stream."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        kind, payload = next(self._all(), (stream.QUIET, b""))
        if kind != stream.HELLO:
            raise MeasurementError(f"{files[0]} does not begin as the probe's stream does")
        self.hello: dict[str, Any] = json.loads(bytes(payload))

    def _all(self) -> Iterator[stream.Frame]:
        for path in self._files:
            with path.open("rb") as file:
                yield from stream.FrameReader(file.fileno()).frames()

    def frames(self) -> Iterator[stream.Frame]:
        """(kind, payload) of all files, without their HELLO."""
        return (frame for frame in self._all() if frame[0] != stream.HELLO)

    def waits(self, seconds: float) -> bool:
        """False: files are there."""
        return False


def recover(folder: Path, out: Path) -> Trace:
    """Write ``out`` from a ``.parts`` folder, which stays as it is.

    Rows up to the last one of the segments are theirs, later ones are made of the records. The
    verdict is the probe's if all its records are there, else UNKNOWN. UsageError if the folder
    holds nothing.
    """
    done, raw = segments.finished(folder), segments.raw(folder)
    if not done and not raw:
        raise UsageError(f"{folder} holds no finished segment and no records")
    with tempfile.TemporaryDirectory(prefix=".recover-", dir=out.parent) as scratch:
        parts = [open_trace(folder)] if done else []
        # Not the folder's own, which says that the records are missing.
        metas = [open_trace(done[-1]).meta] if done else []
        if raw:
            parts.append(_record(raw, Path(scratch) / "rest.parquet"))
            metas.append(parts[-1].meta)
        whole = not done and raw[0] == segments.raw_name(folder, 0)
        _join(parts, _meta(metas, whole=whole), out)
    return open_trace(out)


def _record(raw: Sequence[Path], path: Path) -> Trace:
    """The trace of the records alone."""
    source = RawFiles(raw)
    with Recorder(source.hello, path, "", bios=False, segment_s=60.0) as recorder:
        for kind, content in stream.batches(source, source.hello["rings"]):
            recorder.take(kind, content)
        recorder.finish()
    return open_trace(path)


def _join(parts: Sequence[Trace], meta: TraceMeta, out: Path) -> None:
    """Append the rows of the parts that are later than those before, on the first one's clock."""
    optional = tuple(name for name in OPTIONAL if any(name in part.columns for part in parts))
    zero_ns = parts[0].meta.clock_zero_ns or 0
    last_ns = -1
    with TraceWriter(out, meta, optional, durable=False) as writer:
        for part in parts:
            shift_ns = (part.meta.clock_zero_ns or zero_ns) - zero_ns
            after_ns = last_ns
            for batch in part.batches():
                ts_ns = batch.column("ts_ns").to_numpy() + shift_ns
                batch = _complete(batch, ts_ns, optional).filter(pa.array(ts_ns > after_ns))
                writer.write(batch)
                last_ns = max(last_ns, int(ts_ns.max(initial=-1)))


def _complete(batch: pa.RecordBatch, ts_ns: np.ndarray, optional: Sequence[str]) -> pa.RecordBatch:
    """``batch`` at other times, with null for the ``optional`` columns that it lacks."""
    at = batch.schema.get_field_index("ts_ns")
    batch = batch.set_column(at, batch.schema.field(at), pa.array(ts_ns, pa.int64()))
    for name in optional:
        if name not in batch.schema.names:
            batch = batch.append_column(name, pa.nulls(batch.num_rows, OPTIONAL[name]))
    return batch


def _meta(metas: Sequence[TraceMeta], *, whole: bool) -> TraceMeta:
    """The first part's, with what can still be said of losses."""
    notes = [*dict.fromkeys(note for meta in metas for note in meta.notes)]
    notes.append("recovered from what a recorder that was killed had left")
    meta = metas[0].model_copy(update={"notes": notes})
    if whole:
        return meta
    unknown = dict.fromkeys(("events_seen", "events_lost", "completions_lost", "witness"))
    return meta.model_copy(update={**unknown, "verdict": "UNKNOWN"})
