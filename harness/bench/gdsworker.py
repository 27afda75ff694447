"""The process that holds the GPU: one mode of reading, asked for samples line by line.

cuFile reads its settings once, when it is loaded, so every mode needs a process of its own.
Started as ``python -m harness.bench.gdsworker MODE PATH``; each line of stdin is a JSON request,
each line of stdout its JSON answer; ``{"error": …}`` when it could not be done.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

import numpy as np

from harness.bench.doublebuffer import Layer, Reader, restore
from harness.bench.gpumodes import Evidence, counters, judge
from harness.bench.hostreader import HostReader

_COPY_REPEATS = 8


class _Staged:
    """Host-staged reads: O_DIRECT into pinned memory, then a copy to the GPU."""

    def __init__(self, path: str, threads: int, task_bytes: int) -> None:
        self._reader = HostReader(path, threads=threads, task_bytes=task_bytes)

    def pread(self, buf: Any, size: int | None = None, file_offset: int = 0) -> Any:
        return _StagedRead(
            self._reader, buf, int(size if size is not None else buf.size), file_offset
        )


class _StagedRead:
    """A read under way into pinned memory; ``get`` copies it to the GPU."""

    def __init__(self, reader: HostReader, target: Any, size: int, offset: int) -> None:
        self._target = target
        self._pinned = _pinned(size)
        self._future = reader.pread(self._pinned, size, offset)

    def get(self) -> int:
        got = self._future.get()
        self._target.set(self._pinned)
        return got


class Worker:
    """One mode on one file. Importing CUDA happens here and nowhere else."""

    def __init__(self, mode: str, path: str) -> None:
        cupy: Any = importlib.import_module("cupy")
        self.mode, self.path, self.cupy = mode, path, cupy
        self.gpu = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        self._file: Any = None
        if mode != "host-staged":
            self.kvikio: Any = importlib.import_module("kvikio")
            importlib.import_module("kvikio.defaults")
            self._file = self.kvikio.CuFile(path, "r")

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request: ``copy`` or ``restore``."""
        if request["do"] == "copy":
            return {"gbps": self._copy(request["bytes"]), "gpu": self.gpu}
        return self._restore(request)

    def _restore(self, request: dict[str, Any]) -> dict[str, Any]:
        layers = [Layer(tuple((o, n) for o, n in reads)) for reads in request["layers"]]
        reader = self._reader(request["threads"], request["task_bytes"])
        longest = max(layer.size_bytes for layer in layers)
        buffers = [self.cupy.empty(longest, dtype="uint8") for _ in range(2)]
        pages = self.cupy.empty(longest, dtype="uint8")
        stream = self.cupy.cuda.get_current_stream()

        def scatter(number: int, filled: Any) -> None:
            pages[: filled.size] = filled
            stream.synchronize()

        restore(reader, layers, buffers, scatter)  # registration and first touch are not timed
        before, cpu = counters(), time.process_time()
        seconds = sum(restore(reader, layers, buffers, scatter) for _ in range(request["passes"]))
        after = counters()
        asked = sum(layer.size_bytes for layer in layers) * request["passes"]
        moved = after - before if before is not None and after is not None else None
        transport, why = judge(self.mode, Evidence(moved, asked, self._compat()))
        return {
            "seconds": seconds, "cpu_seconds": time.process_time() - cpu, "bytes": asked,
            "transport": transport, "why": why + self._driver(), "gpu": self.gpu,
        }  # fmt: skip

    def _reader(self, threads: int, task_bytes: int) -> Reader:
        if self.mode == "host-staged":
            return _Staged(self.path, threads, task_bytes)
        self.kvikio.defaults.set({"num_threads": threads, "task_size": task_bytes})
        reader: Reader = self._file
        return reader

    def _compat(self) -> bool:
        if self.mode == "host-staged":
            return False
        return bool(self.kvikio.defaults.is_compat_mode_preferred())

    def _driver(self) -> str:
        """What cuFile's driver says of itself, as kvikio passes it on."""
        if self.mode == "host-staged":
            return ""
        try:
            driver: Any = importlib.import_module("kvikio.cufile_driver")
            return f"; cuFile driver: GDS available {bool(driver.get('is_gds_available'))}"
        except Exception as error:  # whatever its libraries raise; the counters decide anyway
            return f"; cuFile driver not readable ({type(error).__name__})"

    def _copy(self, size: int) -> float:
        """GB/s of copies from pinned memory: the simulator's second hop."""
        source, target = _pinned(size), self.cupy.empty(size, dtype="uint8")
        target.set(source)
        stream = self.cupy.cuda.get_current_stream()
        stream.synchronize()
        start = time.perf_counter()
        for _ in range(_COPY_REPEATS):
            target.set(source, stream=stream)
        stream.synchronize()
        return size * _COPY_REPEATS / (time.perf_counter() - start) / 1e9


def _pinned(size: int) -> Any:
    cupy: Any = importlib.import_module("cupy")
    return np.frombuffer(cupy.cuda.alloc_pinned_memory(size), dtype=np.uint8, count=size)


def main() -> int:
    """Serve requests until stdin closes."""
    mode, path = sys.argv[1:3]
    # CUDA's libraries print to stdout what they like; answers have it for themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        worker = Worker(mode, path)
    except Exception as error:  # CUDA and kvikio raise whatever their libraries do
        say({"error": _words(error)})
        return 1
    say({"ready": worker.gpu})
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:
            answer = {"error": _words(error)}
        say(answer)
    return 0


def _words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


if __name__ == "__main__":
    sys.exit(main())
