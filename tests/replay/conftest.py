"""A loop device of our own in memory, opened by the guard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.device.guard import Target, open_guarded
from harness.device.loop import LoopDevice

from .traces import MIB


@dataclass(frozen=True)
class Own:
    """A loop device and its guarded descriptor."""

    loop: LoopDevice
    target: Target


@pytest.fixture
def own() -> Iterator[Own]:
    """64 MiB in memory."""
    with LoopDevice(64 * MIB, "/dev/shm") as loop:
        Path(f"/sys/block/{loop.name}/queue/nomerges").write_text("0")
        with open_guarded(loop.path, own=True) as target:
            yield Own(loop, target)
