"""FlatCake's comparison, the same requests at rising loads."""

from __future__ import annotations

import numpy as np
import pytest

from harness.simulator.loading.options import LoadOptions
from harness.simulator.loading.rising import risen, servers
from tests.simulator.loading.cases import GB, rates, work

LOADS = (0.5, 0.05)


def test_the_servers_are_two_queues_one_queue_and_staging() -> None:
    options = LoadOptions(gpus=2, staging_bytes=int(4 * GB), deadline_s=9.0)
    found = servers(options)
    kinds = [(one.policy, one.options.scheduler, one.options.path) for one in found]
    assert kinds == [
        ("flatcake", "two-queues", "direct"), ("flatcake", "one-queue", "direct"),
        ("mooncake", "prefetch", "staged"),
    ]  # fmt: skip
    assert all(one.options.gpus == 2 for one in found)
    assert found[2].options.staging_bytes == int(4 * GB) and found[2].options.deadline_s == 9


def test_as_the_load_rises_staging_delivers_less_and_two_queues_wait_less_than_one() -> None:
    """Requests with 2 GB or 0.1 GB on the SSD, which reads 1 GB/s: a few large ones hold up all."""
    rng = np.random.default_rng(3)
    times = np.sort(rng.uniform(0, 4000, 400))
    sizes = np.where(rng.random(400) < 0.3, 2.0, 0.1)
    traffic = work(*[(float(t), float(s), 0.0, 100) for t, s in zip(times, sizes, strict=True)])
    two, one, staged = (
        risen(server, traffic, lambda options: rates(400), LOADS)
        for server in servers(LoadOptions(staging_bytes=int(4 * GB)))
    )
    for found in (two, one, staged):
        loads = [at.requests_per_s for at in found.loads]
        assert loads == pytest.approx(sorted(LOADS)), found.server
    for flat in (two, one):
        assert all(at.delivered == at.ceiling and not at.cancelled for at in flat.loads)
    low, high = staged.loads
    assert high.delivered < low.delivered and high.cancelled > low.cancelled
    assert two.loads[1].ttft_s.mean < one.loads[1].ttft_s.mean
    assert two.loads[1].ttft_s.p99 < one.loads[1].ttft_s.p99
