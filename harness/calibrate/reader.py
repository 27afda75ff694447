"""The reader for simulators: small, stable, and never a figure that was not measured.

    from harness.calibrate import load

    calibration = load("calibration.json")
    calibration.constant("B_ssd").value        # GB/s, with .low and .high
    calibration.bandwidth_gbps(65536, 32)      # by request size and depth, from the fit
    calibration.restore_gbps("lmcache-raw-block", 65536)
    calibration.waf(store="lmcache-raw-block")

Whatever the file does not hold raises ``MissingTerm``; ``seed=True`` asks for the published
simulator's constant instead, and the result says so in ``source``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.bench.stats import Interval
from harness.calibrate.constants import best_waf
from harness.calibrate.files import read
from harness.calibrate.fits import latency_gbps, saturation_gbps
from harness.calibrate.model import (
    BandwidthTerm,
    CalibrationFile,
    EnduranceTerm,
    LayoutPoint,
    LayoutTerm,
    WafSample,
)
from harness.core.errors import UsageError


class MissingTerm(UsageError):
    """The calibration file does not hold what was asked for; the message lists what it does."""


@dataclass(frozen=True)
class Value:
    """A figure with its 95 % interval and where it comes from.

    ``source`` is measured, modelled, fitted or seed; ``extrapolated`` marks a figure outside the
    range in which it was measured.
    """

    value: float
    low: float
    high: float
    source: str
    extrapolated: bool = False

    def __float__(self) -> float:
        return self.value


class Calibration:
    """A calibration file, for a simulator. Rates are decimal GB/s (1e9 bytes a second)."""

    def __init__(self, file: CalibrationFile) -> None:
        self.file = file

    def constant(self, name: str, *, seed: bool = False) -> Value:
        """A constant of the published simulator: B_ssd, B_pcie, WAF or R_prefill.

        Parameters
        ----------
        name
            Its name.
        seed
            Take the published value where the file has none (``source`` is then ``seed``).

        Raises
        ------
        MissingTerm
            The file has no measurement of it and ``seed`` is False, or no such constant.
        """
        for constant in self.file.constants:
            if constant.name != name:
                continue
            if constant.value is not None:
                return _value(constant.value, constant.status)
            if seed:
                return Value(constant.seed, constant.seed, constant.seed, "seed")
            raise MissingTerm(
                f"{name} is {constant.status} in this file ({constant.conditions})",
                fix=f"seed=True takes the published {constant.seed:g} {constant.unit}",
            )
        known = ", ".join(constant.name for constant in self.file.constants)
        raise MissingTerm(f"no constant {name!r}; the file has {known}")

    def bandwidth_gbps(
        self,
        request_bytes: float,
        in_flight: float,
        *,
        hop: str = "ssd-to-dram",
        direction: str = "read",
        pattern: str = "sequential",
        engine: str | None = None,
    ) -> Value:
        """Bandwidth at a request size with ``in_flight`` requests outstanding, from a fit.

        The interval is the fit's cross-validated error. MissingTerm without such a fit.
        """
        term = self._term(hop, direction, pattern, engine)
        size, depth = np.array([request_bytes]), np.array([in_flight])
        if term.form == "latency":
            assert term.t0_us is not None and term.b1_gbps is not None  # the form has them
            found = latency_gbps(size, depth, term.t0_us, term.b1_gbps, term.b_max_gbps)
        else:
            assert term.half_bytes is not None
            found = saturation_gbps(size, depth, term.b_max_gbps, term.half_bytes)
        gbps = float(found[0])
        sizes, flights = term.valid["request_bytes"], term.valid["commands_in_flight"]
        inside = (
            sizes.low <= request_bytes <= sizes.high and flights.low <= in_flight <= flights.high
        )
        low, high = gbps * (1 - min(term.error, 1.0)), gbps * (1 + term.error)
        return Value(gbps, low, high, "fitted", extrapolated=not inside)

    def restore_gbps(
        self,
        layout: str,
        context_tokens: float,
        *,
        model: str | None = None,
        access: str | None = None,
        background_writes: bool = False,
    ) -> Value:
        """Delivered bandwidth of a whole session's restore in a layout.

        Interpolated over log context between the measured ones; outside them the nearest is
        taken and marked. Of several terms that fit the best one counts. MissingTerm without any.
        """
        terms = [
            term
            for term in self.file.layout_terms
            if term.layout == layout
            and term.background_writes == background_writes
            and model in (None, term.model)
            and access in (None, term.access)
        ]
        if not terms:
            known = sorted({term.layout for term in self.file.layout_terms})
            raise MissingTerm(
                f"no restore of {layout} (model {model}, access {access}) was measured; "
                f"layouts in the file: {', '.join(known) or 'none'}"
            )
        return max((_at(term, context_tokens) for term in terms), key=lambda v: v.value)

    def hop_gbps(self, hop: str, direction: str = "read") -> Value:
        """The best bandwidth of a hop; MissingTerm if it was not measured."""
        for term in self.file.hop_terms:
            if (term.hop, term.direction) == (hop, direction):
                return _value(term.gbps, "measured")
        known = ", ".join(f"{term.hop} {term.direction}" for term in self.file.hop_terms)
        raise MissingTerm(f"hop {hop} {direction} was not measured; the file has {known or 'none'}")

    def waf(
        self, *, store: str | None = None, profile: str | None = None, policy: str | None = None
    ) -> Value:
        """Write amplification: steady before cumulative, devices before models.

        MissingTerm if no sample fits what was asked for.
        """
        fitting = [
            sample
            for sample in self.file.waf
            if store in (None, sample.store)
            and profile in (None, sample.profile)
            and policy in (None, sample.policy)
        ]
        best = best_waf(fitting)
        if best is None:
            raise MissingTerm(f"no WAF for store {store}, profile {profile}, policy {policy}")
        return _waf_value(best)

    def endurance(self, profile: str | None = None) -> EnduranceTerm:
        """Rated budget and lifetimes of a drive profile; MissingTerm if it is not in the file."""
        for drive in self.file.endurance:
            if profile in (None, drive.profile):
                return drive
        known = ", ".join(drive.profile for drive in self.file.endurance)
        raise MissingTerm(
            f"no endurance of {profile or 'any drive'}; the file has {known or 'none'}"
        )

    def _term(self, hop: str, direction: str, pattern: str, engine: str | None) -> BandwidthTerm:
        fitting = [
            term
            for term in self.file.bandwidth_terms
            if (term.hop, term.direction, term.pattern) == (hop, direction, pattern)
            and (engine is None or term.engine.startswith(engine))
        ]
        if not fitting:
            known = ", ".join(
                f"{t.hop} {t.direction} {t.pattern}" for t in self.file.bandwidth_terms
            )
            raise MissingTerm(
                f"no fit for {hop} {direction} {pattern}; the file has {known or 'none'}"
            )
        return min(fitting, key=lambda term: term.error)


def load(path: str | Path) -> Calibration:
    """The calibration file at ``path``; UsageError names what is wrong with it."""
    return Calibration(read(Path(path)).file)


def _value(interval: Interval, source: str) -> Value:
    return Value(interval.median, interval.low, interval.high, source)


def _waf_value(sample: WafSample) -> Value:
    value = sample.steady if sample.steady is not None else sample.cumulative
    low = sample.low if sample.low is not None else value
    high = sample.high if sample.high is not None else value
    source = "modelled" if sample.source == "ftl-model" else "measured"
    return Value(value, min(low, value), max(high, value), source, sample.steady is None)


def _at(term: LayoutTerm, context_tokens: float) -> Value:
    """A layout term at a context length."""
    points = term.points
    if context_tokens <= points[0].context_tokens or len(points) == 1:
        return _clamped(points[0], context_tokens)
    if context_tokens >= points[-1].context_tokens:
        return _clamped(points[-1], context_tokens)
    above = next(i for i, point in enumerate(points) if point.context_tokens >= context_tokens)
    one, two = points[above - 1], points[above]
    share = math.log(context_tokens / one.context_tokens) / math.log(
        two.context_tokens / one.context_tokens
    )

    def between(name: str) -> float:
        a, b = getattr(one.gbps, name), getattr(two.gbps, name)
        return float(a + share * (b - a))

    return Value(between("median"), between("low"), between("high"), "measured")


def _clamped(point: LayoutPoint, context_tokens: float) -> Value:
    outside = point.context_tokens != context_tokens
    return Value(point.gbps.median, point.gbps.low, point.gbps.high, "measured", outside)
