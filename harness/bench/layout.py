"""``bench layout``: lay sessions out as stores do, read them back, compare the layouts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from harness.bench.cells import Bench, PlanCell, Runner, plan_id
from harness.bench.devicefacts import device_facts, stand_in
from harness.bench.drive import Engine
from harness.bench.fio import Fio, find_fio
from harness.bench.grid import Grid, Group, Load, Placement, groups
from harness.bench.journal import Journal
from harness.bench.loadsweep import placements, sweep
from harness.bench.outlook import size_of
from harness.bench.placed import WRITE_BYTES, WRITE_DEPTH, Placed, Region
from harness.bench.reference import ReferenceCell, RingSequential
from harness.bench.results import BenchResult, LoadPoint, Skipped
from harness.bench.rounds import Budget, run_rounds
from harness.bench.summary import summarise
from harness.core.errors import UsageError
from harness.core.host import host_facts
from harness.core.progress import Progress, quiet
from harness.core.units import format_size
from harness.device.buffers import PayloadPool
from harness.device.guard import Target, open_guarded
from harness.device.loop import LoopDevice
from harness.stores.models import load_model
from harness.stores.registry import load_store_spec

_FILL_BYTES = 256 << 20
"""Written between two reports of progress."""


def loop_bytes(grid: Grid) -> int:
    """Size of a grid's own loop device: what it says, else its reference region and largest
    group."""
    if grid.device_bytes is not None:
        return grid.device_bytes // WRITE_BYTES * WRITE_BYTES
    together = [group.placements for group in groups(grid)] + [placements(p) for p in grid.load]
    largest = max((sum(size_of(grid, place) for place in some) for some in together), default=0)
    needed = grid.reference_bytes + largest
    return -(-needed // WRITE_BYTES) * WRITE_BYTES


def bench_on_loop(
    grid: Grid, directory: Path, *, progress: Progress = quiet, journal: Path | None = None
) -> BenchResult:
    """``bench_layout`` on a loop device of its own in ``directory``; it vanishes afterwards."""
    fio = find_fio()
    with LoopDevice(loop_bytes(grid), directory) as loop:
        # Allocate now, so that the file lies in order and a full disk is found out before.
        os.posix_fallocate(loop.backing_fd, 0, loop.size_bytes)
        with open_guarded(loop.path, own=True) as target:
            return bench_layout(target, grid, fio=fio, progress=progress, journal=journal)


def bench_layout(
    target: Target,
    grid: Grid,
    *,
    fio: Fio | None = None,
    progress: Progress = quiet,
    journal: Path | None = None,
) -> BenchResult:
    """Measure every cell of ``grid`` on ``target``, which is written to from its start.

    Parameters
    ----------
    target
        A device that the guard opened for writing.
    fio
        The fio to use; the one on PATH by default.
    journal
        File of samples. If it exists, from the same grid and device, the run continues it.

    Raises
    ------
    MachineError
        fio or io_uring is missing.
    MeasurementError
        The device or fio failed.
    UsageError
        An unknown store or model, a device without room for the reference region, or a journal
        of another run.
    """
    _check_names(grid)
    used = fio or find_fio()
    started, clock = datetime.now(UTC), time.monotonic()
    run = _Run(target, grid, used, Journal(_key(target, grid), journal), progress)
    try:
        run.all_groups()
    finally:
        run.journal.close()
    return summarise(
        grid, device_facts(target.info), stand_in(target.name), run.journal, run.skipped,
        run.load, fio_version=used.text, started=started,
        duration_s=time.monotonic() - clock, cut=run.budget.cut, host=host_facts(),
        not_measured={"gpu": "bench layout reads into host memory; bench gds reads into a GPU's"},
    )  # fmt: skip


class _Run:
    """One run of a grid: what its steps share."""

    def __init__(
        self, target: Target, grid: Grid, fio: Fio, journal: Journal, progress: Progress
    ) -> None:
        self.target, self.grid, self.fio = target, grid, fio
        self.journal, self.progress = journal, progress
        self.budget = Budget.start(grid.budget_s)
        self.skipped: list[Skipped] = []
        self.load: list[LoadPoint] = []
        self.reference = Region(0, grid.reference_bytes)
        if self.reference.size_bytes > target.size_bytes:
            raise UsageError(
                f"{target.path} holds {format_size(target.size_bytes)}; the reference region alone "
                f"needs {format_size(grid.reference_bytes)} (reference_bytes of the grid)"
            )

    def all_groups(self) -> None:
        """Lay out and measure group after group, then the plain reference cells."""
        todo = [group for group in enumerate(groups(self.grid)) if not self._complete(*group)]
        with ExitStack() as stack:
            bench = Bench(self.target, self.fio, self.grid.sample_seconds, stack)
            writer = self._writer(stack)
            for number in range(self.grid.fills if todo or self.grid.reference else 0):
                whole = Region(0, self.target.size_bytes)
                self._fill(writer, whole, f"fill {number + 1} of the device")
            if todo or self.grid.reference or self.grid.load:
                self._fill(writer, self.reference, "filling the reference region")
            cells = self._reference_cells(bench)
            parts_left = len(todo) + bool(cells) + len(self.grid.load)
            for number, group in todo:
                self.budget.next_part(parts_left)
                self._group(bench, writer, number, group)
                parts_left -= 1
            if cells:
                self.budget.next_part(parts_left)
                self._measure(cells, len(list(groups(self.grid))))
                parts_left -= 1
            for done, part in enumerate(self.grid.load):
                self.budget.next_part(parts_left - done)
                self._load_sweep(bench, writer, part)

    def _complete(self, number: int, group: Group) -> bool:
        """Whether an earlier, interrupted run left all samples of a group."""
        return all(
            self.journal.has(plan_id(place, read), number, self.grid.repeats - 1)
            for place in group.placements
            for read in group.reads
        )

    def _writer(self, stack: ExitStack) -> Engine:
        pool = PayloadPool(WRITE_DEPTH, WRITE_BYTES, self.grid.seed)
        return stack.enter_context(Engine(self.target.fd, WRITE_DEPTH, WRITE_BYTES, pool))

    def _fill(self, writer: Engine, region: Region, what: str) -> None:
        """Write a region once, in order, with random data."""
        for start in range(0, region.size_bytes, _FILL_BYTES):
            end = min(start + _FILL_BYTES, region.size_bytes)
            offset = np.arange(start, end, WRITE_BYTES, dtype=np.uint64)
            length = np.minimum(np.uint64(WRITE_BYTES), np.uint64(end) - offset)
            self.progress(start, region.size_bytes, what)
            writer.run(offset + np.uint64(region.base), length, write=True)

    def _group(self, bench: Bench, writer: Engine, number: int, group: Group) -> None:
        def names(placement: Placement) -> list[str]:
            return [plan_id(placement, read) for read in group.reads]

        placed = self._lay_out(writer, group.placements, names)
        if placed:
            cells = self._anchors(bench, group)
            for one in placed:
                cells += self._plan_cells(bench, one, group)
            self._measure(cells, number)

    def _load_sweep(self, bench: Bench, writer: Engine, part: Load) -> None:
        placed = self._lay_out(writer, placements(part), lambda place: [f"load/{place.store}"])
        self.load += sweep(
            bench, part, placed, self.reference, self.journal, seed=self.grid.seed,
            budget=self.budget, progress=self.progress,
        )  # fmt: skip

    def _lay_out(
        self, writer: Engine, wanted: tuple[Placement, ...],
        names: Callable[[Placement], list[str]],
    ) -> list[Placed]:  # fmt: skip
        """Write ``wanted`` side by side behind the reference region; what fails is skipped."""
        sizes = [size_of(self.grid, placement) for placement in wanted]
        needed = self.reference.size_bytes + sum(sizes)
        if needed > self.target.size_bytes:
            reason = (
                f"the device holds {format_size(self.target.size_bytes)}, these stores need "
                f"{format_size(needed)}"
            )
            for placement in wanted:
                self._skip(names(placement), reason, needed)
            return []
        placed, base = [], self.reference.size_bytes
        for placement, size in zip(wanted, sizes, strict=True):
            try:
                one = Placed(placement, Region(base, size), self.grid.seed)
                one.write(writer, self.progress)
                placed.append(one)
            except UsageError as error:
                self._skip(names(placement), str(error), None)
            base += size
        return placed

    def _plan_cells(self, bench: Bench, placed: Placed, group: Group) -> list[Runner]:
        cells: list[Runner] = [PlanCell(bench, placed, read) for read in group.reads]
        if self.grid.compare_engines:
            plain = [read for read in group.reads if PlanCell.by_fio(read)]
            cells += [PlanCell(bench, placed, read, on_ring=True) for read in plain[:1]]
        return cells

    def _anchors(self, bench: Bench, group: Group) -> list[Runner]:
        """The device's own best for each engine that the group uses."""
        depth = max(read.queue_depth for read in group.reads)
        cells: list[Runner] = []
        for block in self.grid.anchor_bytes:
            if any(PlanCell.by_fio(read) for read in group.reads):
                cells.append(
                    ReferenceCell(bench, self.reference, "sequential", "read", block, depth)
                )
            if self.grid.compare_engines or not all(PlanCell.by_fio(r) for r in group.reads):
                cells.append(RingSequential(bench, self.reference, block, depth))
        return cells

    def _reference_cells(self, bench: Bench) -> list[Runner]:
        return [
            ReferenceCell(
                bench, self.reference, part.pattern, part.direction, block, depth, threads
            )
            for part in self.grid.reference
            for block in part.block_bytes
            for depth in part.queue_depth
            for threads in part.threads
        ]

    def _measure(self, cells: list[Runner], number: int) -> None:
        run_rounds(cells, self.grid, number, self.journal, self.budget, self.progress)
        for cell in cells:
            self.journal.describe(cell.id, cell.facts)

    def _skip(self, names: list[str], reason: str, needed: int | None) -> None:
        self.skipped += [Skipped(id=name, reason=reason, needed_bytes=needed) for name in names]


def _check_names(grid: Grid) -> None:
    """UsageError for an unknown store or model, before anything is written."""
    together = [place for group in groups(grid) for place in group.placements]
    together += [place for part in grid.load for place in placements(part)]
    for store in {place.store for place in together}:
        load_store_spec(store)
    for model in {place.model for place in together}:
        load_model(model)


def _key(target: Target, grid: Grid) -> dict[str, Any]:
    info = target.info
    # A loop device of our own has no identity that outlives it: its size has to do.
    return {
        "grid": grid.model_dump(mode="json"),
        "device": [info.model, info.serial, info.size_bytes],
    }
