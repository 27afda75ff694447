from __future__ import annotations

import pytest

from harness.endurance.steady import Window, is_steady, mean_waf, steady_windows


def windows(*wafs: float) -> list[Window]:
    return [Window(4096 * 1000, 1000, round(1000 * (waf - 1)), 0) for waf in wafs]


@pytest.mark.parametrize(
    ("wafs", "steady"),
    [
        ((2, 2, 2, 2), False),
        ((2, 2, 2, 2, 2), True),
        ((9, 2, 2, 2, 2, 2), True),
        ((2, 2, 2, 2, 2, 9), False),
        # Within 5 % of the mean, but rising by more than 2 %.
        ((2.0, 2.02, 2.04, 2.06, 2.08), False),
        ((2.0, 2.05, 2.0, 2.05, 2.0), True),
        # Flat on average, but apart by more than 5 %.
        ((2.0, 2.15, 2.0, 2.15, 2.0), False),
    ],
)
def test_the_rule(wafs: tuple[float, ...], steady: bool) -> None:
    assert is_steady(windows(*wafs)) is steady
    assert len(steady_windows(windows(*wafs))) == (5 if steady else 0)


def test_waf_of_windows_is_weighted_by_what_was_written() -> None:
    uneven = [Window(0, 1000, 0, 0), Window(0, 3000, 3000, 0)]
    assert mean_waf(uneven) == pytest.approx(1.75)
    assert uneven[1].waf == 2.0
