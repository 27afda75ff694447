"""Plain reference cells: what the device does without any layout, by fio and by our ring."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from harness.bench.cells import Bench, Sample, ring_sample, size_label
from harness.bench.fiojobs import reference_job
from harness.bench.placed import Region


class ReferenceCell:
    """A plain fio job in a region that holds data."""

    def __init__(
        self, bench: Bench, region: Region, pattern: str, direction: str, block_bytes: int,
        queue_depth: int, threads: int = 1,
    ) -> None:  # fmt: skip
        self._bench, self._region = bench, region
        self._pattern, self._direction = pattern, direction
        self._block, self._depth, self._threads = block_bytes, queue_depth, threads
        self._moved = 0
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
            "commands": self._moved // self._block,
            "wanted_bytes": self._moved,
            "read_bytes": self._moved,
            "amplification": 1.0,
        }

    def sample(self) -> Sample:
        rw = {"read": "read", "write": "write", "mixed": "rw"}[self._direction]
        if self._pattern == "random":
            rw = "rand" + rw
        result = reference_job(
            self._bench.fio, self._bench.target.path, rw=rw, block_bytes=self._block,
            queue_depth=self._depth, region=(self._region.base, self._region.size_bytes),
            seconds=self._bench.sample_seconds, threads=self._threads,
        )  # fmt: skip
        self._moved = result.counted_bytes
        return Sample(
            result.gbps, result.seconds, result.latency_us, result.cpu_seconds,
            result.counted_bytes,
        )  # fmt: skip


class RingSequential:
    """Sequential reads by our ring, so that its cells have a best of their own engine."""

    def __init__(self, bench: Bench, region: Region, block_bytes: int, queue_depth: int) -> None:
        self._bench, self._block, self._depth = bench, block_bytes, queue_depth
        count = max(1, region.size_bytes // block_bytes)
        self._offset = np.uint64(region.base) + np.arange(count, dtype=np.uint64) * np.uint64(
            block_bytes
        )
        self._length = np.full(count, min(block_bytes, region.size_bytes), np.uint64)
        self._passes = 0
        self.id = f"{reference_id('sequential', 'read', block_bytes, queue_depth, 1)}/ring"

    @property
    def facts(self) -> dict[str, Any]:
        moved = int(self._length.sum())
        return {
            "pattern": "sequential",
            "direction": "read",
            "transport": "posix-direct",
            "queue_depth": self._depth,
            "threads": 1,
            "engine": "ring",
            "request_bytes": float(self._block),
            "commands": len(self._offset),
            "wanted_bytes": moved,
            "read_bytes": moved,
            "amplification": 1.0,
        }

    def sample(self) -> Sample:
        engine = self._bench.engine(self._depth, int(self._length[0]))
        if self._passes == 0:
            trial = engine.run(self._offset, self._length)
            self._passes = max(1, math.ceil(self._bench.sample_seconds / trial.seconds))
        runs = [engine.run(self._offset, self._length) for _ in range(self._passes)]
        moved = int(self._length.sum()) * self._passes
        return ring_sample(runs, moved, moved)


def reference_id(
    pattern: str, direction: str, block_bytes: int, queue_depth: int, threads: int
) -> str:
    """The name of a reference cell."""
    return f"{pattern}/{direction}/{size_label(block_bytes)}/qd{queue_depth}/{threads}thr"
