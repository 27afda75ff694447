"""The load sweep's figures: a series for each layout and rule, rates rising."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure as Canvas

from harness.report.load_plots import figures, series


def point(layout: str, rate: float, delivered: float, p50: float | None) -> dict[str, Any]:
    share = {"median": delivered, "low": delivered - 0.01, "high": delivered + 0.01, "n": 5}
    times = {} if p50 is None else {"p50": p50, "p99": 2 * p50, "max": 3 * p50}
    return {
        "layout": layout, "on_deadline": "cancel", "rate_per_s": rate, "delivered": share,
        "prefetch_s": times,
    }  # fmt: skip


POINTS = [
    point("slots", 4.0, 0.2, None), point("contiguous", 2.0, 0.9, 0.3),
    point("slots", 2.0, 0.5, 0.8), point("contiguous", 4.0, 0.8, 0.4),
]  # fmt: skip


def test_series_rise_with_the_rate() -> None:
    assert {name: [p["rate_per_s"] for p in mine] for name, mine in series(POINTS).items()} == {
        "contiguous, cancel": [2.0, 4.0], "slots, cancel": [2.0, 4.0],
    }  # fmt: skip


def test_what_was_never_completed_has_no_prefetch_time() -> None:
    delivered, prefetch = figures({"load": POINTS}, "a drive")
    axes = Canvas().add_subplot()
    delivered.draw(axes)
    assert [c[0].get_ydata().tolist() for c in axes.containers] == [[90.0, 80.0], [50.0, 20.0]]
    axes = Canvas().add_subplot()
    prefetch.draw(axes)
    assert [line.get_ydata().tolist() for line in axes.lines] == [[0.3, 0.4], [0.8]]


def test_one_rate_is_no_curve() -> None:
    assert figures({"load": POINTS[:1]}, "a drive") == []
    assert figures({}, "a drive") == []
