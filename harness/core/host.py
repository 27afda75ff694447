"""Facts about this host and this checkout that every result carries as provenance."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from harness import __version__
from harness.core.identity import code


def host_facts() -> dict[str, str | int | None]:
    """Kernel, architecture, CPU, memory, host name; the harness by version, code and commit."""
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "arch": platform.machine(),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "harness_version": __version__,
        "harness_code": code(),
        "harness_commit": git_commit(),
    }


def _cpu_model() -> str | None:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None


def git_commit() -> str | None:
    """Commit of the checkout the package runs from, ``+dirty`` if changed; None in a wheel."""
    top = Path(__file__).resolve().parents[2]
    if not (top / ".git").exists():
        return None

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-c", f"safe.directory={top}", "-C", str(top), *words],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip

    try:
        commit = git("rev-parse", "HEAD")
        return commit + ("+dirty" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
