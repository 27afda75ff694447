"""What one cell is and how one sample of it is taken, by fio or by our ring."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.bench.background import Churn
from harness.bench.drive import Driven, Engine
from harness.bench.fio import Fio
from harness.bench.fiojobs import replay_plan
from harness.bench.grid import Placement, Read
from harness.bench.placed import Placed
from harness.bench.plans import Plan, interleave, make_plan
from harness.core.units import format_size
from harness.device.buffers import AlignedPool
from harness.device.guard import Target

LATENCY_POINTS = (50, 99, 99.9, 100)
LATENCY_NAMES = ("p50", "p99", "p99.9", "max")


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
            "chunk_tokens": self._placed.spec.chunk_tokens,
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
        return ring_sample(runs, plan.wanted_bytes * passes, plan.read_bytes * passes)


def ring_sample(runs: list[Driven], wanted_bytes: int, read_bytes: int) -> Sample:
    """One sample from several drives of our ring."""
    seconds = sum(run.seconds for run in runs)
    points = np.percentile(np.concatenate([run.latency_s for run in runs]), LATENCY_POINTS) * 1e6
    return Sample(
        wanted_bytes / seconds / 1e9, seconds,
        dict(zip(LATENCY_NAMES, points.tolist(), strict=True)),
        sum(run.cpu_seconds for run in runs), read_bytes,
    )  # fmt: skip


def plan_id(placement: Placement, read: Read, suffix: str = "") -> str:
    """The name of a layout cell: its parameters, readable and stable."""
    parts = [
        placement.store, placement.model, f"{placement.context_tokens}tok",
        f"{placement.turns}turn", f"{placement.sessions}ses", f"age{placement.age:g}",
        *([f"chunk{placement.chunk_tokens}"] if placement.chunk_tokens else []),
        read.access, f"qd{read.queue_depth}", read.transport,
        "busy" if read.background_writes else "quiet", size_label(read.read_bytes),
    ]  # fmt: skip
    return "/".join([*parts, *([suffix] if suffix else [])])


def size_label(size_bytes: int) -> str:
    """``64KiB``, for names."""
    return format_size(size_bytes).replace(" ", "")
