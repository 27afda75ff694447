"""Memory and disk: is there room for a run?"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from harness.core.units import format_size
from harness.doctor.model import Check, Outcome
from harness.doctor.shell import read_text

NEEDED_MEMORY_BYTES = 3 << 30
NEEDED_DISK_BYTES = 2 << 30


def _memory() -> Outcome:
    fields = dict(
        line.split(":", 1)
        for line in (read_text("/proc/meminfo") or "").splitlines()
        if ":" in line
    )
    available = _kib(fields.get("MemAvailable")) * 1024
    total = _kib(fields.get("MemTotal")) * 1024
    return Outcome(
        available >= NEEDED_MEMORY_BYTES,
        f"{format_size(available)} available of {format_size(total)}; "
        f"{format_size(NEEDED_MEMORY_BYTES)} needed",
    )


def _kib(field: str | None) -> int:
    return int(field.split()[0]) if field else 0


def _disk(results: Path) -> Outcome:
    folder = next(p for p in (results.absolute(), *results.absolute().parents) if p.exists())
    free = shutil.disk_usage(folder).free
    detail = f"{format_size(free)} free under {results}; {format_size(NEEDED_DISK_BYTES)} needed"
    if not os.access(folder, os.W_OK):
        return Outcome(False, f"{folder} cannot be written to")
    return Outcome(free >= NEEDED_DISK_BYTES, detail)


def checks(results: Path) -> tuple[Check, ...]:
    """Checks of memory and of the disk that holds ``results`` (which need not exist yet)."""
    return (
        Check(
            "memory",
            why="the mapping tables of a terabyte take 1.9 GiB",
            fix="stop other programs, or give wear a smaller drive profile",
            needed_by=("run", "wear"),
            probe=_memory,
            required=True,
        ),
        Check(
            "disk",
            why="the loop device's backing file and the run folder",
            fix="free some space, or give another folder with --results DIR",
            needed_by=("run",),
            probe=lambda: _disk(results),
            required=True,
        ),
    )
