"""Slowdown by fragment size: drawn where there is a curve, and nowhere else."""

from __future__ import annotations

from typing import Any

from harness.report.fragment_plots import figures
from harness.report.plots import svg


def pair(size: int, slowdown: float, access: str = "window") -> dict[str, Any]:
    return {
        "layout": "lmcache-raw-block", "access": access, "request_bytes": size,
        "slowdown": {"median": slowdown, "low": slowdown * 0.9, "high": slowdown * 1.1, "n": 5},
    }  # fmt: skip


def test_three_sizes_make_a_curve_for_every_way_of_reading() -> None:
    pairs = [pair(s << 10, 16 / s, a) for s in (4, 16, 64) for a in ("layers", "window")]
    (figure,) = figures(pairs, "a device")
    drawn = svg(figure)
    for words in ("layers", "window", "4 KiB", "64 KiB", "slower than contiguous"):
        assert words in drawn


def test_sizes_that_hardly_differ_are_no_curve() -> None:
    assert figures([pair(1 << 20, 1.0), pair((1 << 20) - 4096, 1.1), pair(65536, 2.0)], "") == []
    assert figures([], "") == []
