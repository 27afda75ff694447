"""MeritKV in the form of Gandalf's paper: written if the prefill saved outweighs reading and wear.

The first ``free_demands`` demands of an object are let through unasked. After them it is written if
``p n t_prefill - s / B_ssd - s / B_pcie - (1 - p) t_probe > theta s c_ssd / c_gpu_second``, with p
the average of hits over its demands, newest weighing 0.20. The published code (MIT) has neither a
cost of writing nor free demands; those are the paper's words, their form is ours. LRU victims.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field, PositiveFloat

from harness.simulator.hooks import Parameters, World, chunks_behind, class_of, size_of

_WEIGHT = 0.20
_FREE, _CHUNK_S, _SSD_BPS, _PCIE_BPS, _PROBE_S, _WEAR_S = range(6)


class Settings(Parameters):
    """Prices and rates are the paper's; ``wear_s`` a byte comes of them by ``theta``."""

    free_demands: int = Field(3, ge=0)
    theta: float = Field(1.0, ge=0)
    ssd_gbps: PositiveFloat = 10.0
    pcie_gbps: PositiveFloat = 50.0
    probe_s: float = Field(0.001, ge=0)
    gpu_usd_per_hour: PositiveFloat = 2.29
    prefill_tokens_s: PositiveFloat = 60_000.0
    ssd_usd: PositiveFloat = 1655.0
    tbw_bytes: PositiveFloat = 1825e12


class Own(NamedTuple):
    """``demands`` uint8[objects], up to 255; ``hits`` float32[objects]; ``numbers`` float64[6]."""

    demands: np.ndarray
    hits: np.ndarray
    numbers: np.ndarray


def create(world: World, settings: Settings) -> Own:
    """Nothing was demanded yet."""
    wear_s = (
        settings.theta * settings.ssd_usd / settings.tbw_bytes / settings.gpu_usd_per_hour * 3600
    )
    numbers = [
        settings.free_demands, world.block_tokens / settings.prefill_tokens_s,
        settings.ssd_gbps * 1e9, settings.pcie_gbps * 1e9, settings.probe_s, wear_s,
    ]  # fmt: skip
    return Own(
        np.zeros(world.objects, np.uint8),
        np.zeros(world.objects, np.float32),
        np.array(numbers, np.float64),
    )


def used(s: Any, first: int, count: int) -> None:
    """Demands that were met."""
    for o in range(first, first + count):
        s.p.demands[o] = min(int(s.p.demands[o]) + 1, 255)
        s.p.hits[o] += np.float32(_WEIGHT) * (np.float32(1.0) - s.p.hits[o])


def missed(s: Any, o: int) -> None:
    """A demand that was not met."""
    s.p.demands[o] = min(int(s.p.demands[o]) + 1, 255)
    s.p.hits[o] -= np.float32(_WEIGHT) * s.p.hits[o]


def created(s: Any, o: int) -> None:
    """The making is a demand."""
    missed(s, o)


def recomputed(s: Any, o: int) -> None:
    """So is computing it again."""
    missed(s, o)


def demote(s: Any, o: int) -> bool:
    """The rule."""
    numbers = s.p.numbers
    if s.p.demands[o] <= numbers[_FREE]:
        return True
    size, share = float(size_of(s, o)), float(s.p.hits[o])
    chunks = 1 if class_of(s, o) == 0 else chunks_behind(s, o)
    saved_s = share * chunks * numbers[_CHUNK_S]
    read_s = size / numbers[_SSD_BPS] + size / numbers[_PCIE_BPS]
    return saved_s - read_s - (1.0 - share) * numbers[_PROBE_S] > size * numbers[_WEAR_S]
