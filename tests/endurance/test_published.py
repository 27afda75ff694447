"""What real drives were measured to do, and the settings under which the model does it.

Sizes are a 64th of the published ones; every ratio is the same.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.endurance.published import (
    CACHELIB_FDP_WAF,
    GIB,
    PR_4016_WAF,
    CacheLib,
    Order,
    Pr4016,
    cachelib_drive,
    pr_4016_drive,
    pr_4016_workers,
)  # fmt: skip
from harness.endurance.wear import Options, wear

SCALE = 64


def pr_4016(spare: float, order: Order, **settings: Any) -> float:
    """WAF of the whole run, as published."""
    source = Pr4016(
        name="pr-4016", workers=pr_4016_workers(SCALE), volume_bytes=4 * 960 * GIB // SCALE,
        order=order,
    )  # fmt: skip
    found = wear(source, pr_4016_drive(spare, SCALE, **settings), Options(fills=1)).cumulative_waf
    assert found is not None
    return found


def test_the_workers_are_the_published_ones() -> None:
    workers = pr_4016_workers(1)
    assert len(workers) == 9
    assert sum(worker.region_bytes for worker in workers) == 855 * GIB
    assert len({worker.placement for worker in workers}) == 5


def test_one_stream_is_bracketed_by_7_and_10_percent_spare() -> None:
    """Slots reused last freed first, as LMCache does; the drive's spare flash is not published."""
    little, more = (pr_4016(spare, "burst-lifo") for spare in (0.07, 0.10))
    assert more < PR_4016_WAF["none"] < little


def test_placement_is_bracketed_by_the_order_of_reuse() -> None:
    settings = {"streams": "placement"}
    ordered, shuffled = (pr_4016(0.28, order, **settings) for order in ("burst-lifo", "random"))
    assert ordered < PR_4016_WAF["placement"] < shuffled


@pytest.mark.parametrize("isolation", ["initial", "persistent"])
def test_cachelib_with_placement_is_about_one(isolation: str) -> None:
    size = 4 * GIB

    def waf(**settings: Any) -> float:
        source = CacheLib(name="cachelib", namespace_bytes=size, volume_bytes=6 * size)
        found = wear(source, cachelib_drive(0.145, size, **settings), Options()).cumulative_waf
        assert found is not None
        return found

    apart = waf(streams="placement", max_streams=2, isolation=isolation)
    assert apart == pytest.approx(CACHELIB_FDP_WAF, abs=0.03)
    assert waf() > 1.3
