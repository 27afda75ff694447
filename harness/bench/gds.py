"""``bench gds``: the same read plans into a GPU's memory, every way there is, each one proven.

Where there is no GPU the host reader serves, tagged by its own transport, and the GPU's cells are
listed as not measured, with the reason.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.bench.cells import Runner
from harness.bench.devicefacts import beneath, device_facts, stand_in
from harness.bench.drive import Engine
from harness.bench.gdscells import CopyCell, GpuCell, HostCell, cell_id, copy_id
from harness.bench.gpuprocess import GpuProcess
from harness.bench.grid import Gds, Grid, gds_placements
from harness.bench.journal import Journal
from harness.bench.placed import WRITE_BYTES, WRITE_DEPTH, Placed, Region, needed_bytes
from harness.bench.plans import interleave, make_plan
from harness.bench.results import BenchResult, Skipped
from harness.bench.rounds import Budget, run_rounds
from harness.bench.summary import summarise
from harness.core.errors import MeasurementError, UsageError
from harness.core.host import host_facts
from harness.core.progress import Progress, quiet
from harness.device.buffers import PayloadPool
from harness.device.guard import open_guarded
from harness.doctor.registry import missing


def why_not(mode: str) -> str | None:
    """Why ``mode`` cannot be measured on this machine; None if it may be tried."""
    needed = ["gpu"] if mode in ("host-staged", "copy") else ["gpu", "kvikio"]
    if mode == "gds":
        needed.append("nvidia-fs")
    lacking = missing(needed)
    return "; ".join(f"{found.check.name}: {found.outcome.detail}" for found in lacking) or None


def gds_bytes(grid: Grid) -> int:
    """Bytes that the stores of a grid's ``gds`` part need, side by side."""
    return sum(needed_bytes(placement) for part in grid.gds for placement in gds_placements(part))


def gds_on_file(
    directory: Path, grid: Grid, *, progress: Progress = quiet, journal: Path | None = None
) -> BenchResult:
    """``bench_gds`` on a file of its own in ``directory``, removed afterwards."""
    _need_part(grid)
    beneath_it, size = beneath(directory), gds_bytes(grid)
    handle, path = tempfile.mkstemp(prefix=".harness-gds-", dir=directory)
    os.close(handle)
    try:
        fd = os.open(path, os.O_RDWR | os.O_DIRECT)
        try:
            os.posix_fallocate(fd, 0, size)
            return bench_gds(
                path, fd, size, grid, device=device_facts(beneath_it),
                stand_in=stand_in(beneath_it.name), progress=progress, journal=journal,
            )  # fmt: skip
        finally:
            os.close(fd)
    finally:
        os.unlink(path)


def gds_on_device(
    device: str, destroy: str | None, grid: Grid, *, progress: Progress = quiet,
    journal: Path | None = None,
) -> BenchResult:  # fmt: skip
    """``bench_gds`` on a block device that the guard lets through."""
    with open_guarded(device, destroy=destroy) as target:
        return bench_gds(
            target.path, target.fd, target.size_bytes, grid, device=device_facts(target.info),
            stand_in=stand_in(target.name), progress=progress, journal=journal,
        )  # fmt: skip


def bench_gds(
    path: str,
    fd: int,
    size_bytes: int,
    grid: Grid,
    *,
    device: dict[str, Any],
    stand_in: str | None,
    progress: Progress = quiet,
    journal: Path | None = None,
) -> BenchResult:
    """Measure the ``gds`` parts of ``grid`` on ``path``, which is overwritten through ``fd``.

    Parameters
    ----------
    path, fd, size_bytes
        A file or device, its O_DIRECT descriptor, and its size.
    device, stand_in
        Facts for the record.
    journal
        File of samples. If it exists, from the same grid and device, the run continues it.

    Raises
    ------
    UsageError
        The grid has no ``gds`` part, or names an unknown store or model, or a journal of another
        run.
    MeasurementError
        The device failed. What a GPU or its driver refuses is a cell not measured.
    """
    _need_part(grid)
    started, clock = datetime.now(UTC), time.monotonic()
    key = {
        "gds": grid.model_dump(mode="json"),
        "device": [device.get("model"), device.get("serial"), device.get("size_bytes")],
    }
    run = _Run(path, size_bytes, grid, Journal(key, journal))
    try:
        with ExitStack() as stack:
            for number, part in enumerate(grid.gds):
                run.budget.next_part(len(grid.gds) - number)
                run.part(stack, number, part, fd, progress)
    finally:
        run.journal.close()
    return summarise(
        grid, device, stand_in, run.journal, run.skipped, [], fio_version="",
        started=started, duration_s=time.monotonic() - clock, cut=run.budget.cut,
        host=host_facts(), not_measured=run.not_measured,
    )  # fmt: skip


