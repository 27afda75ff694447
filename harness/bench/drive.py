"""Our own ring as an engine: plans with dependencies, which no fio log can express.

A command may wait for a barrier: it is issued only once all commands before that one are done.
That is the two-layer window (a read for layer l + 2 waits until layer l has arrived), closed
loop, at a bounded queue depth.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.bench.plans import Plan
from harness.core.errors import MeasurementError
from harness.device.buffers import AlignedPool, PayloadPool
from harness.device.ring import Opcode, Ring, empty_sqes

WINDOW_LAYERS = 2
_STALL_S = 30.0


@dataclass(frozen=True)
class Driven:
    """What a drive did. ``latency_s``: float64[n], submission to completion of each command."""

    seconds: float
    cpu_seconds: float
    latency_s: NDArray[np.float64]

    def latency_us(self) -> dict[str, float]:
        """p50, p99, p99.9 and max in microseconds."""
        points = np.percentile(self.latency_s, [50, 99, 99.9, 100]) * 1e6
        return dict(zip(("p50", "p99", "p99.9", "max"), points.tolist(), strict=True))


def window_barriers(layer: NDArray[np.int64], layers: int = WINDOW_LAYERS) -> NDArray[np.int64]:
    """For each command, how many leading commands must be done before it is issued.

    ``layer`` is non-decreasing; a command of layer l waits for all of layer l - ``layers``.
    """
    return np.searchsorted(layer, layer - layers, side="right")


class Engine:
    """A ring on one descriptor with its buffers. Use as a context manager.

    Parameters
    ----------
    fd
        Opened with O_DIRECT.
    depth
        Commands in flight at most.
    largest
        Bytes of the longest command.
    pool
        Buffers to use, ``depth`` slots at least; a fresh pool by default.
    """

    def __init__(self, fd: int, depth: int, largest: int, pool: AlignedPool | None = None) -> None:
        self.fd, self.depth = fd, depth
        self.pool = pool or AlignedPool(depth, largest)
        self.ring = Ring(depth)
        self._writes = 0

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *unused: object) -> None:
        self.ring.close()

    def run(
        self,
        offset: NDArray[np.uint64],
        length: NDArray[np.uint64],
        *,
        write: bool = False,
        barrier: NDArray[np.int64] | None = None,
        staging: NDArray[np.uint8] | None = None,
    ) -> Driven:
        """Issue the commands in order, ``depth`` in flight, respecting ``barrier``.

        ``staging``: memory into which every read is copied once it is there, wrapping around:
        the second hop of a staged transfer. MeasurementError for an I/O error or a short one.
        """
        count = len(offset)
        sqes = self._prepare(offset, length, write)
        free = list(range(self.depth))
        slot_of = np.zeros(count, np.int64)
        issued_at, took = np.zeros(count), np.zeros(count)
        done = np.zeros(count, bool)
        following, leading, ended, at = 0, 0, 0, 0
        cpu, start = time.process_time(), time.perf_counter()
        while ended < count:
            limit = min(count, following + len(free))
            if barrier is not None:
                limit = min(limit, int(np.searchsorted(barrier, leading, side="right")))
            if limit > following:
                batch = slice(following, limit)
                slots = [free.pop() for _ in range(limit - following)]
                slot_of[batch] = slots
                sqes["addr"][batch] = (
                    self.pool.address + np.array(slots, np.uint64) * self.pool.slot_bytes
                )
                if write:
                    self._stamp(slots, offset[batch], length[batch])
                issued_at[batch] = time.perf_counter()
                self.submit(sqes[batch])
                following = limit
            finished = self.ring.reap(wait=1, timeout_s=_STALL_S)
            if len(finished) == 0:
                raise MeasurementError(f"the device completed nothing for {_STALL_S:.0f} s")
            which = finished["user_data"].astype(np.int64)
            _check_all(finished["res"], which, length, write)
            took[which] = time.perf_counter() - issued_at[which]
            done[which] = True
            ended += len(which)
            for index in which:
                slot = int(slot_of[index])
                if staging is not None:
                    at = self._copy(slot, int(length[index]), staging, at)
                free.append(slot)
            while leading < count and done[leading]:
                leading += 1
        end = time.perf_counter()
        return Driven(end - start, time.process_time() - cpu, took)

    def run_plan(
        self, plan: Plan, *, window: bool, staging: NDArray[np.uint8] | None = None
    ) -> Driven:
        """Read a plan, within the two-layer window or flat out."""
        barrier = window_barriers(plan.layer) if window else None
        return self.run(plan.offset, plan.length, barrier=barrier, staging=staging)

    def _prepare(
        self, offset: NDArray[np.uint64], length: NDArray[np.uint64], write: bool
    ) -> NDArray[np.void]:
        sqes = empty_sqes(len(offset))
        sqes["opcode"] = Opcode.WRITE if write else Opcode.READ
        sqes["fd"] = self.fd
        sqes["off"] = offset
        sqes["len"] = length
        sqes["user_data"] = np.arange(len(offset))
        return sqes

    def _stamp(
        self, slots: list[int], offset: NDArray[np.uint64], length: NDArray[np.uint64]
    ) -> None:
        """Make every write's content its own, where the pool knows how: drives may deduplicate."""
        if isinstance(self.pool, PayloadPool):
            for slot, at, size in zip(slots, offset.tolist(), length.tolist(), strict=True):
                self._writes += 1
                self.pool.stamp(slot, at, size, self._writes)

    def submit(self, batch: NDArray[np.void]) -> None:
        """Hand ``batch`` to the kernel, all of it."""
        taken = 0
        while taken < len(batch):
            taken += self.ring.submit(batch[taken:])

    def _copy(self, slot: int, size: int, staging: NDArray[np.uint8], at: int) -> int:
        if at + size > staging.size:
            at = 0
        staging[at : at + size] = self.pool.memory[slot, :size]
        return at + size


def read_sqes(
    engine: Engine, offset: NDArray[np.uint64], length: NDArray[np.uint64], slots: list[int]
) -> NDArray[np.void]:
    """Reads into the given slots of the engine's pool; ``user_data`` is the slot."""
    sqes = empty_sqes(len(offset))
    sqes["opcode"] = Opcode.READ
    sqes["fd"] = engine.fd
    sqes["off"] = offset
    sqes["len"] = length
    where = np.array(slots, np.uint64)
    sqes["addr"] = engine.pool.address + where * engine.pool.slot_bytes
    sqes["user_data"] = where
    return sqes


def check_result(result: int, asked: int, verb: str = "read") -> None:
    """MeasurementError unless ``result`` of a completion is what was asked for."""
    if result < 0:
        raise MeasurementError(f"{verb} failed: {os.strerror(-result)}")
    if result != asked:
        raise MeasurementError(f"short {verb}: {result} of {asked} bytes")


def _check_all(
    result: NDArray[np.int32], which: NDArray[np.int64], length: NDArray[np.uint64], write: bool
) -> None:
    for wrong in np.flatnonzero(result != length[which].astype(np.int64))[:1]:
        asked = int(length[which[wrong]])
        check_result(int(result[wrong]), asked, "write" if write else "read")
