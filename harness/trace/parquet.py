"""Trace files: a streaming writer that survives its process, and a streaming reader."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.core.errors import UsageError
from harness.core.files import whole_file
from harness.trace import segments
from harness.trace.columns import batch_from_arrays, op_codes, op_column
from harness.trace.schema import METADATA_KEY, OP_DICTIONARY, SCHEMA, TraceMeta, trace_schema

ROW_GROUP_ROWS = 262_144
SEGMENT_ROWS = 4 * ROW_GROUP_ROWS
BATCH_ROWS = 65_536


class TraceWriter:
    """Write a trace to ``path`` in constant memory; use as a context manager.

    Batches must be in issue order. With ``durable`` (the default, for recorders) finished
    segments appear in ``PATH.parts/``, survive the death of the process, and are joined when
    the writer closes; if the body raises, they stay there, readable. Without it (for
    conversions) the file appears whole on success and nothing remains on failure.

    ``meta`` may be replaced until the writer closes. ``optional`` names optional columns.
    Errors: UsageError when time goes backwards or ``PATH.parts/`` is in the way.
    """

    def __init__(
        self,
        path: str | Path,
        meta: TraceMeta,
        optional: Sequence[str] = (),
        *,
        durable: bool = True,
        segment_rows: int = SEGMENT_ROWS,
    ) -> None:
        self.path = Path(path)
        self.meta = meta
        self.rows = 0
        self._optional = tuple(optional)
        self._schema = trace_schema(self._optional)
        self._segment_rows = segment_rows
        self._last_ts_ns = 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._stack = ExitStack()
        self._folder: Path | None = None
        self._segment: Path | None = None
        self._segment_number = 0
        self._rows_in_segment = 0
        self._file: pq.ParquetWriter | None = None
        self._amended: dict[int, tuple[int, int]] = {}
        if durable:
            self._folder = segments.parts_folder(self.path)
            self._make_folder(self._folder)

    @staticmethod
    def _make_folder(folder: Path) -> None:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise UsageError(
                f"{folder} is left from an interrupted recording, or another one is writing it",
                fix=f"save it with: harness trace recover {folder} FILE.parquet, then remove it",
            ) from None

    def __enter__(self) -> TraceWriter:
        if self._folder is None:
            self._segment = self._stack.enter_context(whole_file(self.path))
            self._file = self._open(self._segment, segments.PARQUET_OPTIONS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            # What failed is already known; a second failure while saving the rest adds nothing.
            with suppress(OSError, pa.ArrowException):
                self._give_up()
            if self._file is not None:
                self._sink.close()
            self._stack.__exit__(kind, error, trace)
            return
        with self._stack:
            if self._folder is not None:
                self.flush()
                self._join(self._folder)
            else:
                self._write_group()
                self._close_file()

    def _give_up(self) -> None:
        """Keep what a recorder has so far; drop the file of a conversion."""
        if self._folder is not None:
            self.flush()
        elif self._file is not None:
            self._close_file()

    def write(self, batch: pa.RecordBatch | Mapping[str, Any]) -> None:
        """Append rows: a record batch of the trace schema, or arrays as ``batch_from_arrays``."""
        if isinstance(batch, pa.RecordBatch):
            batch = self._conform(batch)
        else:
            batch = batch_from_arrays(batch, self._optional)
        if batch.num_rows == 0:
            return
        ts_ns = batch.column("ts_ns").to_numpy()
        self._last_ts_ns = check_order(ts_ns, self._last_ts_ns, self.rows, str(self.path))
        self.rows += batch.num_rows
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        if self._pending_rows >= ROW_GROUP_ROWS:
            self._write_group()
            if self._folder is not None and self._rows_in_segment >= self._segment_rows:
                self.flush()

    def amend(self, row: int, latency_ns: int, error: int) -> None:
        """Put a latency and error into a row that was written before, when the file is joined.

        For recorders; they are held until then. In the segments the row stays as it was.
        """
        assert self._folder is not None
        self._amended[row] = (latency_ns, error)

    def flush(self) -> None:
        """Finish the current segment: what was written so far now survives this process."""
        if self._folder is None or (self._pending_rows == 0 and self._file is None):
            return
        self._write_group()
        self._close_file()
        assert self._segment is not None
        segments.finish(self._segment)
        self._segment_number += 1
        self._rows_in_segment = 0

    def _conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for field in self._schema:
            column = batch.column(field.name)
            if field.name == "op":
                column = _canonical_op(column)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _open(self, path: Path, options: Mapping[str, Any]) -> pq.ParquetWriter:
        self._sink = pa.OSFile(str(path), "wb")
        return pq.ParquetWriter(self._sink, self._schema, **options)

    def _write_group(self) -> None:
        if not self._pending:
            return
        if self._file is None:
            assert self._folder is not None
            self._segment = segments.open_name(self._folder, self._segment_number)
            self._file = self._open(self._segment, segments.SEGMENT_OPTIONS)
        table = pa.Table.from_batches(self._pending, self._schema).unify_dictionaries()
        self._file.write_table(table.combine_chunks(), row_group_size=max(table.num_rows, 1))
        self._rows_in_segment += table.num_rows
        self._pending, self._pending_rows = [], 0

    def _close_file(self) -> None:
        assert self._file is not None
        file, self._file = self._file, None
        try:
            file.add_key_value_metadata({METADATA_KEY: self.meta.to_json().encode()})
            file.close()
        finally:
            self._sink.close()

    def _join(self, folder: Path) -> None:
        """Make the final file from the segments, then remove them."""
        done = segments.finished(folder)
        with whole_file(self.path) as temporary:
            self._file = self._open(temporary, segments.PARQUET_OPTIONS)
            first_row = 0
            for segment in done:
                first_row += segments.append_segment(self._file, segment, first_row, self._amended)
            self._close_file()
        segments.remove(folder)


class Trace:
    """A trace file opened for reading; nothing is held in memory but the metadata.

    ``size_bytes`` is the size of the file or of its segments, not of the traced device, which
    is ``meta.device.size_bytes``.
    """

    def __init__(self, path: Path, files: list[Path], meta: TraceMeta) -> None:
        self.path = path
        self.meta = meta
        self._files = files
        headers = [pq.read_metadata(file) for file in files]
        self.rows: int = sum(header.num_rows for header in headers)
        self.size_bytes = sum(os.path.getsize(file) for file in files)
        self.columns: list[str] = _read(files[0], pq.read_schema).names if files else SCHEMA.names

    def batches(
        self, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The rows in issue order; ``columns`` chooses and orders columns.

        Errors: UsageError where the file turns out damaged or time goes backwards.
        """
        absent = [name for name in columns or () if name not in self.columns]
        if absent:
            raise UsageError(f"{self.path} has no column {', '.join(absent)}")
        row, last_ts_ns = 0, 0
        for file in self._files:
            for batch in _file_batches(file, columns, batch_rows):
                if "ts_ns" in batch.schema.names:
                    ts_ns = batch.column("ts_ns").to_numpy()
                    last_ts_ns = check_order(ts_ns, last_ts_ns, row, str(self.path))
                row += batch.num_rows
                yield batch

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows at once; for traces known to be small."""
        wanted = trace_schema(tuple(set(self.columns) - set(SCHEMA.names)))
        if columns is not None:
            wanted = pa.schema([wanted.field(name) for name in columns])
        batches = [batch.cast(wanted) for batch in self.batches(columns)]
        return pa.Table.from_batches(batches, wanted).unify_dictionaries()


def open_trace(path: str | Path) -> Trace:
    """Open a trace file, or the ``.parts`` folder of a recording that did not end cleanly.

    Errors: UsageError for a missing, truncated or foreign file.
    """
    path = Path(path)
    folder = path if path.name.endswith(".parts") else segments.parts_folder(path)
    if folder.is_dir() and not path.is_file():
        return _open_segments(folder)
    if not path.is_file():
        raise UsageError(f"no such trace: {path}")
    return Trace(path, [path], _read(path, _checked_meta))


def _open_segments(folder: Path) -> Trace:
    files = segments.finished(folder)
    if not files:
        raise UsageError(f"{folder} holds no finished segment", fix=_raw_fix(folder))
    meta = [_read(file, _checked_meta) for file in files][-1]
    notes = [f"recording did not end cleanly: {len(files)} finished segments in {folder.name}"]
    skipped = segments.unfinished(folder)
    if skipped:
        notes.append(f"unfinished last segment {skipped[-1].name} skipped")
    fix = _raw_fix(folder)
    if fix:
        notes.append(f"records that came after them are not in it: {fix}")
    return Trace(folder, files, meta.noted(*notes))


def _raw_fix(folder: Path) -> str | None:
    """How to make rows of records that were not made into rows, if there are any."""
    return f"harness trace recover {folder} FILE.parquet" if segments.raw(folder) else None


def check_order(ts_ns: np.ndarray, last_ts_ns: int, first_row: int, where: str) -> int:
    """Last time in ``ts_ns`` (int64 ns); UsageError where time runs backwards."""
    if len(ts_ns) == 0:
        return last_ts_ns
    backwards = np.flatnonzero(ts_ns[1:] < ts_ns[:-1])
    if ts_ns[0] < last_ts_ns or backwards.size:
        row = first_row + (0 if ts_ns[0] < last_ts_ns else int(backwards[0]) + 1)
        raise UsageError(f"{where}: time goes backwards at row {row}: rows must be in issue order")
    return int(ts_ns[-1])


def _canonical_op(column: pa.DictionaryArray) -> pa.DictionaryArray:
    same = isinstance(column, pa.DictionaryArray) and column.dictionary.equals(OP_DICTIONARY)
    return column if same else op_column(op_codes(column))


def _file_batches(
    file: Path, columns: Sequence[str] | None, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    try:
        # Pre-buffering, the default, keeps every chunk ever read: memory would grow with the file.
        with pq.ParquetFile(file, pre_buffer=False) as source:
            for batch in source.iter_batches(batch_size=batch_rows, columns=columns):
                if columns is not None:
                    batch = batch.select(columns)
                if "op" in batch.schema.names:
                    position = batch.schema.get_field_index("op")
                    op = _canonical_op(batch.column(position))
                    batch = batch.set_column(position, SCHEMA.field("op"), op)
                yield batch.replace_schema_metadata(None)
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{file} is damaged: {error}") from error


def _read(file: Path, reader: Any) -> Any:
    try:
        return reader(file)
    except (pa.ArrowException, OSError) as error:
        raise UsageError(
            f"{file} is not a whole Parquet file: {error}",
            fix=f"if it is a trace in another format: harness trace convert {file} TRACE.parquet",
        ) from error


def _checked_meta(file: Path) -> TraceMeta:
    """Metadata of one file, with the columns checked."""
    with pq.ParquetFile(file) as source:
        metadata = source.metadata.metadata or {}
        if METADATA_KEY not in metadata:
            raise UsageError(f"{file} is Parquet but not a trace (no {METADATA_KEY.decode()} key)")
        for field in SCHEMA:
            if source.schema_arrow.get_field_index(field.name) < 0:
                raise UsageError(f"{file}: column {field.name} is missing")
            found = source.schema_arrow.field(field.name).type
            if found != field.type:
                raise UsageError(f"{file}: column {field.name} is {found}, expected {field.type}")
        return TraceMeta.from_json(metadata[METADATA_KEY], str(file))
