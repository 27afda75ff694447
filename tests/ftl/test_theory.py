"""The ``drive`` policy against results that do not come from a simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import lambertw

from harness.core.config import validate
from harness.core.ops import Op
from harness.core.profiles import DeviceProfile
from harness.ftl import Ftl
from harness.ftl.workloads import SplitMix64, sequential

LINES, PAGES_PER_LINE, PAGE = 1024, 1024, 4096


def drive(over_provisioning: float, **settings: Any) -> DeviceProfile:
    namespace = int(LINES * PAGES_PER_LINE / (1 + over_provisioning)) * PAGE
    return validate(
        {
            "pgs_per_blk": PAGES_PER_LINE // 64,
            "blks_per_pl": LINES,
            "capacity_bytes": namespace,
            "policy": "drive",
            "drive": {"line_bytes": PAGES_PER_LINE * PAGE, **settings},
        },
        DeviceProfile,
        "theory",
    )


def analytic_waf(physical_over_logical: float) -> float:
    """WAF of uniform random writes when the oldest line is cleaned, for large lines.

    Desnoyers, "Analytic Modeling of SSD Write Performance", SYSTOR 2012, section 3 (LRU
    cleaning); greedy cleaning tends to it as lines grow.
    """
    a = physical_over_logical
    return float(a / (a + lambertw(-a * np.exp(-a)).real))


def random_waf(profile: DeviceProfile, warm: float, measured: float) -> float:
    """WAF of uniform random 4 KiB writes after ``warm`` namespaces of them."""
    ftl, rng, pages = Ftl(profile), SplitMix64(1), profile.namespace_pages

    def write(namespaces: float) -> tuple[int, int]:
        count = int(pages * namespaces)
        offset = rng.picks(count, pages) * np.uint64(PAGE)
        ftl.apply(offset, np.full(count, PAGE), np.full(count, Op.WRITE))
        return ftl.counters().host_pages, ftl.counters().gc_pages

    ftl.apply(*sequential(0, profile.namespace_bytes, 1 << 20))
    host, gc = write(warm)
    host_after, gc_after = write(measured)
    return 1 + (gc_after - gc) / (host_after - host)


@pytest.mark.parametrize("over_provisioning", [0.07, 0.1, 0.28])
@pytest.mark.parametrize("victim", ["greedy", "cost-benefit"])
def test_uniform_random_writes_agree_with_the_analytic_waf(
    over_provisioning: float, victim: str
) -> None:
    profile = drive(over_provisioning, victim=victim)
    measured = random_waf(profile, warm=3, measured=2)
    physical = LINES * PAGES_PER_LINE / profile.namespace_pages
    assert measured == pytest.approx(analytic_waf(physical), rel=0.03)


@pytest.mark.parametrize("victim", ["greedy", "cost-benefit"])
def test_sequential_overwrite_moves_nothing(victim: str) -> None:
    ftl = Ftl(drive(0.07, victim=victim))
    for _ in range(4):
        ftl.apply(*sequential(0, ftl.profile.namespace_bytes, 1 << 17))
    assert ftl.counters().gc_pages == 0
    assert ftl.counters().host_pages == 4 * ftl.profile.namespace_pages


@pytest.mark.parametrize("isolation", ["initial", "persistent"])
def test_streams_keep_apart_what_dies_apart(isolation: str) -> None:
    """Half of the space is a circular log, half is never touched again, written interleaved."""
    profile = drive(0.07)
    half = profile.namespace_bytes // 2 // (1 << 17) * (1 << 17)
    log = np.arange(0, half, 1 << 17, dtype=np.uint64)
    offset = np.stack([log, log + np.uint64(half)], axis=1).ravel()
    stream = np.tile(np.array([0, 1], np.uint8), len(log))

    def waf(profile: DeviceProfile) -> float:
        ftl = Ftl(profile)
        ftl.apply(offset, np.full(len(offset), 1 << 17), np.full(len(offset), Op.WRITE), stream)
        before = ftl.counters()
        for _ in range(6):
            ftl.apply(log, np.full(len(log), 1 << 17), np.full(len(log), Op.WRITE))
        after = ftl.counters()
        return 1 + (after.gc_pages - before.gc_pages) / (after.host_pages - before.host_pages)

    mixed = waf(profile)
    apart = waf(drive(0.07, streams="placement", max_streams=2, isolation=isolation))
    assert apart == 1.0
    assert mixed > 1.05


def test_trim_gives_the_drive_room() -> None:
    honoured, ignored = Ftl(drive(0.07)), Ftl(drive(0.07, trim=False))
    pages, rng = honoured.profile.namespace_pages, SplitMix64(5)
    half = pages // 2 * PAGE
    for ftl in (honoured, ignored):
        ftl.apply(*sequential(0, ftl.profile.namespace_bytes, 1 << 20))
        ftl.apply(np.array([half]), np.array([half]), np.array([Op.DISCARD]))
    offset = rng.picks(3 * pages, pages // 2) * np.uint64(PAGE)
    for ftl in (honoured, ignored):
        ftl.apply(offset, np.full(len(offset), PAGE), np.full(len(offset), Op.WRITE))
    assert honoured.counters().trimmed_pages == pages // 2
    assert ignored.counters().trimmed_pages == 0
    gained = honoured.counters().waf, ignored.counters().waf
    assert gained[0] is not None and gained[1] is not None
    assert gained[0] < 1.3 < 2.0 < gained[1]
