"""What the ``drive`` policy gives for workloads that others measured on real drives.

The spare flash of those drives and the order of overwriting were not published, so each is a
row or a column here: the figures show which settings lie on either side of the published ones.
Sizes are divided by --scale; every ratio stays.

Example: python benchmarks/wear_published.py --scale 64
"""

from __future__ import annotations

import argparse
from typing import Any

from harness.core.errors import UsageError
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
)
from harness.endurance.wear import Options, wear

SPARE = (0.07, 0.10, 0.145, 0.20, 0.28)
ORDERS: tuple[Order, ...] = ("burst-lifo", "random")
SETTINGS: dict[str, dict[str, Any]] = {
    "one stream": {},
    "placement, initially isolated": {"streams": "placement"},
    "placement, persistently isolated": {"streams": "placement", "isolation": "persistent"},
}


def pr_4016(spare: float, order: Order, scale: int, settings: dict[str, Any]) -> str:
    """WAF of the whole run; a dash where the write points do not leave the drive a spare line."""
    try:
        drive = pr_4016_drive(spare, scale, **settings)
    except UsageError:
        return "-"
    volume = 4 * 960 * GIB // scale
    source = Pr4016(
        name="pr-4016", workers=pr_4016_workers(scale), volume_bytes=volume, order=order
    )
    return f"{wear(source, drive, Options(fills=1)).cumulative_waf:.3f}"


def cachelib(spare: float, settings: dict[str, Any]) -> str:
    """WAF of half the bytes as small objects, half as log."""
    size = 4 * GIB
    drive = cachelib_drive(spare, size, **{**settings, "max_streams": 2})
    source = CacheLib(name="cachelib", namespace_bytes=size, volume_bytes=6 * size)
    return f"{wear(source, drive, Options()).cumulative_waf:.3f}"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=64)
    scale = parser.parse_args().scale
    print(f"LMCache PR 4016, published: {PR_4016_WAF['none']} without and "
          f"{PR_4016_WAF['placement']} with placement")  # fmt: skip
    for order in ORDERS:
        for name, settings in SETTINGS.items():
            found = [f"{spare:.1%} {pr_4016(spare, order, scale, settings)}" for spare in SPARE]
            print(f"  {order:>10}, {name:<32}: {', '.join(found)}", flush=True)
    print(f"CacheLib, published: about {CACHELIB_FDP_WAF} with placement, above 1.3 without")
    for name, settings in SETTINGS.items():
        found = [f"{spare:.1%} {cachelib(spare, settings)}" for spare in SPARE]
        print(f"  {name:<44}: {', '.join(found)}", flush=True)


if __name__ == "__main__":
    main()
