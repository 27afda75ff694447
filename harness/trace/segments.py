"""Finished pieces of a trace that is still being written, in ``PATH.parts/``.

An unclosed Parquet file cannot be read, so a recorder that may die writes whole segments. The
segment being written carries another suffix; after a crash it is skipped.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

_OPEN_SUFFIX = ".open"
_DONE_SUFFIX = ".parquet"

PARQUET_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["op", "bytes", "pages", "flags", "dev", "pid", "comm", "error"],
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


def append_segment(writer: pq.ParquetWriter, segment: Path) -> None:
    """Copy ``segment`` into ``writer``, one row group in memory at a time."""
    with pq.ParquetFile(segment) as source:
        for group in range(source.num_row_groups):
            writer.write_table(source.read_row_group(group))


def remove(folder: Path) -> None:
    """Remove a folder of segments."""
    shutil.rmtree(folder)
