"""From any readable trace format to any that can be written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.core.errors import UsageError
from harness.core.files import whole_file
from harness.core.progress import Progress, quiet
from harness.trace.formats import FORMATS, PARQUET, by_extension, detect, named
from harness.trace.formats.base import Format, Writing
from harness.trace.ordering import OutOfWindow, sort_externally
from harness.trace.parquet import Trace, TraceWriter
from harness.trace.schema import OPTIONAL
from harness.trace.source import Sorter, Source, open_source


@dataclass(frozen=True)
class Conversion:
    """What a conversion did. ``notes`` say what the input lacked and the output cannot hold."""

    source: str
    target: str
    rows: int
    bad_lines: int
    path: str
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return asdict(self) | {"notes": list(self.notes)}


def convert(
    source: str | Path,
    target: str | Path,
    *,
    form: str | None = None,
    to: str | None = None,
    skip_bad: int = 0,
    overwrite: bool = False,
    progress: Progress = quiet,
) -> Conversion:
    """Convert ``source`` to ``target``; formats by content and extension unless forced.

    Memory does not grow with the trace. Input that is far out of time order is sorted on disk
    beside ``target``. Nothing is left under ``target`` unless all of it was written.
    Errors: UsageError for what cannot be read, or for a ``target`` in the way.
    """
    source, target = Path(source), Path(target)
    check_target(target, overwrite, source)
    source_name = named(form) if form else detect(source)
    target_name = named(to, writable=True) if to else by_extension(target)
    target.parent.mkdir(parents=True, exist_ok=True)

    def run(sort: Sorter | None) -> Conversion:
        opened = open_source(
            source, form=source_name, skip_bad=skip_bad, progress=progress, sort=sort
        )
        rows, lost = write_source(opened, target, target_name, progress)
        notes = (*opened.meta.notes, *lost)
        bad_lines = getattr(opened, "bad_lines", 0)
        return Conversion(source_name, target_name, rows, bad_lines, str(target), notes)

    try:
        return run(None)
    except OutOfWindow:
        progress(0, None, "sorting on disk")
        return run(lambda batches: sort_externally(batches, target.parent))


def check_target(target: Path, overwrite: bool, *sources: Path) -> None:
    """UsageError when ``target`` exists and may not be replaced, or is one of ``sources``."""
    if not target.exists():
        return
    if any(source.exists() and target.samefile(source) for source in sources):
        raise UsageError(f"{target} is both input and output")
    if not overwrite:
        raise UsageError(f"{target} exists", fix="choose another name, or replace it with --force")


def write_source(
    source: Source, target: Path, name: str, progress: Progress = quiet
) -> tuple[int, list[str]]:
    """Write ``source`` in the format ``name``; returns (rows, what the format could not hold)."""
    counted = _Counted(source, progress)
    if name == PARQUET:
        optional = tuple(column for column in source.columns if column in OPTIONAL)
        with TraceWriter(target, source.meta, optional, durable=False) as writer:
            for batch in counted:
                writer.write(batch)
            writer.meta = source.meta
        return counted.rows, []
    lost = _write_foreign(counted, source, target, FORMATS[name])
    return counted.rows, lost


def _write_foreign(
    batches: Iterator[pa.RecordBatch], source: Source, target: Path, form: Format
) -> list[str]:
    writing = Writing(source.meta)
    assert form.write is not None
    with whole_file(target) as temporary:
        form.write(batches, temporary, writing)
    return writing.all_notes()


class _Counted:
    """The batches of a source, counted, with progress where the source reports none itself."""

    def __init__(self, source: Source, progress: Progress) -> None:
        self._batches = source.batches()
        self._total = source.rows if isinstance(source, Trace) else None
        self._progress = progress
        self.rows = 0

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        self.rows += batch.num_rows
        if self._total is not None:
            self._progress(self.rows, self._total)
        return batch
