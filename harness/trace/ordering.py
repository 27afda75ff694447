"""Sorting a stream of batches by time in bounded memory, stably.

Recorders print rows a little out of order (each CPU has its own buffer). ``sort_window`` sorts
within a window of rows as it goes; where rows are further off, ``sort_externally`` spills
sorted runs to disk and merges them.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from harness.core.errors import UsageError
from harness.trace.merging import join, merge_streams, sort_batch, times

WINDOW_ROWS = 1 << 20
RUN_ROWS = 1 << 21
_MERGE_ROWS = 1 << 14


class OutOfWindow(UsageError):
    """A row is older than rows that have already been passed on."""


def sort_window(
    batches: Iterator[pa.RecordBatch], where: str, window_rows: int = WINDOW_ROWS
) -> Iterator[pa.RecordBatch]:
    """``batches`` in time order, as long as no row is more than ``window_rows`` rows late.

    OutOfWindow, naming ``where``, for a row that is later.
    """
    held: deque[pa.RecordBatch] = deque()
    held_rows, passed_ns = 0, None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        batch = sort_batch(batch)
        first_ns = int(times(batch)[0])
        if passed_ns is not None and first_ns < passed_ns:
            raise OutOfWindow(
                f"{where}: a row lies {(passed_ns - first_ns) / 1e9:.6g} s before rows that came "
                f"more than {window_rows} rows earlier",
                fix="harness trace convert sorts such a file on disk",
            )
        held_rows += batch.num_rows
        overlapping = [batch]
        while held and int(times(held[-1])[-1]) > first_ns:
            overlapping.insert(0, held.pop())
        held.append(sort_batch(join(overlapping)) if len(overlapping) > 1 else batch)
        while held and held_rows - held[0].num_rows >= window_rows:
            ready = held.popleft()
            held_rows -= ready.num_rows
            passed_ns = int(times(ready)[-1])
            yield ready
    yield from held


def sort_externally(
    batches: Iterator[pa.RecordBatch], folder: Path, run_rows: int = RUN_ROWS
) -> Iterator[pa.RecordBatch]:
    """``batches`` in time order, whatever their order; needs disk space in ``folder``."""
    with tempfile.TemporaryDirectory(prefix=".trace-sort-", dir=folder) as temporary:
        runs: list[Path] = []
        held: list[pa.RecordBatch] = []
        held_rows = 0
        for batch in batches:
            held.append(batch)
            held_rows += batch.num_rows
            if held_rows >= run_rows:
                runs.append(_spill(held, Path(temporary) / f"{len(runs)}.arrow"))
                held, held_rows = [], 0
        last = [sort_batch(join(held))] if held else []
        yield from merge_streams([*map(_read_run, runs), iter(last)])


def _spill(batches: list[pa.RecordBatch], path: Path) -> Path:
    run = sort_batch(join(batches))
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(path, run.schema, options=options) as writer:
        for start in range(0, run.num_rows, _MERGE_ROWS):
            writer.write_batch(run.slice(start, _MERGE_ROWS))
    return path


def _read_run(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
        yield from reader
