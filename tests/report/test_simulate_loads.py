"""FlatCake's figures from the record of ``harness simulate loads``."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure as Canvas

from harness.report.plots import svg
from harness.report.simulate_loads import figures


def at(load: float, delivered: float, mean: float, prefetch: float | None) -> dict[str, Any]:
    return {
        "requests_per_s": load, "ceiling": 0.95, "delivered": delivered,
        "ttft_s": {"mean": mean, "p99": 9 * mean},
        "prefetch_s": None if prefetch is None else {"mean": prefetch},
    }  # fmt: skip


FOUND = {
    "of": "t, 10 requests", "staged": "Staged tiers: staging buffer 10GB, no deadline.",
    "servers": [
        {"server": "flat, two queues", "loads": [at(0.1, 0.95, 1, 1), at(1, 0.95, 4, 2)]},
        {"server": "flat, one queue", "loads": [at(0.1, 0.95, 1, 1), at(1, 0.95, 5, 3)]},
        {"server": "staged tiers", "loads": [at(0.1, 0.8, 1, 1), at(1, 0.5, 2, None)]},
    ],
}  # fmt: skip


def drawn(name: str) -> dict[str, list[list[float]]]:
    (figure,) = [one for one in figures(FOUND) if one.name == name]
    axes = Canvas().subplots()
    figure.draw(axes)
    assert "<svg" in svg(figure) and figure.device == "t, 10 requests"
    return {str(line.get_label()): line.get_xydata().tolist() for line in axes.lines}


def test_what_is_delivered_is_beside_what_the_cache_has() -> None:
    lines = drawn("delivered")
    assert lines["staged tiers"] == [[0.1, pytest.approx(80)], [1, 50]]
    assert lines["its cache has"] == [[0.1, 95], [1, 95]]
    assert "staging buffer 10GB" in figures(FOUND)[0].note


def test_one_queue_and_two_are_compared_by_mean_and_p99() -> None:
    lines = drawn("queues")
    assert set(lines) == {
        f"flat, {n} queue{s}, {value}"
        for n, s in (("one", ""), ("two", "s")) for value in ("mean", "P99")
    }  # fmt: skip
    assert lines["flat, one queue, P99"] == [[0.1, 9], [1, 45]]


def test_a_load_at_which_all_was_cancelled_has_no_prefetch() -> None:
    assert drawn("prefetch")["staged tiers"] == [[0.1, 1]]
