"""Scaling a trace: its speed, the size of its device, its alignment.

Addresses (``mode``):

* ``keep``: unchanged; the trace must fit the new size.
* ``compact``: touched pages are packed in address order. Nothing is aliased, whole requests stay
  whole, what is untouched disappears.
* ``stretch``: granules are spread over (or squeezed into) the new size in proportion.
* ``fold``: addresses modulo the new size.
* ``auto``: ``keep`` where the trace fits, else ``compact``.

Stretched and folded traces are marked in their history: write amplification of such a trace is
an artefact of the scaling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.core.errors import UsageError
from harness.core.ops import PAGE_BYTES, SECTOR_BYTES
from harness.core.units import format_size
from harness.trace.columns import pages_touched
from harness.trace.footprint import Footprint, Ranker, outer_pages
from harness.trace.schema import DeviceMeta, TraceMeta
from harness.trace.source import Source

Mode = Literal["auto", "keep", "compact", "stretch", "fold"]
MODES: tuple[str, ...] = get_args(Mode)
GRANULE_BYTES = 1 << 20


@dataclass(frozen=True)
class Scaling:
    """What to do. ``time`` 0.5 halves all times; sizes in bytes, ``align`` a multiple of 512.

    ``granule_bytes`` is what ``stretch`` moves as one; requests are cut at its multiples.
    """

    time: float = 1.0
    size_bytes: int | None = None
    mode: Mode = "auto"
    align: int = SECTOR_BYTES
    granule_bytes: int = GRANULE_BYTES
    allow_alias: bool = False

    def check(self) -> None:
        """UsageError for values that make no sense."""
        if not 0 < self.time < 1e9:
            raise UsageError(f"the time factor must be positive: {self.time}")
        if self.align <= 0 or self.align % SECTOR_BYTES:
            raise UsageError(f"alignment must be a multiple of {SECTOR_BYTES}: {self.align}")
        if self.granule_bytes <= 0 or self.granule_bytes % PAGE_BYTES:
            raise UsageError(f"granule must be a multiple of {PAGE_BYTES}: {self.granule_bytes}")
        if self.size_bytes is not None and self.size_bytes < self.granule_bytes:
            raise UsageError(f"the new size must be at least a granule: {self.size_bytes}")
        if self.size_bytes is not None and self.size_bytes % self.align:
            raise UsageError(f"the new size must be a multiple of the alignment: {self.size_bytes}")


@dataclass(frozen=True)
class ScaleReport:
    """What a scaling did; ``aliased_pages`` distinct 4 KiB pages now share another one's place."""

    mode: str
    source_bytes: int
    target_bytes: int
    touched_bytes: int
    aliased_pages: int
    cut_requests: int
    widened_requests: int

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)


