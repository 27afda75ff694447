"""A part of a trace: by time, operation, device, address range or number of requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.core.errors import UsageError
from harness.core.ops import OP_LETTERS, SECTOR_BYTES
from harness.trace.clock import shifted_start
from harness.trace.columns import op_codes
from harness.trace.schema import SCHEMA, TraceMeta
from harness.trace.source import Source


@dataclass(frozen=True)
class Cut:
    """What to keep; None keeps all.

    Times in ns since the trace's start, [from, to); byte offsets [low, high) that a request must
    touch; ``ops`` operation letters; ``devices`` as in the column ``dev``; ``first`` requests.
    """

    from_ns: int | None = None
    to_ns: int | None = None
    ops: str | None = None
    devices: tuple[int, ...] | None = None
    low: int | None = None
    high: int | None = None
    first: int | None = None

    def check(self) -> None:
        """UsageError for ranges and letters that cannot be."""
        unknown = set(self.ops or "") - set(OP_LETTERS)
        if unknown:
            raise UsageError(f"not an operation: {', '.join(sorted(unknown))}; of {OP_LETTERS}")
        for low, high, what in (
            (self.from_ns, self.to_ns, "time"),
            (self.low, self.high, "address"),
        ):
            if low is not None and high is not None and low >= high:
                raise UsageError(f"the {what} range is empty: {low} to {high}")

    def describe(self) -> str:
        """The cut as kept in a trace's history."""
        said = [f"{name}={value}" for name, value in vars(self).items() if value is not None]
        return f"slice {' '.join(said)}"


def device_number(text: str) -> int:
    """``"259:0"`` or a plain number as in the column ``dev``; UsageError for anything else."""
    major, colon, minor = text.rpartition(":")
    if not minor.isdigit() or (colon and not major.isdigit()):
        raise UsageError(f"not a device number: {text!r} (examples: 259:0, 7340032)")
    number = int(major or 0) << 20 | int(minor)
    if number >= 2**32:
        raise UsageError(f"device number out of range: {text}")
    return number


class SlicedTrace:
    """The rows of ``source`` that a cut keeps, times again from 0."""

    def __init__(self, source: Source, cut: Cut) -> None:
        cut.check()
        self.path: Path = source.path
        self.columns: list[str] = source.columns
        self._source = source
        self._cut = cut
        self.meta: TraceMeta = source.meta.transformed(cut.describe())

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The kept rows; UsageError when there is none."""
        zero_ns: int | None = None
        left = self._cut.first
        for batch in self._source.batches():
            ts_ns = batch.column("ts_ns").to_numpy()
            if self._cut.to_ns is not None and len(ts_ns) and ts_ns[0] >= self._cut.to_ns:
                break
            kept = np.flatnonzero(self._keep(batch, ts_ns))[:left]
            if len(kept) == 0:
                continue
            if zero_ns is None:
                zero_ns = int(ts_ns[kept[0]])
            part = batch if len(kept) == batch.num_rows else batch.take(pa.array(kept))
            part = part.set_column(0, SCHEMA.field("ts_ns"), pa.array(ts_ns[kept] - zero_ns))
            yield part if columns is None else part.select(list(columns))
            if left is not None:
                left -= len(kept)
                if left == 0:
                    break
        if zero_ns is None:
            raise UsageError(f"{self.path}: the slice holds no request")
        self.meta = shifted_start(self._source.meta.transformed(self._cut.describe()), zero_ns)

    def _keep(self, batch: pa.RecordBatch, ts_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        cut = self._cut
        keep = np.ones(batch.num_rows, bool)
        if cut.from_ns is not None:
            keep &= ts_ns >= cut.from_ns
        if cut.to_ns is not None:
            keep &= ts_ns < cut.to_ns
        if cut.ops is not None:
            wanted = [OP_LETTERS.index(letter) for letter in cut.ops]
            keep &= np.isin(op_codes(batch.column("op")), wanted)
        if cut.devices is not None:
            keep &= np.isin(batch.column("dev").to_numpy(), np.array(cut.devices, np.uint32))
        if cut.low is not None or cut.high is not None:
            start = batch.column("lba").to_numpy() * np.uint64(SECTOR_BYTES)
            end = start + batch.column("bytes").to_numpy()
            if cut.low is not None:
                keep &= end > np.uint64(cut.low)
            if cut.high is not None:
                keep &= start < np.uint64(cut.high)
        return keep
