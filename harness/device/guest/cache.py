"""Where guests keep what is made once and used often: kernels and the answer about KVM."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.core.caches import cache_home
from harness.core.errors import MachineError


def cache_dir() -> Path:
    """``$HARNESS_CACHE``, else ``$XDG_CACHE_HOME/kvflash-harness``; made if missing."""
    folder = Path(os.environ.get("HARNESS_CACHE") or cache_home()).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(
            f"cannot make the cache folder {folder}: {error.strerror}",
            fix="set HARNESS_CACHE to a folder that can be written",
        ) from error
    return folder


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock ``name``, so that two commands do not make one thing twice."""
    with (cache_dir() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