def _need_part(grid: Grid) -> None:
    if not grid.gds:
        raise UsageError(f"grid {grid.name} has no gds part")


class _Run:
    def __init__(self, path: str, size_bytes: int, grid: Grid, journal: Journal) -> None:
        self.path, self.size_bytes, self.grid, self.journal = path, size_bytes, grid, journal
        self.budget = Budget.start(grid.budget_s)
        self.skipped: list[Skipped] = []
        self.not_measured: dict[str, str] = {}
        self._base = 0

    def part(self, stack: ExitStack, number: int, part: Gds, fd: int, progress: Progress) -> None:
        """Lay out one part's stores and measure its cells in rounds."""
        workers = self._workers(stack, part)
        if self._complete(number, part, workers):
            self._base += sum(needed_bytes(placement) for placement in gds_placements(part))
            return
        placed = list(self._placed(part, fd, progress))
        cells: list[Runner] = []
        for one in placed:
            cells += self._cells(part, one, workers)
        copier = next(iter(workers.values()), None)
        if copier is not None:
            cells += [CopyCell(copier, size) for size in part.copy_bytes]
        # What a GPU's libraries refuse shows at the first sample.
        good = [cell for cell in cells if self._works(cell)]
        run_rounds(good, self.grid, number, self.journal, self.budget, progress)
        for cell in good:
            self.journal.describe(cell.id, cell.facts)

    def _placed(self, part: Gds, fd: int, progress: Progress) -> Iterator[Placed]:
        pool = PayloadPool(WRITE_DEPTH, WRITE_BYTES, self.grid.seed)
        with Engine(fd, WRITE_DEPTH, WRITE_BYTES, pool) as writer:
            for placement in gds_placements(part):
                size = needed_bytes(placement)
                if self._base + size > self.size_bytes:
                    raise UsageError(f"{self.path} holds {self.size_bytes} bytes, too few")
                placed = Placed(placement, Region(self._base, size), self.grid.seed)
                placed.write(writer, progress)
                self._base += size
                yield placed

    def _workers(self, stack: ExitStack, part: Gds) -> dict[str, GpuProcess]:
        """A worker for every mode that this machine has; why not, for the others."""
        workers: dict[str, GpuProcess] = {}
        for mode in part.modes:
            reason = why_not(mode)
            if reason is None:
                try:
                    worker = GpuProcess(mode, self.path, part.threads[0], part.task_bytes[0])
                    workers[mode] = stack.enter_context(worker)
                    continue
                except MeasurementError as error:
                    reason = str(error)
            self.not_measured[f"gds mode {mode}"] = reason
        if not workers:
            reason = why_not("copy") or "no worker could be started"
            self.not_measured["copy to the GPU (B_pcie)"] = reason
        return workers

    def _complete(self, number: int, part: Gds, workers: dict[str, GpuProcess]) -> bool:
        """Whether an earlier, interrupted run left all samples of a part."""
        names = [
            cell_id(placement, name, threads, task)
            for placement in gds_placements(part)
            for name in (*part.host, *workers)
            for threads in part.threads
            for task in part.task_bytes
        ]
        names += [copy_id(size) for size in part.copy_bytes if workers]
        last = self.grid.repeats - 1
        return all(n in self.journal.facts and self.journal.has(n, number, last) for n in names)

    def _cells(self, part: Gds, placed: Placed, workers: dict[str, GpuProcess]) -> list[Runner]:
        plan = interleave(
            [
                make_plan(ranges, "window", gap_bytes=part.gap_bytes, read_bytes=part.read_bytes)
                for ranges in placed.sessions
            ]
        )
        seconds = self.grid.sample_seconds
        cells: list[Runner] = []
        for threads in part.threads:
            for task in part.task_bytes:
                for name in part.host:
                    host = HostCell(placed, plan, name, threads, task, seconds)
                    cells.append(host.bind(self.path))
                for mode, worker in workers.items():
                    gpu = GpuCell(placed, plan, mode, threads, task, seconds)
                    cells.append(gpu.bind(worker))
        return cells

    def _works(self, cell: Runner) -> bool:
        if isinstance(cell, HostCell):
            return True  # an error of ours or of the device ends the run
        try:
            cell.sample()
        except MeasurementError as error:
            self.skipped.append(Skipped(id=cell.id, reason=str(error)))
            return False
        return True
