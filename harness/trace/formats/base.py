"""What a trace format is, and what a reader of one shares with its caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.core.ops import SECTOR_BYTES
from harness.core.progress import Progress, quiet
from harness.trace.columns import batch_from_arrays
from harness.trace.formats.streams import Head
from harness.trace.schema import DeviceMeta, TraceMeta

ISSUE, COMPLETION = 0, 1
"""Values of the ``event`` column in formats that record both."""

_NO_SECTOR = np.uint64(2**64 - 1)
_MAX_LBA = np.uint64(2**51)
_MAX_LENGTH = np.uint64(2**50)
U64 = npt.NDArray[np.uint64]


class BadLine(Exception):
    """A block holds a line that is not of the format; ``offset`` is where it starts, if known."""

    def __init__(self, reason: str, offset: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


@dataclass
class Reading:
    """One run of a reader over ``path``: what it may tolerate and what it found out.

    The reader fills ``notes``, ``counts`` (occurrences of something worth telling), ``started``
    and the like; they are complete when its iterator is exhausted.
    """

    path: Path
    skip_bad: int = 0
    progress: Progress = quiet
    bad_lines: int = 0
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    epoch_clock: bool = False
    """Whether the source's times count from 1970."""
    host: str | None = None
    events_lost: int | None = None
    device: DeviceMeta | None = None

    def note(self, text: str) -> None:
        """Keep ``text`` once."""
        if text not in self.notes:
            self.notes.append(text)

    def all_notes(self) -> list[str]:
        """Notes and counts in the form kept in the trace's metadata."""
        counted = [f"{count} {what}" for what, count in self.counts.items() if count]
        bad = [f"{self.bad_lines} malformed lines skipped"] if self.bad_lines else []
        return [*self.notes, *counted, *bad]


@dataclass
class Writing:
    """One run of a writer: the metadata of what it writes, and what could not be said."""

    meta: TraceMeta
    counts: Counter[str] = field(default_factory=Counter)

    def drop(self, keep: npt.NDArray[np.bool_], what: str) -> None:
        """Count the rows that ``keep`` leaves out because the format cannot hold them."""
        self.counts[what] += int(len(keep) - np.count_nonzero(keep))

    def all_notes(self) -> list[str]:
        """What was lost in writing."""
        return [f"{count} {what}" for what, count in self.counts.items() if count]


@dataclass(frozen=True)
class Format:
    """A trace format. ``read`` may yield rows in any order, times in ns of any origin.

    With ``events`` its batches have a column ``event`` besides (``ISSUE`` or ``COMPLETION``) and
    are paired afterwards; without ``has_clock`` its times are row numbers. ``write`` gets batches
    in issue order and the path to fill.
    """

    name: str
    title: str
    layout: str
    detect: Callable[[Head], bool]
    read: Callable[[Reading], Iterator[pa.RecordBatch]]
    write: Callable[[Iterator[pa.RecordBatch], Path, Writing], None] | None = None
    extensions: tuple[str, ...] = ()
    events: bool = False
    has_clock: bool = True


def rows(**arrays: Any) -> pa.RecordBatch:
    """A batch of the trace schema; an ``event`` array is kept as a column of its own.

    The kernel reports a flush at sector 0 when it is issued and at sector -1 when it completes;
    both become 0. BadLine for impossible extents.
    """
    event = arrays.pop("event", None)
    check_extents(arrays["lba"], arrays["bytes"])
    if event is not None:
        nowhere = arrays["lba"] == _NO_SECTOR
        arrays["lba"] = np.where(nowhere, np.uint64(0), arrays["lba"])
    batch = batch_from_arrays({name: value for name, value in arrays.items() if value is not None})
    if event is None:
        return batch
    return batch.append_column("event", pa.array(event, pa.uint8()))


def check_extents(lba: U64, size: U64) -> None:
    """BadLine for an address (sectors) or length (bytes) that no device has: a mistaken unit."""
    if len(lba) and (size.max() > _MAX_LENGTH or lba[lba != _NO_SECTOR].max(initial=0) > _MAX_LBA):
        raise BadLine("an address beyond 1 EiB or a length beyond 1 PiB")


def whole_sectors(reading: Reading, offset: U64, length: U64) -> tuple[U64, U64]:
    """Byte extents as (first sector, bytes), widened to whole sectors where they are not."""
    sector = np.uint64(SECTOR_BYTES)
    lba = offset // sector
    odd = ((offset | length) % sector) != 0
    if not odd.any():
        return lba, length
    reading.counts["requests were widened to whole 512-byte sectors"] += int(odd.sum())
    end = (offset + length + (sector - np.uint64(1))) // sector
    return lba, np.where(length == 0, np.uint64(0), (end - lba) * sector)
