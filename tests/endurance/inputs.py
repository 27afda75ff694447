"""Inputs made in memory, and a small drive, for the tests of this part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.config import validate
from harness.core.ops import Op
from harness.core.profiles import DeviceProfile
from harness.endurance.inputs import Batch, Kind
from harness.ftl.workloads import SplitMix64

MIB = 1 << 20


def small_drive(**keys: Any) -> DeviceProfile:
    """64 MiB of namespace with a tenth spare, lines of 1 MiB, rated for 100 drive writes."""
    base = {
        "name": "small", "nchs": 4, "luns_per_ch": 4, "pgs_per_blk": 16, "blks_per_pl": 71,
        "capacity_bytes": 64 * MIB, "dwpd": 0.2, "warranty_years": 100 / 365 / 0.2,
        "policy": "drive", "drive": {"line_bytes": MIB},
    }  # fmt: skip
    return validate({**base, **keys}, DeviceProfile, "small")


@dataclass
class Rows:
    """An input of given batches, repeated by its user if wanted."""

    parts: list[Batch]
    kind: Kind = "trace"
    name: str = "rows"
    endless: bool = False
    class_names: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def has_classes(self) -> bool:
        return bool(self.class_names)

    def batches(self) -> Iterator[Batch]:
        yield from self.parts


@dataclass
class RandomWrites:
    """Endless uniform random writes; the clock advances a second a batch."""

    namespace_bytes: int
    size: int = 4096
    rows: int = 4096
    seed: int = 1
    kind: Kind = "store"
    name: str = "random"
    endless: bool = True
    has_classes: bool = False
    class_names: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=lambda: {"requests": "random"})

    def batches(self) -> Iterator[Batch]:
        rng, clock = SplitMix64(self.seed), 0.0
        while True:
            clock += 1.0
            offset = rng.picks(self.rows, self.namespace_bytes // self.size)
            yield writes(offset * np.uint64(self.size), self.size, clock_s=clock, new_tokens=10)


def writes(offset: Any, length: int, **more: Any) -> Batch:
    """A batch of writes of one length."""
    offset = np.asarray(offset, np.uint64)
    rows = len(offset)
    return Batch(
        offset, np.full(rows, length, np.uint64), np.full(rows, Op.WRITE, np.uint8), **more
    )


def oplist_file(path: Path, rows: list[tuple[int, int, str]]) -> Path:
    """An op list as a user would write it."""
    lines = ["offset,length,op", *(f"{o},{n},{op}" for o, n, op in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path
