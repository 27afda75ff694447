"""``bench layout``: lay sessions out as stores do, read them back, compare the layouts."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from harness.bench.cells import Bench, PlanCell, Runner, plan_id
from harness.bench.drive import Engine
from harness.bench.fio import Fio, find_fio
from harness.bench.grid import Grid, Group, Placement, groups
from harness.bench.journal import Journal
from harness.bench.placed import WRITE_BYTES, WRITE_DEPTH, Placed, Region, needed_bytes
from harness.bench.reference import ReferenceCell, RingSequential
from harness.bench.results import BenchResult, Skipped
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


def loop_bytes(grid: Grid) -> int:
    """Size of the loop device that a grid needs: the reference region and its largest group."""
    largest = max((sum(_sizes(grid, group)) for group in groups(grid)), default=0)
    needed = grid.reference_bytes + largest
    return max(grid.device_bytes or 0, -(-needed // WRITE_BYTES) * WRITE_BYTES)


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
    for part in grid.layouts:  # before anything is written
        for store in part.stores:
            load_store_spec(store)
        for model in part.models:
            load_model(model)
    used = fio or find_fio()
    started, clock = datetime.now(UTC), time.monotonic()
    run = _Run(target, grid, used, Journal(_key(target, grid), journal), progress)
    try:
        run.all_groups()
    finally:
        run.journal.close()
    return summarise(
        grid, target, run.journal, run.skipped, fio_version=used.text, started=started,
        duration_s=time.monotonic() - clock, cut=run.budget.cut, host=host_facts(),
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
            if todo or self.grid.reference:
                self._fill_reference(writer)
            for number, group in todo:
                self._group(bench, writer, number, group)
            cells = self._reference_cells(bench)
            if cells:
                self._measure(cells, len(list(groups(self.grid))))

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

    def _fill_reference(self, writer: Engine) -> None:
        offset = np.arange(0, self.reference.size_bytes, WRITE_BYTES, dtype=np.uint64)
        length = np.minimum(np.uint64(WRITE_BYTES), np.uint64(self.reference.size_bytes) - offset)
        self.progress(0, None, "filling the reference region")
        writer.run(offset, length, write=True)

    def _group(self, bench: Bench, writer: Engine, number: int, group: Group) -> None:
        sizes = _sizes(self.grid, group)
        needed = self.reference.size_bytes + sum(sizes)
        if needed > self.target.size_bytes:
            reason = (
                f"the device holds {format_size(self.target.size_bytes)}, this group needs "
                f"{format_size(needed)}"
            )
            self._skip(group, group.placements, reason, needed)
            return
        cells = self._anchors(bench, group)
        base = self.reference.size_bytes
        for placement, size in zip(group.placements, sizes, strict=True):
            try:
                placed = Placed(placement, Region(base, size), self.grid.seed)
                placed.write(writer, self.progress)
            except UsageError as error:
                self._skip(group, (placement,), str(error), None)
                continue
            finally:
                base += size
            cells += self._plan_cells(bench, placed, group)
        self._measure(cells, number)

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

    def _skip(
        self, group: Group, placements: tuple[Placement, ...], reason: str, needed: int | None
    ) -> None:
        for placement in placements:
            for read in group.reads:
                name = plan_id(placement, read)
                self.skipped.append(Skipped(id=name, reason=reason, needed_bytes=needed))


def _key(target: Target, grid: Grid) -> dict[str, Any]:
    info = target.info
    # A loop device of our own has no identity that outlives it: its size has to do.
    return {
        "grid": grid.model_dump(mode="json"),
        "device": [info.model, info.serial, info.size_bytes],
    }


def _sizes(grid: Grid, group: Group) -> list[int]:
    return [grid.region_bytes or needed_bytes(placement) for placement in group.placements]
