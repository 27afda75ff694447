"""Bandwidth against request size: a curve where there are sizes, and nothing invented."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure as Canvas

from harness.report.layout_cells import label
from harness.report.request_plots import figures
from tests.calibrate.builders import layout_cell, reference_cell


def cells() -> list[dict[str, Any]]:
    plain = [
        reference_cell(size, depth, depth * size / 1e7)
        for size in (4096, 65536, 1 << 20)
        for depth in (1, 8)
    ]
    placed = [
        layout_cell(store, 16384, 2.0, size=size)
        for store, size in (("kvbm", 8192), ("lmcache-raw-block", 65536), ("kvbm", 1 << 20))
    ]
    busy = [layout_cell("kvbm", 16384, 1.0, size=5000, background_writes=True)]
    return [cell.model_dump(mode="json") for cell in (*plain, *placed, *busy)]


def test_plain_cells_are_curves_by_what_is_in_flight() -> None:
    plain, placed = figures(cells(), "a drive")
    axes = Canvas().add_subplot()
    plain.draw(axes)
    curves = {c.get_label(): c for c in axes.containers}
    assert set(curves) == {"1 in flight", "8 in flight"}
    assert curves["8 in flight"][0].get_xdata().tolist() == [4096, 65536, 1 << 20]
    axes = Canvas().add_subplot()
    placed.draw(axes)
    assert {c.get_label() for c in axes.containers} == {"kvbm", "lmcache-raw-block"}
    assert sum(len(c[0].get_xdata()) for c in axes.containers) == 3  # quiet cells only


def test_two_sizes_are_no_curve() -> None:
    few = [c for c in cells() if c["pattern"] == "sequential" and c["request_bytes"] < 1 << 20]
    assert figures(few, "a drive") == []


def test_plain_cells_of_several_sizes_are_told_apart() -> None:
    plain = [c for c in cells() if not c["layout"]]
    names = [label(c, plain) for c in plain]
    assert len(set(names)) == len(names)
    assert names[0] == "sequential 4 KiB, depth 1"
