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
from harness.calibrate.files import read
from harness.calibrate.fits import latency_gbps, saturation_gbps
from harness.calibrate.model import (
    BandwidthTerm,
    CalibrationFile,
    EnduranceTerm,
    LayoutPoint,
    LayoutTerm,
    WafSample,
    WafTerm,
)
from harness.calibrate.wafchoice import choose
from harness.calibrate.wear import Variable
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
        transport: str | None = None,
        layout: str | None = None,
        access: str | None = None,
    ) -> Value:
        """Bandwidth at a request size with ``in_flight`` requests outstanding, from a fit.

        With ``layout``, reads of that store's placement (``pattern`` is then ``layout``).
        The interval is the fit's cross-validated error; of several fits the one with the least
        error counts. MissingTerm without such a fit.
        """
        term = self._term(
            {
                "hop": hop, "direction": direction, "layout": layout, "access": access,
                "pattern": "layout" if layout else pattern, "transport": transport,
            },
            engine,
        )  # fmt: skip
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
        transport: str | None = None,
        queue_depth: int | None = None,
        turns: int | None = None,
        sessions: int | None = None,
        background_writes: bool = False,
    ) -> Value:
        """Delivered bandwidth of a whole session's restore in a layout.

        Interpolated over log context between the measured ones; outside them the nearest is
        taken and marked. Of several terms that fit the best one counts. MissingTerm without any.
        """
        terms = self._layout_terms(
            layout, background_writes, model=model, access=access, transport=transport,
            queue_depth=queue_depth, turns=turns, sessions=sessions,
        )  # fmt: skip
        return max((_at(term, context_tokens) for term in terms), key=lambda v: v.value)

    def slowdown(
        self,
        layout: str,
        context_tokens: float,
        *,
        model: str | None = None,
        access: str | None = None,
        background_writes: bool = False,
    ) -> Value:
        """Time to restore over the session-contiguous layout's, read in the same way.

        At the measured context nearest to ``context_tokens``, the least over the terms that fit.
        MissingTerm where it was not compared.
        """
        terms = self._layout_terms(layout, background_writes, model=model, access=access)
        points = [
            (abs(math.log(point.context_tokens / context_tokens)), point.slowdown)
            for term in terms
            for point in term.points
            if point.slowdown is not None
        ]
        if not points:
            raise MissingTerm(f"{layout} was not compared with the contiguous layout")
        off = min(distance for distance, _ in points)
        found = min((s for d, s in points if d == off), key=lambda slow: slow.median)
        return Value(found.median, found.low, found.high, "measured", extrapolated=off > 0)

    def _layout_terms(
        self, layout: str, background_writes: bool, **wanted: str | int | None
    ) -> list[LayoutTerm]:
        terms = [
            term
            for term in self.file.layout_terms
            if term.layout == layout
            and term.background_writes == background_writes
            and all(value in (None, getattr(term, name)) for name, value in wanted.items())
        ]
        if not terms:
            asked = ", ".join(f"{name} {value}" for name, value in wanted.items() if value)
            known = sorted({term.layout for term in self.file.layout_terms})
            raise MissingTerm(
                f"no restore of {layout} ({asked or 'quiet'}) was measured; "
                f"layouts in the file: {', '.join(known) or 'none'}"
            )
        return terms

    def hop_gbps(self, hop: str, direction: str = "read") -> Value:
        """The best bandwidth of a hop; MissingTerm if it was not measured."""
        for term in self.file.hop_terms:
            if (term.hop, term.direction) == (hop, direction):
                return _value(term.gbps, "measured")
        known = ", ".join(f"{term.hop} {term.direction}" for term in self.file.hop_terms)
        raise MissingTerm(f"hop {hop} {direction} was not measured; the file has {known or 'none'}")

    def waf(
        self,
        *,
        store: str | None = None,
        profile: str | None = None,
        policy: str | None = None,
        utilisation: float | None = None,
        over_provisioning: float | None = None,
        chunk_per_line: float | None = None,
    ) -> Value:
        """Write amplification: steady before cumulative, devices before models.

        With conditions (shares: store / namespace, spare / namespace, chunk / line): a sample
        that has them to two digits, else a fitted curve through them, else the nearest sample,
        marked as extrapolated, as is any one point of a sweep for which no condition was named.
        MissingTerm if no sample fits what was asked for.
        """
        given: dict[Variable, float | None] = {
            "utilisation": utilisation,
            "over_provisioning": over_provisioning,
            "chunk_per_line": chunk_per_line,
        }
        wanted = {name: value for name, value in given.items() if value is not None}

        def fits(one: WafSample | WafTerm) -> bool:
            return (
                store in (None, one.store)
                and profile in (None, one.profile)
                and policy in (None, one.policy)
            )

        found = choose(
            [sample for sample in self.file.waf if fits(sample)],
            [term for term in self.file.waf_terms if fits(term)],
            wanted,
        )
        if found is None:
            under = "".join(f", {name} {value:g}" for name, value in wanted.items())
            known = sorted({f"{s.store}/{s.profile}/{s.policy}" for s in self.file.waf})
            raise MissingTerm(
                f"no WAF for store {store}, profile {profile}, policy {policy}{under}; the file "
                f"has (store/profile/policy) {', '.join(known) or 'none'}"
            )
        if found.sample is not None:
            return _waf_value(found.sample, found.exact)
        error = found.term.error or 0.0 if found.term else 0.0
        low, high = max(1.0, found.value * (1 - min(error, 1.0))), found.value * (1 + error)
        return Value(found.value, low, high, "fitted", extrapolated=not found.exact)

    def endurance(self, profile: str | None = None, *, policy: str | None = None) -> EnduranceTerm:
        """Rated budget and lifetimes of a drive profile; MissingTerm if it is not in the file."""
        for drive in self.file.endurance:
            if profile in (None, drive.profile) and policy in (None, drive.policy):
                return drive
        known = ", ".join(drive.profile for drive in self.file.endurance)
        raise MissingTerm(
            f"no endurance of {profile or policy or 'any drive'}; the file has {known or 'none'}"
        )

    def _term(self, wanted: dict[str, str | None], engine: str | None) -> BandwidthTerm:
        fitting = [
            term
            for term in self.file.bandwidth_terms
            if all(value in (None, getattr(term, name)) for name, value in wanted.items())
            # Without a layout: the fit over all of them.
            and (wanted["layout"] is not None or term.layout is None)
            and (engine is None or term.engine.startswith(engine))
        ]
        if not fitting:
            asked = " ".join(value for value in wanted.values() if value)
            known = sorted(
                {
                    " ".join(filter(None, (t.hop, t.direction, t.pattern, t.layout, t.access)))
                    for t in self.file.bandwidth_terms
                }
            )
            raise MissingTerm(f"no fit for {asked}; the file has {', '.join(known) or 'none'}")
        return min(fitting, key=lambda term: term.error)


def load(path: str | Path) -> Calibration:
    """The calibration file at ``path``; UsageError names what is wrong with it."""
    return Calibration(read(Path(path)).file)


def _value(interval: Interval, source: str) -> Value:
    return Value(interval.median, interval.low, interval.high, source)


def _waf_value(sample: WafSample, exact: bool) -> Value:
    value = sample.steady if sample.steady is not None else sample.cumulative
    low = sample.low if sample.low is not None else value
    high = sample.high if sample.high is not None else value
    source = "modelled" if sample.source == "ftl-model" else "measured"
    outside = sample.steady is None or not exact
    return Value(value, min(low, value), max(high, value), source, outside)


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
