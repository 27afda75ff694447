"""The cells of ``bench gds``: a double-buffered restore by one reader, or a copy."""

from __future__ import annotations

import math
import time
from typing import Any

from harness.bench.cells import Sample, size_label
from harness.bench.doublebuffer import layers_of, restore
from harness.bench.gpuprocess import GpuProcess
from harness.bench.grid import Placement
from harness.bench.hostreader import HostReader
from harness.bench.placed import Placed
from harness.bench.plans import Plan
from harness.core.errors import MeasurementError
from harness.device.buffers import AlignedPool


def cell_id(where: Placement, name: str, threads: int, task_bytes: int) -> str:
    """The name of a restore by the reader or mode ``name``."""
    return "/".join([
        "gds", where.store, where.model, f"{where.context_tokens}tok", f"{where.turns}turn",
        f"age{where.age:g}", name, f"{threads}thr", size_label(task_bytes),
    ])  # fmt: skip


def copy_id(size_bytes: int) -> str:
    """The name of a copy to the GPU."""
    return f"gds/copy/{size_label(size_bytes)}"


class _Cell:
    """A placement read back through a double buffer by some reader."""

    def __init__(
        self, placed: Placed, plan: Plan, name: str, threads: int, task_bytes: int,
        sample_seconds: float,
    ) -> None:  # fmt: skip
        self.placed, self.plan, self.name = placed, plan, name
        self.threads, self.task_bytes = threads, task_bytes
        self.sample_seconds = sample_seconds
        self.transport, self.engine, self.passes = name, "host-reader", 0
        self.proof: str | None = None
        self.id = cell_id(placed.placement, name, threads, task_bytes)

    @property
    def facts(self) -> dict[str, Any]:
        where, plan = self.placed.placement, self.plan
        return {
            "pattern": "layout",
            "direction": "read",
            "layout": where.store,
            "model": where.model,
            "context_tokens": where.context_tokens,
            "turns": where.turns,
            "sessions": where.sessions,
            "age": where.age,
            "chunk_tokens": self.placed.spec.chunk_tokens,
            "access": "window",
            "transport": self.transport,
            "proof": self.proof,
            "queue_depth": 1,
            "threads": self.threads,
            "task_bytes": self.task_bytes,
            "engine": self.engine,
            "request_bytes": plan.read_bytes / len(plan),
            "commands": len(plan),
            "wanted_bytes": plan.wanted_bytes,
            "read_bytes": plan.read_bytes,
            "amplification": max(1.0, plan.amplification),
        }

    def sampled(self, seconds: float, cpu_seconds: float) -> Sample:
        """One sample of ``passes`` restores."""
        return Sample(
            self.plan.wanted_bytes * self.passes / seconds / 1e9, seconds, None, cpu_seconds,
            self.plan.read_bytes * self.passes,
        )  # fmt: skip


class HostCell(_Cell):
    """Into host memory, by ``HostReader``."""

    def bind(self, path: str) -> HostCell:
        """The file or device to read."""
        self._path = path
        layers = layers_of(self.plan)
        self._layers = layers
        longest = max(layer.size_bytes for layer in layers)
        self._pool = AlignedPool(2, longest)
        return self

    def sample(self) -> Sample:
        direct = self.name == "posix-direct"
        with HostReader(
            self._path, direct=direct, threads=self.threads, task_bytes=self.task_bytes
        ) as reader:
            if self.passes == 0:
                once = self._once(reader)
                self.passes = max(1, math.ceil(self.sample_seconds / once))
            cpu = time.process_time()
            seconds = sum(self._once(reader) for _ in range(self.passes))
            return self.sampled(seconds, time.process_time() - cpu)

    def _once(self, reader: HostReader) -> float:
        reader.drop_cache()
        buffers = [slot[:] for slot in self._pool.memory]
        return restore(reader, self._layers, buffers, lambda number, filled: None)


class GpuCell(_Cell):
    """Into a GPU's memory, by a worker process."""

    def bind(self, worker: GpuProcess) -> GpuCell:
        """The worker that reads in this cell's mode."""
        self._worker = worker
        self.engine = "kvikio" if self.name != "host-staged" else "host-reader+cuda"
        self._layers = [layer.reads for layer in layers_of(self.plan)]
        return self

    def sample(self) -> Sample:
        if self.passes == 0:
            once = self._ask(1)
            self.passes = max(1, math.ceil(self.sample_seconds / once["seconds"]))
        answer = self._ask(self.passes)
        if self.transport not in (self.name, answer["transport"]):
            raise MeasurementError(
                f"{self.id}: the transport changed from {self.transport} to {answer['transport']}"
            )
        self.transport, self.proof = answer["transport"], answer["why"]
        return self.sampled(answer["seconds"], answer["cpu_seconds"])

    def _ask(self, passes: int) -> dict[str, Any]:
        return self._worker.ask(
            {
                "do": "restore", "layers": self._layers, "passes": passes,
                "threads": self.threads, "task_bytes": self.task_bytes,
            }
        )  # fmt: skip


class CopyCell:
    """Copies from pinned host memory to the GPU: the second hop of a staged transfer."""

    def __init__(self, worker: GpuProcess, size_bytes: int) -> None:
        self._worker, self._size = worker, size_bytes
        self.id = copy_id(size_bytes)
        self.facts = {
            "pattern": "copy", "direction": "read", "transport": "pcie-copy", "queue_depth": 1,
            "engine": "cuda", "request_bytes": float(size_bytes), "commands": 1,
            "wanted_bytes": size_bytes, "read_bytes": size_bytes, "amplification": 1.0,
        }  # fmt: skip

    def sample(self) -> Sample:
        gbps = float(self._worker.ask({"do": "copy", "bytes": self._size})["gbps"])
        return Sample(gbps, self._size / gbps / 1e9, None, 0.0, self._size)
