"""Write amplification that others measured on real drives, for the ``drive`` policy to meet.

The workloads are rebuilt from what was published. What was not published (spare flash, order of
overwriting) is a parameter here, and a result is quoted with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from harness.core.config import validate
from harness.core.ops import Op
from harness.core.profiles import DeviceProfile
from harness.endurance.inputs import Batch, Kind
from harness.ftl.workloads import SplitMix64

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

Order = Literal["random", "burst-lifo"]
"""Which slot a worker overwrites next: any, or LMCache's: the fifth least recently written is
freed at once and refilled last freed first."""

PR_4016_WAF = {"none": 2.600, "placement": 1.425}
"""LMCache pull request 4016, comment of 28 July 2026: Samsung PM9D3a, 960 GiB filled
sequentially, then four capacities of writes by nine workers over 855 GiB; reclaim units of 16
GiB, initially isolated. Whole-run figures, not shown to be steady; spare flash not stated."""

CACHELIB_FDP_WAF = 1.03
"""About 1 with FDP for CacheLib's small objects (4 KiB at random in 4 % of the space) beside its
log of large ones, and more than 1.3 without (Allison et al., "Towards Efficient Flash Caches with
Emerging NVMe Flexible Data Placement SSDs", EuroSys 2025)."""


@dataclass(frozen=True)
class Worker:
    """A region overwritten object by object, with a placement class of its own."""

    object_bytes: int
    region_bytes: int
    placement: int


_PR_4016 = (
    (2, 4 * MIB, 90 * GIB), (1, 32 * MIB, 180 * GIB), (2, 16 * MIB, 90 * GIB),
    (3, 2 * MIB, 90 * GIB), (1, 1 * MIB, 45 * GIB),
)  # fmt: skip
"""(workers, object, region of each) of the five classes."""


def pr_4016_workers(scale: int) -> list[Worker]:
    """The nine workers with every size divided by ``scale``."""
    return [
        Worker(size // scale, region // scale, placement)
        for placement, (count, size, region) in enumerate(_PR_4016)
        for _ in range(count)
    ]


def pr_4016_drive(over_provisioning: float, scale: int, **settings: Any) -> DeviceProfile:
    """960 GiB and reclaim units of 16 GiB, divided by ``scale``; ``settings`` of the policy."""
    namespace, unit = 960 * GIB // scale, 16 * GIB // scale
    return _drive("pr-4016", namespace, unit, over_provisioning, settings)


def cachelib_drive(over_provisioning: float, namespace: int, **settings: Any) -> DeviceProfile:
    """A drive of 256 reclaim units of namespace."""
    return _drive("cachelib", namespace, namespace // 256, over_provisioning, settings)


def _drive(
    name: str, namespace: int, unit: int, spare: float, settings: dict[str, Any]
) -> DeviceProfile:
    page, stripe = 4096, 64
    lines = round(namespace * (1 + spare) / unit)
    return validate(
        {
            "name": name,
            "blks_per_pl": lines,
            "pgs_per_blk": unit // (stripe * page),
            "capacity_bytes": namespace,
            "policy": "drive",
            "drive": {"line_bytes": unit, "max_streams": 5, **settings},
        },
        DeviceProfile,
        name,
    )


@dataclass
class _Synthetic:
    """What the inputs below have in common."""

    kind: Kind = "trace"
    name: str = ""
    endless: bool = False
    has_classes: bool = False
    class_names: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class Pr4016(_Synthetic):
    """Nine workers that write at an equal pace, object by object, ``volume_bytes`` in all."""

    workers: list[Worker] = field(default_factory=list)
    volume_bytes: int = 0
    order: Order = "random"
    seed: int = 1

    def batches(self) -> Iterator[Batch]:
        """Rounds in which every worker writes as many bytes as the largest object has."""
        pace = max(worker.object_bytes for worker in self.workers)
        bases = np.cumsum([0] + [worker.region_bytes for worker in self.workers])
        slots = [
            _slots(worker, self.order, SplitMix64(self.seed + number))
            for number, worker in enumerate(self.workers)
        ]
        for _ in range(self.volume_bytes // (pace * len(self.workers))):
            parts = []
            for worker, base, chosen in zip(self.workers, bases, slots, strict=False):
                take = pace // worker.object_bytes
                slot = np.array([next(chosen) for _ in range(take)], np.uint64)
                offset = np.uint64(base) + slot * np.uint64(worker.object_bytes)
                parts.append(_together(offset, worker))
            yield _in_turns(parts)


def _slots(worker: Worker, order: Order, rng: SplitMix64) -> Iterator[int]:
    count = worker.region_bytes // worker.object_bytes
    if order == "random":
        while True:
            yield from rng.picks(1024, count).astype(np.int64).tolist()
    age = list(range(count))  # slots, least recently written first
    burst = max(1, count // 5)
    while True:
        freed, age = age[:burst], age[burst:]
        for slot in reversed(freed):
            age.append(slot)
            yield slot


def _together(offset: np.ndarray, worker: Worker) -> Batch:
    rows = len(offset)
    return Batch(
        offset,
        np.full(rows, worker.object_bytes, np.uint64),
        np.full(rows, Op.WRITE, np.uint8),
        np.full(rows, worker.placement, np.uint8),
    )


def _in_turns(parts: list[Batch]) -> Batch:
    """The objects of all workers, in the order in which an equal pace finishes them."""
    ends = np.concatenate([np.cumsum(part.length.astype(np.int64)) for part in parts])
    whole = Batch(
        np.concatenate([part.offset for part in parts]),
        np.concatenate([part.length for part in parts]),
        np.concatenate([part.op for part in parts]),
        np.concatenate([part.placement for part in parts if part.placement is not None]),
    )
    return whole.taken(np.argsort(ends, kind="stable"))


@dataclass
class CacheLib(_Synthetic):
    """A log of 16 MiB regions and small objects at random in ``small_share`` of the space."""

    namespace_bytes: int = 0
    volume_bytes: int = 0
    small_share: float = 0.04
    small_bytes_share: float = 0.5
    seed: int = 1

    def batches(self) -> Iterator[Batch]:
        """Small writes among pieces of the log, by their share of the bytes."""
        piece, page = 64 * KIB, 4 * KIB
        small = int(self.namespace_bytes * self.small_share) // piece * piece
        log = (self.namespace_bytes - small) // piece * piece
        per_piece = round(piece * self.small_bytes_share / (1 - self.small_bytes_share) / page)
        rounds, rng, at = 1024, SplitMix64(self.seed), 0
        for _ in range(self.volume_bytes // (rounds * (piece + per_piece * page))):
            offset = np.empty((rounds, 1 + per_piece), np.uint64)
            offset[:, 0] = small + (at + np.arange(rounds) * piece) % log
            picks = rng.picks(rounds * per_piece, small // page) * np.uint64(page)
            offset[:, 1:] = picks.reshape(rounds, per_piece)
            length = np.full(offset.shape, page, np.uint64)
            length[:, 0] = piece
            placement = np.zeros(offset.shape, np.uint8)
            placement[:, 0] = 1
            at = (at + rounds * piece) % log
            rows = offset.size
            yield Batch(
                offset.ravel(), length.ravel(), np.full(rows, Op.WRITE, np.uint8), placement.ravel()
            )
