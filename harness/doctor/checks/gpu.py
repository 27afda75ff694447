"""GPU and GPUDirect Storage."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from harness.doctor.model import Check, Outcome
from harness.doctor.shell import ask, find_tool, last_line

_IMPORT_TIMEOUT_S = 60.0


def _gpu() -> Outcome:
    tool = find_tool("nvidia-smi")
    if tool:
        code, said = ask(
            tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"
        )
        lines = said.splitlines()
        detail = "; ".join(lines) if code == 0 else last_line(said)
        return Outcome(code == 0 and bool(lines), detail or "nvidia-smi lists no GPU")
    nodes = sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*"))
    if nodes:
        return Outcome(True, f"{', '.join(nodes)}, but no nvidia-smi", warning=True)
    return Outcome(False, "no nvidia-smi and no /dev/nvidia*")


def _nvidia_fs() -> Outcome:
    version = Path("/proc/driver/nvidia-fs/version")
    if version.exists():
        return Outcome(True, " ".join(version.read_text().split()))
    return Outcome(False, "module nvidia-fs is not loaded")


def _kvikio() -> Outcome:
    if importlib.util.find_spec("kvikio") is None:
        return Outcome(False, "not installed")
    # In a process of its own: without CUDA the import may fail in ways Python cannot catch.
    code, said = ask(
        sys.executable,
        "-c",
        "import kvikio; print(kvikio.__version__)",
        timeout_s=_IMPORT_TIMEOUT_S,
    )
    return Outcome(code == 0, f"kvikio {last_line(said)}" if code == 0 else last_line(said))


CHECKS = (
    Check(
        "gpu",
        why="reads into GPU memory are measured on one",
        fix="use a machine with an NVIDIA GPU and its driver",
        needed_by=("bench gds",),
        probe=_gpu,
    ),
    Check(
        "nvidia-fs",
        why="GPUDirect Storage; without it cuFile copies through host memory",
        fix="install NVIDIA's nvidia-gds package and: modprobe nvidia-fs",
        needed_by=("bench gds",),
        probe=_nvidia_fs,
    ),
    Check(
        "kvikio",
        why="Python's way into cuFile",
        fix="pip install 'kvflash-harness[gds]'",
        needed_by=("bench gds",),
        probe=_kvikio,
    ),
)
