"""What one cell is and how one sample of it is taken, by fio or by our ring."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.bench.background import Churn
from harness.bench.drive import Engine
from harness.bench.fio import Fio
from harness.bench.fiojobs import reference_job, replay_plan
from harness.bench.grid import Placement, Read
from harness.bench.placed import Placed, Region
from harness.bench.plans import Plan, interleave, make_plan
from harness.core.units import format_size
from harness.device.buffers import AlignedPool
from harness.device.guard import Target


@dataclass(frozen=True)
class Sample:
    """One repeat of one cell; ``gbps`` counts wanted bytes."""

    gbps: float
    seconds: float
    latency_us: dict[str, float] | None
    cpu_seconds: float
    read_bytes: int
    background_gbps: float | None = None


class Runner(Protocol):
    """A cell that can be sampled. ``facts`` are the parameters and counts of its record."""

    @property
    def id(self) -> str: ...
    @property
    def facts(self) -> dict[str, Any]: ...
    def sample(self) -> Sample: ...


@dataclass
class Bench:
    """What cells share: the device, fio, the wanted length of a sample, engines by depth."""

    target: Target
    fio: Fio
    sample_seconds: float
    stack: ExitStack
    _engines: dict[tuple[int, int], Engine] = field(default_factory=dict)
    _pool: AlignedPool | None = None

    def engine(self, depth: int, largest: int) -> Engine:
        """A ring for ``depth`` commands of up to ``largest`` bytes; kept, they are not free."""
        key = (depth, largest)
        if key not in self._engines:
            self._engines[key] = self.stack.enter_context(Engine(self.target.fd, depth, largest))
        return self._engines[key]

    def staging(self, size_bytes: int) -> NDArray[np.uint8]:
        """Memory that staged reads are copied to."""
        if self._pool is None or self._pool.memory.size < size_bytes:
            self._pool = AlignedPool(1, size_bytes)
        return self._pool.memory.reshape(-1)


class PlanCell:
    """Sessions of one placement read back in one way."""

    def __init__(self, bench: Bench, placed: Placed, read: Read, *, on_ring: bool = False) -> None:
        self._bench, self._placed, self._read = bench, placed, read
        self._ring = on_ring or not self.by_fio(read)
        self.plan: Plan = interleave(
            [
                make_plan(ranges, read.access, gap_bytes=read.gap_bytes, read_bytes=read.read_bytes)
                for ranges in placed.sessions
            ]
        )
        self._passes = 0
        self.id = plan_id(placed.placement, read, "ring" if on_ring else "")

    @staticmethod
    def by_fio(read: Read) -> bool:
        """Whether fio can do it: a log has neither dependencies nor a second hop."""
        return read.access != "window" and read.transport == "direct"

    @property
    def facts(self) -> dict[str, Any]:
        where, plan = self._placed.placement, self.plan
        return {
            "pattern": "layout",
            "direction": "read",
            "layout": where.store,
            "model": where.model,
            "context_tokens": where.context_tokens,
            "turns": where.turns,
            "sessions": where.sessions,
            "age": where.age,
            "access": self._read.access,
            "background_writes": self._read.background_writes,
            "transport": "posix-direct" if self._read.transport == "direct" else "host-staged",
            "queue_depth": self._read.queue_depth,
            "engine": "ring" if self._ring else f"fio/{self._bench.fio.log_engine()}",
            "request_bytes": plan.read_bytes / len(plan),
            "commands": len(plan),
            "wanted_bytes": plan.wanted_bytes,
            "read_bytes": plan.read_bytes,
            "amplification": max(1.0, plan.amplification),
        }

    def sample(self) -> Sample:
        if not self._read.background_writes:
            return self._measure()
        with Churn(self._bench.target, self._placed) as churn:
            measured = self._measure()
        return Sample(
            measured.gbps, measured.seconds, measured.latency_us, measured.cpu_seconds,
            measured.read_bytes, background_gbps=churn.gbps,
        )  # fmt: skip

    def _measure(self) -> Sample:
        if self._passes == 0:
            trial = self._ringed(1) if self._ring else self._fioed(1)
            self._passes = max(1, math.ceil(self._bench.sample_seconds / trial.seconds))
        return self._ringed(self._passes) if self._ring else self._fioed(self._passes)

    def _fioed(self, passes: int) -> Sample:
        plan = self.plan
        result = replay_plan(
            self._bench.fio, self._bench.target.path, np.tile(plan.offset, passes),
            np.tile(plan.length, passes), queue_depth=self._read.queue_depth,
        )  # fmt: skip
        return Sample(
            result.gbps / plan.amplification, result.seconds, result.latency_us,
            result.cpu_seconds, result.counted_bytes,
        )  # fmt: skip

    def _ringed(self, passes: int) -> Sample:
        plan, read = self.plan, self._read
        engine = self._bench.engine(read.queue_depth, int(plan.length.max()))
        staged = read.transport == "staged"
        # As large as a whole restore, so that the copy does not stay in the cache.
        staging = self._bench.staging(plan.read_bytes) if staged else None
        runs = [
            engine.run_plan(plan, window=read.access == "window", staging=staging)
            for _ in range(passes)
        ]
        seconds = sum(run.seconds for run in runs)
        latencies = np.concatenate([run.latency_s for run in runs])
        points = np.percentile(latencies, [50, 99, 99.9, 100]) * 1e6
        return Sample(
            plan.wanted_bytes * passes / seconds / 1e9, seconds,
            dict(zip(("p50", "p99", "p99.9", "max"), points.tolist(), strict=True)),
            sum(run.cpu_seconds for run in runs), plan.read_bytes * passes,
        )  # fmt: skip


class ReferenceCell:
    """A plain fio job in a region that holds data."""

    def __init__(
        self, bench: Bench, region: Region, pattern: str, direction: str, block_bytes: int,
        queue_depth: int, threads: int = 1,
    ) -> None:  # fmt: skip
        self._bench, self._region = bench, region
        self._pattern, self._direction = pattern, direction
        self._block, self._depth, self._threads = block_bytes, queue_depth, threads
        self._io_bytes = 0
        self.id = reference_id(pattern, direction, block_bytes, queue_depth, threads)

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "pattern": self._pattern,
            "direction": self._direction,
            "transport": "posix-direct",
            "queue_depth": self._depth,
            "threads": self._threads,
            "engine": "fio/io_uring",
            "request_bytes": float(self._block),
            "commands": self._io_bytes // self._block,
            "wanted_bytes": self._io_bytes,
            "read_bytes": self._io_bytes,
            "amplification": 1.0,
        }

    def sample(self) -> Sample:
        if self._io_bytes == 0:
            least = max(self._block * self._depth * self._threads, 8 << 20)
            seconds = self._job(least)[1]
            grown = int(least * max(1.0, self._bench.sample_seconds / seconds))
            unit = self._block * self._threads
            self._io_bytes = -(-grown // unit) * unit
        return self._job(self._io_bytes)[0]

    def _job(self, io_bytes: int) -> tuple[Sample, float]:
        rw = {"read": "", "write": "write", "mixed": "rw"}[self._direction] or "read"
        if self._pattern == "random":
            rw = "rand" + rw
        result = reference_job(
            self._bench.fio, self._bench.target.path, rw=rw, block_bytes=self._block,
            queue_depth=self._depth, region=(self._region.base, self._region.size_bytes),
            io_bytes=io_bytes, threads=self._threads,
        )  # fmt: skip
        sample = Sample(
            result.gbps, result.seconds, result.latency_us, result.cpu_seconds,
            result.counted_bytes,
        )  # fmt: skip
        return sample, result.seconds


def plan_id(placement: Placement, read: Read, suffix: str = "") -> str:
    """The name of a layout cell: its parameters, readable and stable."""
    parts = [
        placement.store, placement.model, f"{placement.context_tokens}tok",
        f"{placement.turns}turn", f"{placement.sessions}ses", f"age{placement.age:g}",
        read.access, f"qd{read.queue_depth}", read.transport,
        "busy" if read.background_writes else "quiet", _size(read.read_bytes),
    ]  # fmt: skip
    return "/".join([*parts, *([suffix] if suffix else [])])


def reference_id(
    pattern: str, direction: str, block_bytes: int, queue_depth: int, threads: int
) -> str:
    """The name of a reference cell."""
    return f"{pattern}/{direction}/{_size(block_bytes)}/qd{queue_depth}/{threads}thr"


def _size(size_bytes: int) -> str:
    return format_size(size_bytes).replace(" ", "")
