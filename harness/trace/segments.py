"""Finished pieces of a trace that is still being written, in ``PATH.parts/``.

An unclosed Parquet file cannot be read, so a recorder that may die writes whole segments. The
segment being written carries another suffix; after a crash it is skipped.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_OPEN_SUFFIX = ".open"
_DONE_SUFFIX = ".parquet"
_RAW_SUFFIX = ".raw"

PARQUET_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["op", "bytes", "pages", "flags", "dev", "pid", "comm", "error"],
}

# A recorder shares the machine with what it records: half the time, twice the size, until joined.
SEGMENT_OPTIONS: dict[str, Any] = {
    "compression": "lz4",
    "use_dictionary": False,
    "write_statistics": False,
}


def parts_folder(path: Path) -> Path:
    """Folder of the segments of the trace ``path``."""
    return path.with_name(path.name + ".parts")


def open_name(folder: Path, number: int) -> Path:
    """Where segment ``number`` lies while it is written."""
    return folder / f"{number:06d}{_OPEN_SUFFIX}"


def finish(segment: Path) -> Path:
    """Give a closed segment its final name."""
    return segment.rename(segment.with_suffix(_DONE_SUFFIX))


def finished(folder: Path) -> list[Path]:
    """Segments that are complete, in order."""
    return sorted(folder.glob(f"*{_DONE_SUFFIX}"))


def unfinished(folder: Path) -> list[Path]:
    """Segments that were being written when the recorder died (or still are)."""
    return sorted(folder.glob(f"*{_OPEN_SUFFIX}"))


def raw_name(folder: Path, number: int) -> Path:
    """Where a recorder puts records of which it has made no rows yet."""
    return folder / f"{number:06d}{_RAW_SUFFIX}"


def raw(folder: Path) -> list[Path]:
    """Files of records of which no rows were made, in order."""
    return sorted(folder.glob(f"*{_RAW_SUFFIX}"))


def append_segment(
    writer: pq.ParquetWriter,
    segment: Path,
    first_row: int,
    amended: Mapping[int, tuple[int, int]],
) -> int:
    """Copy ``segment`` into ``writer``, one row group in memory at a time; its number of rows.

    Its first row is the trace's row ``first_row``; ``amended`` has (latency in ns, error) of rows
    whose end was seen when they had been written.
    """
    rows = 0
    with pq.ParquetFile(segment, pre_buffer=False) as source:
        for group in range(source.num_row_groups):
            # Each thread would keep memory of its own.
            table = source.read_row_group(group, use_threads=False)
            if amended:
                table = _amend(table, first_row + rows, amended)
            writer.write_table(table)
            rows += table.num_rows
    return rows


def _amend(table: pa.Table, first: int, amended: Mapping[int, tuple[int, int]]) -> pa.Table:
    mine = {row - first: end for row, end in amended.items() if 0 <= row - first < table.num_rows}
    if not mine:
        return table
    mask = np.zeros(table.num_rows, bool)
    mask[sorted(mine)] = True
    for number, name in enumerate(("latency_ns", "error")):
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        values = pa.array([mine[row][number] for row in sorted(mine)], field.type)
        column = pc.replace_with_mask(table.column(at).combine_chunks(), mask, values)
        table = table.set_column(at, field, column)
    return table


def remove(folder: Path) -> None:
    """Remove a folder of segments."""
    shutil.rmtree(folder)
