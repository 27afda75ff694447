"""Fits give back the parameters that data was made from, and choose the form it was made by."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.calibrate.fits import (
    fit_bandwidth,
    fit_waf,
    latency_gbps,
    saturation_gbps,
    waf_at,
)

SIZE, DEPTH = (
    values.ravel().astype(float)
    for values in np.meshgrid([4096, 65536, 262144, 1 << 20, 4 << 20], [1, 4, 16, 64])
)


def noise(count: int, share: float) -> np.ndarray:
    return np.exp(np.random.default_rng(3).normal(0, share, count))


@pytest.mark.parametrize(("t0", "b1", "b_max"), [(80, 2.0, 6.8), (10, 5.0, 12.0), (300, 0.5, 2.0)])
def test_latency_form_is_recovered(t0: float, b1: float, b_max: float) -> None:
    gbps = latency_gbps(SIZE, DEPTH, t0, b1, b_max) * noise(len(SIZE), 0.01)
    found, rejected = fit_bandwidth(SIZE, DEPTH, gbps)
    assert found.form == "latency"
    assert found.parameters["t0_us"] == pytest.approx(t0, rel=0.05)
    assert found.parameters["b1_gbps"] == pytest.approx(b1, rel=0.05)
    assert found.parameters["b_max_gbps"] == pytest.approx(b_max, rel=0.03)
    assert found.error < 0.02 < rejected["saturation"]


@settings(max_examples=8, deadline=None)
@given(b_max=st.floats(0.5, 50), half=st.floats(1e4, 1e7))
def test_saturation_form_is_recovered(b_max: float, half: float) -> None:
    gbps = saturation_gbps(SIZE, DEPTH, b_max, half)
    found, _ = fit_bandwidth(SIZE, DEPTH, gbps)
    assert found.rms < 1e-3
    predicted = {"saturation": ("b_max_gbps", "half_bytes")}
    if found.form in predicted:
        assert found.parameters["b_max_gbps"] == pytest.approx(b_max, rel=1e-2)
        assert found.parameters["half_bytes"] == pytest.approx(half, rel=1e-2)


def test_residuals_are_what_they_say() -> None:
    gbps = saturation_gbps(SIZE, DEPTH, 5.0, 5e5)
    gbps[0] *= 1.5
    found, _ = fit_bandwidth(SIZE, DEPTH, gbps)
    assert found.worst == pytest.approx(1 / 3, abs=0.08)
    assert 0 < found.rms < found.worst


def test_three_points_get_the_form_with_two_parameters() -> None:
    gbps = saturation_gbps(SIZE[:3], DEPTH[:3], 5.0, 5e5)
    found, rejected = fit_bandwidth(SIZE[:3], DEPTH[:3], gbps)
    assert (found.form, rejected) == ("saturation", {})


@pytest.mark.parametrize(
    ("size", "depth", "gbps"),
    [([1e6, 2e6], [1, 1], [1, 1]), ([1e6, 2e6, 3e6], [1, 1, 1], [1, 0, 1])],
)
def test_data_that_cannot_be_fitted(size: list, depth: list, gbps: list) -> None:
    with pytest.raises(ValueError, match=r"too few|positive"):
        fit_bandwidth(np.array(size), np.array(depth, float), np.array(gbps, float))


def test_waf_follows_a_line_or_a_power() -> None:
    x = np.array([0.5, 0.6, 0.7, 0.8, 0.9])
    line, rejected = fit_waf(x, 0.5 + 2 * x)
    assert line.form == "linear" and rejected["power"] > line.error
    assert (line.parameters["a"], line.parameters["b"]) == (pytest.approx(0.5), pytest.approx(2.0))
    power, rejected = fit_waf(x, 1 + 3 * x**4)
    assert power.form == "power" and rejected["linear"] > power.error
    assert power.parameters["a"] == pytest.approx(3.0)
    assert power.parameters["b"] == pytest.approx(4.0)


def test_a_curve_may_end_at_no_amplification_at_all() -> None:
    spare, waf = np.array([0.07, 0.1, 0.14, 0.28]), np.array([1.26, 1.05, 1.0, 1.0])
    found, rejected = fit_waf(spare, waf)
    assert found.form == "power" and found.parameters["b"] < -1
    assert found.worst < 0.02 < rejected["linear"]
    # Beyond the samples a line would go below 1.
    assert waf_at("linear", np.array([10.0]), 1.3, -1.0).tolist() == [1.0]
    assert waf_at("power", np.array([2.0]), 3.0, 4.0).tolist() == [49.0]


@pytest.mark.parametrize(
    ("x", "waf"),
    [([1, 1, 2], [2, 2, 2]), ([1, 2, 3], [0.9, 2, 2]), ([0, 1, 2], [1, 2, 2])],
)
def test_waf_needs_three_places_and_sense(x: list, waf: list) -> None:
    with pytest.raises(ValueError, match="three different positive x"):
        fit_waf(np.array(x, float), np.array(waf, float))
