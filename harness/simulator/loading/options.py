"""How requests queue for SSD, PCIe and GPU."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from harness.core.config import Size, Strict
from harness.simulator.loading.rates import Path

Scheduler = Literal["one-queue", "two-queues", "prefetch"]


class LoadOptions(Strict):
    """Disciplines of one server.

    Attributes
    ----------
    scheduler
        ``one-queue``: first come, first served; a GPU that takes a request waits for its loading.
        ``two-queues``: what lies on the SSD is prefetched whole to the GPU before the request may
        run, least waiting per byte last; then it runs at its original place (FlatCake's FC-MAS).
        ``prefetch``: as in tiered stores, every request's restore into a staging buffer in DRAM
        starts when it arrives; one for which the buffer has no room, or that comes too late, is
        cancelled and recomputed.
    path
        ``staged``: SSD to DRAM to GPU; ``direct``: SSD to GPU.
    gpus
        Servers that prefill, each at the whole prefill rate.
    layers
        Of a two-layer window in which both hops overlap; 0: one hop after the other.
    gpu_bytes
        ``two-queues``: room for what is prefetched and has not begun; without room it waits.
    staging_bytes
        ``prefetch``: the staging buffer.
    deadline_s
        ``prefetch``: a restore that is not done so long after its request came is cancelled.
    requests_per_s
        The trace's arrivals, brought to this mean rate; None keeps the trace's clock.
    """

    scheduler: Scheduler = "one-queue"
    path: Path = "staged"
    gpus: PositiveInt = 1
    layers: int = Field(0, ge=0)
    gpu_bytes: Size | None = None
    staging_bytes: Size | None = None
    deadline_s: PositiveFloat | None = None
    requests_per_s: PositiveFloat | None = None
