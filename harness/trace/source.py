"""One way to read a trace, be it a trace file or a foreign format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from harness.core.errors import UsageError
from harness.core.progress import Progress, quiet
from harness.trace.formats import FORMATS, PARQUET, detect, named
from harness.trace.formats.base import BadLine, Format, Reading
from harness.trace.merging import times
from harness.trace.ordering import sort_window
from harness.trace.pairing import PairingCounts, pair_events
from harness.trace.parquet import open_trace
from harness.trace.schema import NO_CLOCK_NOTE, SCHEMA, TraceMeta, utc

Sorter = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Source(Protocol):
    """What every reader of traces takes: ``Trace`` and ``ForeignTrace`` are such."""

    path: Path
    meta: TraceMeta
    columns: list[str]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Rows in issue order."""
        ...


class ForeignTrace:
    """A trace in a foreign format, read as if it were a trace file.

    ``meta`` is complete, and ``bad_lines`` final, once ``batches`` is exhausted.
    """

    def __init__(
        self,
        path: Path,
        form: Format,
        *,
        skip_bad: int = 0,
        progress: Progress = quiet,
        sort: Sorter | None = None,
    ) -> None:
        self.path = path
        self.format = form
        self.meta = TraceMeta(source=form.name)
        self.columns: list[str] = SCHEMA.names
        self.bad_lines = 0
        self._skip_bad = skip_bad
        self._progress = progress
        self._sort = sort or (lambda batches: sort_window(batches, str(path)))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Rows in issue order, times from 0; UsageError where the file is not of the format."""
        reading = Reading(self.path, skip_bad=self._skip_bad, progress=self._progress)
        pairing = PairingCounts()
        stream = self._sort(self._records(reading))
        if self.format.events:
            stream = pair_events(stream, pairing)
        zero_ns: int | None = None
        done = 0
        for batch in stream:
            if batch.num_rows == 0:
                continue
            ts_ns = times(batch)
            if zero_ns is None:
                zero_ns = int(ts_ns[0])
            shifted = batch.set_column(0, SCHEMA.field("ts_ns"), pa.array(ts_ns - zero_ns))
            done += batch.num_rows
            yield shifted if columns is None else shifted.select(list(columns))
        if zero_ns is None:
            raise UsageError(f"{self.path} holds no request in the format {self.format.name}")
        self.bad_lines = reading.bad_lines
        self.meta = self._final_meta(reading, pairing, zero_ns, done)

    def _records(self, reading: Reading) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.format.read(reading)
        except BadLine as bad:  # of a binary format: text names the line itself
            raise UsageError(f"{self.path}: {bad.reason}; expected {self.format.layout}") from None

    def _final_meta(
        self, reading: Reading, pairing: PairingCounts, zero_ns: int, rows: int
    ) -> TraceMeta:
        clock = [] if self.format.has_clock else [NO_CLOCK_NOTE]
        return TraceMeta(
            source=self.format.name,
            host=reading.host,
            device=reading.device,
            started=utc(zero_ns) if reading.epoch_clock else None,
            clock_zero_ns=zero_ns if self.format.has_clock else None,
            events_seen=rows,
            events_lost=reading.events_lost,
            completions_lost=pairing.unfinished if self.format.events else None,
            notes=[*clock, *reading.all_notes(), *pairing.notes()],
        )


def open_source(
    path: str | Path,
    *,
    form: str | None = None,
    skip_bad: int = 0,
    progress: Progress = quiet,
    sort: Sorter | None = None,
) -> Source:
    """Open a trace of any readable format; ``form`` forces one.

    Errors: UsageError for an absent, empty or unrecognised file.
    """
    path = Path(path)
    name = named(form) if form is not None else detect(path)
    if name == PARQUET:
        return open_trace(path)
    if not path.is_file():
        raise UsageError(f"no such trace: {path}")
    return ForeignTrace(path, FORMATS[name], skip_bad=skip_bad, progress=progress, sort=sort)


def arrays(batch: pa.RecordBatch, *names: str) -> list[np.ndarray]:
    """Columns without nulls as numpy arrays."""
    return [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
