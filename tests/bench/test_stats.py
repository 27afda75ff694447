"""Medians, intervals, settling: values, and properties that hold for any samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.bench.stats import estimate, ratio, settled, spread, without_outliers

samples = st.lists(st.floats(0.1, 1e3), min_size=1, max_size=12)


@given(samples)
def test_interval_holds_the_median_and_stays_inside_the_samples(values: list[float]) -> None:
    found = estimate(values)
    assert found.low <= found.median <= found.high
    assert min(values) <= found.low and found.high <= max(values)
    assert found.n == len(values)


def test_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for trial in range(300):
        found = estimate(rng.normal(10, 1, 15), seed=trial)
        hits += found.low <= 10 <= found.high
    assert 0.90 <= hits / 300 <= 0.99


def test_ratio_cancels_drift_that_both_samples_share() -> None:
    drift = np.array([1.0, 2.0, 5.0, 0.5, 3.0])
    found = ratio(list(2 * drift), list(drift))
    assert (found.median, found.low, found.high) == (2.0, 2.0, 2.0)


def test_same_samples_same_interval() -> None:
    assert estimate([3, 1, 2, 5, 4], seed=3) == estimate([3, 1, 2, 5, 4], seed=3)


def test_no_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        estimate([])


def test_steady_samples_settle_and_a_trend_does_not() -> None:
    assert settled([10.0, 10.1, 9.9, 10.0, 10.05], 0.1)
    assert not settled([10.0, 9.0, 8.0, 7.0, 6.0], 0.1)
    assert not settled([1.0, 10.0, 1.0, 10.0, 5.0], 0.1)
    assert not settled([1.0], 0.1)


def test_outliers_are_dropped_by_position_and_zero_keeps_all() -> None:
    values = [10.0, 10.1, 9.9, 10.05, 100.0]
    assert without_outliers(values, 5) == [0, 1, 2, 3]
    assert without_outliers(values, 0) == [0, 1, 2, 3, 4]
    assert without_outliers([5.0] * 4, 3) == [0, 1, 2, 3]


def test_spread_is_relative_to_the_median() -> None:
    assert spread([8.0, 10.0, 12.0]) == pytest.approx(0.4)