class ScaledTrace:
    """A source seen through a scaling; ``report`` is complete after ``batches``."""

    def __init__(self, source: Source, scaling: Scaling) -> None:
        scaling.check()
        self.path: Path = source.path
        self.columns: list[str] = source.columns
        self._source = source
        self._scaling = scaling
        self._plan = _plan(source, scaling)
        self._after = Footprint()
        self._cut = self._widened = 0
        self.meta: TraceMeta = self._new_meta()

    @property
    def report(self) -> ScaleReport:
        """What happened to addresses and requests."""
        plan = self._plan
        aliased = plan.touched_pages - self._after.pages if plan.mode in ("stretch", "fold") else 0
        return ScaleReport(
            mode=plan.mode,
            source_bytes=plan.source_bytes,
            target_bytes=plan.target_bytes,
            touched_bytes=plan.touched_pages * PAGE_BYTES,
            aliased_pages=max(aliased, 0),
            cut_requests=self._cut,
            widened_requests=self._widened,
        )

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The scaled rows in issue order. UsageError for aliases that nobody asked for."""
        for batch in self._source.batches():
            scaled = self._scaled(batch)
            yield scaled if columns is None else scaled.select(list(columns))
        aliased = self.report.aliased_pages
        if aliased and not self._scaling.allow_alias:
            raise UsageError(
                f"{self.path}: {self._plan.mode} to {format_size(self._plan.target_bytes)} would "
                f"put {aliased} distinct 4 KiB pages on top of others",
                fix="--mode compact aliases nothing; --allow-alias accepts it",
            )
        self.meta = self._new_meta()

    def _new_meta(self) -> TraceMeta:
        meta, plan, scaling = self._source.meta, self._plan, self._scaling
        steps = []
        if scaling.time != 1.0:
            steps.append(f"scale time x{scaling.time:g} (latencies as measured)")
        if scaling.size_bytes is not None:
            steps.append(
                f"scale {plan.mode} {plan.source_bytes} -> {plan.target_bytes} bytes, "
                f"{self.report.aliased_pages} pages aliased"
            )
            old = meta.device or DeviceMeta()
            device = old.model_copy(update={"size_bytes": plan.target_bytes})
            meta = meta.model_copy(update={"device": device})
        if scaling.align != SECTOR_BYTES:
            steps.append(f"scale align {scaling.align}, {self._widened} requests widened")
        if scaling.time != 1.0:
            meta = meta.model_copy(update={"clock_zero_ns": None})
        return meta.transformed(*steps)

    def _scaled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._scaling.time != 1.0:
            ts_ns = np.round(batch.column("ts_ns").to_numpy() * self._scaling.time)
            batch = _replaced(batch, ts_ns=ts_ns.astype(np.int64))
        start = batch.column("lba").to_numpy() * np.uint64(SECTOR_BYTES)
        size = batch.column("bytes").to_numpy()
        row, start, size = self._plan.map(start, size)
        self._cut += len(row) - batch.num_rows
        if len(row) != batch.num_rows:
            batch = batch.take(pa.array(row))
        start, size = self._aligned(start, size)
        used = size > 0
        self._after.add(np.zeros(int(used.sum()), np.uint32), *outer_pages(start[used], size[used]))
        lba = start // np.uint64(SECTOR_BYTES)
        return _replaced(batch, lba=lba, bytes=size, pages=pages_touched(lba, size))

    def _aligned(
        self, start: npt.NDArray[np.uint64], size: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        align = np.uint64(self._scaling.align)
        low = start // align * align
        high = (start + size + (align - np.uint64(1))) // align * align
        new = np.where(size > 0, high - low, np.uint64(0))
        self._widened += int(np.count_nonzero((new != size) | (low != start)))
        return low, new


Mapped = tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64], npt.NDArray[np.uint64]]


@dataclass(frozen=True)
class _Plan:
    mode: str
    source_bytes: int
    target_bytes: int
    touched_pages: int
    granule_bytes: int
    ranker: Ranker

    def map(self, start: npt.NDArray[np.uint64], size: npt.NDArray[np.uint64]) -> Mapped:
        """Extents in bytes -> (row each came from, new start, size)."""
        if self.mode == "keep":
            return np.arange(len(start)), start, size
        if self.mode == "compact":
            return np.arange(len(start)), self._compacted(start, size), size
        piece = self.granule_bytes if self.mode == "stretch" else self.target_bytes
        row, granule, begin, length = _cut(start, size, piece)
        if self.mode == "fold":
            return row, (begin % np.uint64(piece)).astype(np.uint64), length
        old, new = -(-self.source_bytes // piece), self.target_bytes // piece
        moved = granule.astype(np.uint64) * np.uint64(new) // np.uint64(max(old, 1))
        return row, (moved * np.uint64(piece) + begin % np.uint64(piece)).astype(np.uint64), length

    def _compacted(
        self, start: npt.NDArray[np.uint64], size: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.uint64]:
        page = np.uint64(PAGE_BYTES)
        moved = np.zeros(len(start), np.uint64)
        used = size > 0
        rank = self.ranker.rank((start[used] // page).astype(np.int64)).astype(np.uint64)
        moved[used] = rank * page + start[used] % page
        return moved


def _cut(
    start: npt.NDArray[np.uint64], size: npt.NDArray[np.uint64], piece: int
) -> tuple[npt.NDArray[Any], ...]:
    """Extents cut at multiples of ``piece``: (row, piece number, start, size); empty ones kept."""
    unit = np.uint64(piece)
    first = (start // unit).astype(np.int64)
    last = ((start + np.maximum(size, np.uint64(1)) - np.uint64(1)) // unit).astype(np.int64)
    parts = last - first + 1
    row = np.repeat(np.arange(len(start)), parts)
    number = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts) + first[row]
    begin = np.maximum(start[row], number.astype(np.uint64) * unit)
    end = np.minimum(start[row] + size[row], (number + 1).astype(np.uint64) * unit)
    return row, number, begin, np.where(end > begin, end - begin, np.uint64(0))


def _plan(source: Source, scaling: Scaling) -> _Plan:
    """One pass over the addresses, where they are to be changed, to know what is touched."""
    footprint = Footprint()
    top = 0
    devices: set[int] = set()
    if scaling.size_bytes is not None:
        for batch in source.batches(["lba", "bytes", "dev"]):
            devices |= set(np.unique(batch.column("dev").to_numpy()).tolist())
            size = batch.column("bytes").to_numpy()
            start = batch.column("lba").to_numpy()[size > 0] * np.uint64(SECTOR_BYTES)
            size = size[size > 0]
            if len(size):
                top = max(top, int((start + size).max()))
                footprint.add(np.zeros(len(size), np.uint32), *outer_pages(start, size))
    if len(devices) > 1:
        raise UsageError(
            f"{source.path} has {len(devices)} devices; sizes are scaled one device at a time",
            fix="harness trace slice IN OUT --dev MAJOR:MINOR",
        )
    known = source.meta.device.size_bytes if source.meta.device else None
    source_bytes = max(known or 0, top)
    target = scaling.size_bytes if scaling.size_bytes is not None else source_bytes
    mode = _mode(scaling, top, footprint.pages * PAGE_BYTES, target, source.path)
    return _Plan(
        mode, source_bytes, target, footprint.pages, scaling.granule_bytes, footprint.ranker()
    )


def _mode(scaling: Scaling, top: int, touched: int, target: int, path: Path) -> str:
    mode = scaling.mode
    if scaling.size_bytes is None:
        return "keep"
    if mode == "auto":
        mode = "keep" if top <= target else "compact"
    if mode == "keep" and top > target:
        raise UsageError(
            f"{path} reaches {format_size(top)}, beyond the new size {format_size(target)}",
            fix="--mode compact, stretch or fold",
        )
    if mode == "compact" and touched > target:
        raise UsageError(
            f"{path} touches {format_size(touched)}, more than the new size {format_size(target)}",
            fix="--mode fold --allow-alias puts distinct pages on top of each other",
        )
    return mode


def _replaced(batch: pa.RecordBatch, **arrays: npt.NDArray[Any]) -> pa.RecordBatch:
    for name, values in arrays.items():
        position = batch.schema.get_field_index(name)
        field = batch.schema.field(position)
        batch = batch.set_column(position, field, pa.array(values, field.type))
    return batch
