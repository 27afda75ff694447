"""One cache after another under rising loads: flat placement against staged tiers (FlatCake)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.core.config import Strict
from harness.simulator.loading.options import LoadOptions
from harness.simulator.loading.rates import Rates
from harness.simulator.loading.result import LoadResult, under_load
from harness.simulator.loading.work import Work


@dataclass(frozen=True)
class Server:
    """A policy's placement, and how its loads queue."""

    name: str
    policy: str
    options: LoadOptions


class Risen(Strict):
    """What a server did at each load, lowest first."""

    server: str
    policy: str
    loads: tuple[LoadResult, ...]


def servers(options: LoadOptions) -> tuple[Server, ...]:
    """FlatCake's comparison: placement once and direct reads with two queues, with one queue, and
    tiers whose restores are staged through DRAM.

    ``options`` gives what all have: GPUs, and the room on the GPU or for staging where it counts.
    """

    def served(**changes: object) -> LoadOptions:
        return LoadOptions.model_validate({**options.model_dump(), **changes})

    return (
        Server("flat, two queues", "flatcake", served(scheduler="two-queues", path="direct")),
        Server("flat, one queue", "flatcake", served(scheduler="one-queue", path="direct")),
        Server("staged tiers", "mooncake", served(scheduler="prefetch", path="staged")),
    )


def risen(
    server: Server, work: Work, rates: Callable[[LoadOptions], Rates], loads: Sequence[float]
) -> Risen:
    """Serve the work at each of ``loads``, requests a second; UsageError as ``under_load``."""
    results = []
    for load in sorted(loads):
        options = server.options.model_copy(update={"requests_per_s": load})
        results.append(under_load(work, rates(options), options))
    return Risen(server=server.name, policy=server.policy, loads=tuple(results))
