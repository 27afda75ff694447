"""What capture tests share: the loader's modules, loop devices, and short real captures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.capture.options import TraceOptions
from harness.capture.session import Capture, CaptureResult
from harness.core.assets import asset_dir
from harness.device.loop import LoopDevice

# The loader runs under the system's Python, with its own folder on the path; so do its tests.
sys.path.insert(0, str(asset_dir("ebpf")))

Tracer = Callable[..., CaptureResult]


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[LoopDevice]:
    """A loop device of 64 MiB, in memory where there is such a folder."""
    memory = Path("/dev/shm")
    with LoopDevice(64 << 20, memory if memory.is_dir() else tmp_path) as device:
        yield device


@pytest.fixture
def trace_while(tmp_path: Path) -> Tracer:
    """Trace ``options`` into ``out`` while ``work`` runs, and give the result."""

    def run(options: TraceOptions, work: Callable[[], Any], name: str = "t") -> CaptureResult:
        with Capture(options, tmp_path / f"{name}.parquet") as capture:
            work()
        assert capture.result is not None
        return capture.result

    return run


def fio(path: str, *words: str) -> dict[str, int]:
    """Requests that fio counted: {"read": n, "write": n}."""
    done = subprocess.run(
        ["fio", "--name=t", f"--filename={path}", "--direct=1", "--ioengine=io_uring",
         "--output-format=json", *words],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    job = json.loads(done.stdout)["jobs"][0]
    return {way: job[way]["total_ios"] for way in ("read", "write")}
