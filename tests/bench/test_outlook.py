"""How long a benchmark will take, said before it starts."""

from __future__ import annotations

import json

import pytest

from harness.bench.grid import load_grid, scaled
from harness.bench.layout import loop_bytes
from harness.bench.outlook import gds_outlook, outlook
from tests.bench.test_layout import MIB, grid, harness


def test_counts_what_will_be_measured_and_written() -> None:
    wanted = grid({"access": ["whole", "window"]}, fills=1, compare_engines=True)
    size = loop_bytes(wanted)
    ahead = outlook(wanted, size)
    assert (ahead.cells, ahead.too_large, ahead.load_points) == (4, 0, 0)
    # A fill, the reference region, and each store's age and sessions.
    stores = size - wanted.reference_bytes
    assert ahead.write_bytes == pytest.approx(size + 16 * MIB + stores + 2 * 16 * MIB)
    # Two layouts read in two ways, one of each on both engines, an anchor an engine.
    samples = 2 * 2 + 2 + 2
    least = wanted.repeats * samples * wanted.sample_seconds
    assert least < ahead.low_s <= ahead.high_s
    assert "4 cells" in ahead.text() and "about" in ahead.text()


def test_a_smaller_device_leaves_cells_out_and_says_how_many() -> None:
    wanted = scaled(grid({"context_tokens": [1024, 65536]}), size_bytes=loop_bytes(grid()))
    assert loop_bytes(wanted) == loop_bytes(grid())
    ahead = outlook(wanted, loop_bytes(wanted))
    assert (ahead.cells, ahead.too_large) == (2, 2)
    assert "2 more are too large" in ahead.text()


def test_a_time_limit_bounds_repeats_but_not_the_first_round() -> None:
    slow = grid(sample_seconds=10, repeats=5, max_repeats=50)
    free, bound = outlook(slow, 1 << 30), outlook(scaled(slow, budget_s=60), 1 << 30)
    assert free.high_s > free.low_s > 100
    assert 30 < bound.high_s == bound.low_s < 90


def test_scaling_keeps_the_cells_and_shrinks_the_rest() -> None:
    shipped = load_grid("layouts")
    small = scaled(shipped, size_bytes=8 << 30, sample_seconds=0.1, budget_s=60)
    assert small.layouts == shipped.layouts
    assert (small.reference_bytes, small.sample_seconds) == (2 << 30, 0.1)
    assert scaled(shipped) == shipped


def test_the_command_says_it_before_it_starts() -> None:
    done = harness("bench", "layout", "--grid", "load", "--dry-run", "--json")
    said = json.loads(done.stdout)
    assert (said["cells"], said["load_points"]) == (0, 28)
    plain = harness("bench", "layout", "--grid", "layouts", "--size", "1GiB", "--dry-run")
    assert "608 more are too large for the device" in plain.stdout


def test_modes_of_a_gpu_are_counted_as_if_all_could_be_measured() -> None:
    wanted = grid(
        gds=[
            {
                "stores": ["session-contiguous"], "model": "llama-3.1-8b-tp8",
                "context_tokens": [1024], "threads": [1, 4], "task_bytes": ["1MiB"],
                "host": ["posix-direct"], "modes": ["host-staged"], "copy_bytes": ["1MiB"],
            }
        ],
        layouts=[],
    )  # fmt: skip
    ahead = gds_outlook(wanted)
    assert (ahead.cells, ahead.too_large) == (2 * 2 + 1, 0)
    assert ahead.write_bytes > 0 and ahead.low_s == ahead.high_s
    assert gds_outlook(scaled(wanted, budget_s=0.001)).low_s < ahead.low_s
