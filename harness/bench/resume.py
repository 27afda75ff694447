"""Continue an interrupted benchmark: its samples go into the new run's journal."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness.bench.journal import NAME
from harness.core.errors import UsageError


def carry_over(run: Path, journal: Path) -> None:
    """Copy the samples of run folder ``run`` to ``journal``; UsageError if it has none."""
    old = run / NAME
    if not old.is_file():
        raise UsageError(f"{run} holds no {NAME}: nothing to resume there")
    shutil.copyfile(old, journal)
