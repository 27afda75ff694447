"""Fits of measured bandwidth and write amplification: pure functions with their residuals.

Errors are relative throughout, because a model that is right to 5 % at 4 KiB and at 4 MiB is
what a simulator needs. Which of two forms is taken is decided by leave-one-out error, so a form
with more parameters wins only if it predicts points that it has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_POINTS = {"latency": 4, "saturation": 3}
"""Points that a form needs: one more than its parameters, so that residuals mean something."""


@dataclass(frozen=True)
class Fitted:
    """A form with its parameters, residuals and its leave-one-out relative error."""

    form: str
    parameters: dict[str, float]
    rms: float
    worst: float
    error: float


def latency_gbps(size: Floats, depth: Floats, t0_us: float, b1: float, b_max: float) -> Floats:
    """min(depth * size / (t0 + size / b1), b_max): one command costs a fixed time and its
    transfer, ``depth`` of them overlap, and the device tops out. Sizes bytes, rates GB/s."""
    seconds = t0_us * 1e-6 + size / (b1 * 1e9)
    return np.minimum(depth * size / seconds / 1e9, b_max)


def saturation_gbps(size: Floats, depth: Floats, b_max: float, half: float) -> Floats:
    """b_max * x / (x + half) with x = size * depth, the bytes in flight."""
    flight = size * depth
    return b_max * flight / (flight + half)


def fit_bandwidth(
    size_bytes: Floats, queue_depth: Floats, gbps: Floats
) -> tuple[Fitted, dict[str, float]]:
    """The better of both forms, and the error of the one not taken.

    Parameters are float64 arrays of one shape: mean bytes a command, commands in flight,
    decimal GB/s. ValueError with fewer than three points or rates that are not positive.
    """
    if len(gbps) < min(LEAST_POINTS.values()):
        raise ValueError(f"{len(gbps)} points are too few for a fit")
    if np.any(gbps <= 0) or np.any(size_bytes <= 0) or np.any(queue_depth < 1):
        raise ValueError("sizes, depths and rates must be positive")
    found = [
        _fit(form, size_bytes, queue_depth, gbps)
        for form, least in LEAST_POINTS.items()
        if len(gbps) >= least
    ]
    found.sort(key=lambda fitted: fitted.error)
    return found[0], {other.form: other.error for other in found[1:]}


def _fit(form: str, size: Floats, depth: Floats, gbps: Floats) -> Fitted:
    names, starts = _starts(form, size, depth, gbps)
    parameters = _solve(form, size, depth, gbps, names, starts)
    near = [np.log([parameters[name] for name in names])]
    off = _predict(form, parameters, size, depth) / gbps - 1
    keep = ~np.eye(len(gbps), dtype=bool)
    left_out = [
        _predict(form, _solve(form, size[k], depth[k], gbps[k], names, near), size, depth)[i]
        / gbps[i]
        - 1
        for i, k in enumerate(keep)
    ]
    return Fitted(form, parameters, _rms(off), float(np.max(np.abs(off))), _rms(np.array(left_out)))


def _predict(form: str, parameters: dict[str, float], size: Floats, depth: Floats) -> Floats:
    if form == "latency":
        return latency_gbps(
            size, depth, parameters["t0_us"], parameters["b1_gbps"], parameters["b_max_gbps"]
        )
    return saturation_gbps(size, depth, parameters["b_max_gbps"], parameters["half_bytes"])


def _solve(
    form: str, size: Floats, depth: Floats, gbps: Floats, names: tuple[str, ...],
    starts: list[Floats],
) -> dict[str, float]:  # fmt: skip
    """Least squares of log rates over log parameters, the best from several starts."""
    from scipy.optimize import least_squares

    def off(logs: Floats) -> Floats:
        parameters = dict(zip(names, np.exp(logs).tolist(), strict=True))
        return np.log(_predict(form, parameters, size, depth) / gbps)

    # Rates beyond the samples' span are not identified by them: keep logs finite and near.
    tries = [least_squares(off, start, bounds=(start - 12, start + 12)) for start in starts]
    best = min(tries, key=lambda outcome: float(outcome.cost))
    return dict(zip(names, np.exp(best.x).tolist(), strict=True))


def _starts(
    form: str, size: Floats, depth: Floats, gbps: Floats
) -> tuple[tuple[str, ...], list[Floats]]:
    top = float(gbps.max())
    each_us = np.sort(depth * size / (gbps * 1e9) * 1e6)
    if form == "latency":
        return ("t0_us", "b1_gbps", "b_max_gbps"), [
            np.log([max(t0, 1e-3), b1, top])
            for t0 in (each_us[0] / 2, float(np.median(each_us)))
            for b1 in (top / 4, top)
        ]
    halves = (float(np.min(size * depth)), float(np.median(size * depth)))
    return ("b_max_gbps", "half_bytes"), [np.log([top, half]) for half in halves]


def waf_at(form: str, x: Floats, a: float, b: float) -> Floats:
    """WAF that a fit gives: ``linear`` max(1, a + b * x), ``power`` 1 + a * x ** b."""
    if form == "linear":
        return np.maximum(1.0, a + b * x)
    return 1 + a * x**b


def fit_waf(x: Floats, waf: Floats) -> tuple[Fitted, dict[str, float]]:
    """WAF against one variable by the better of the forms of ``waf_at``, and the other's error.

    The error is that of leaving out each point between the ends: what is asked of a curve lies
    within its range, and without an end it would have to be prolonged. At least three
    distinct positive x; ValueError otherwise. WAF is at least 1.
    """
    if len(np.unique(x)) < 3 or np.any(waf < 1) or np.any(x <= 0):
        raise ValueError("needs three different positive x and WAF of at least 1")
    found = sorted(
        (_fit_waf(form, x, waf) for form in ("linear", "power")), key=lambda fitted: fitted.error
    )
    return found[0], {other.form: other.error for other in found[1:]}


def _fit_waf(form: str, x: Floats, waf: Floats) -> Fitted:
    a, b = _solve_waf(form, x, waf)
    off = waf_at(form, x, a, b) / waf - 1
    left_out = []
    for i in np.flatnonzero((x > x.min()) & (x < x.max())):
        kept = np.arange(len(x)) != i
        left_out.append(
            waf_at(form, x[i : i + 1], *_solve_waf(form, x[kept], waf[kept]))[0] / waf[i] - 1
        )
    return Fitted(
        form, {"a": a, "b": b}, _rms(off), float(np.max(np.abs(off))), _rms(np.array(left_out))
    )


def _solve_waf(form: str, x: Floats, waf: Floats) -> tuple[float, float]:
    if form == "linear":
        slope, level = np.polyfit(x, waf, 1)
        return float(level), float(slope)
    from scipy.optimize import least_squares

    # What is amplified may be nothing at all (WAF 1), so the logarithm is of a, not of waf - 1.
    scale = float(np.exp(np.mean(np.log(x))))

    def off(parameters: Floats) -> Floats:
        return (1 + np.exp(parameters[0]) * (x / scale) ** parameters[1]) / waf - 1

    level = float(np.log(max(float(np.mean(waf)) - 1, 1e-6)))
    tries = [
        least_squares(off, [level, slope], bounds=([-30.0, -40.0], [10.0, 40.0]))
        for slope in (-8.0, -1.0, 1.0, 8.0)
    ]
    log_a, b = min(tries, key=lambda outcome: float(outcome.cost)).x
    return float(np.exp(log_a) * scale**-b), float(b)


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
