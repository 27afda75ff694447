"""Rung 2: the model small against the model large, the same store emitted again at each size."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from harness.core.errors import UsageError
from harness.core.profiles import DeviceProfile
from harness.core.progress import Progress, quiet
from harness.core.units import format_size
from harness.device.femu import Keep, scale_profile
from harness.endurance.result import to_json
from harness.endurance.store_input import StoreInput
from harness.endurance.wear import Options, wear
from harness.validate.rung import Rung, Verdict, not_run

TOLERANCE = 0.05
"""Share of WAF within which two sizes agree where the order band is narrower than that: the
width of a steady window."""


@dataclass(frozen=True)
class Traffic:
    """The store and its requests, emitted again for every drive size."""

    store: str
    requests: str
    model: str
    utilisation: float = 1.0
    seed: int = 0

    def on(self, profile: DeviceProfile) -> StoreInput:
        """This traffic into a store that takes its share of the profile's namespace."""
        size = int(profile.namespace_bytes * self.utilisation)
        return StoreInput(self.store, self.requests, self.model, size, self.seed)


def measure_wear(
    traffic: Traffic,
    profile: DeviceProfile,
    budget_s: float,
    perturb: int = 0,
    progress: Progress = quiet,
) -> dict[str, Any]:
    """What ``harness wear --json`` says of this traffic on this drive."""
    options = Options(budget_s=budget_s, perturb=perturb)
    return to_json(wear(traffic.on(profile), profile, options, progress))


def small_equals_large(
    traffic: Traffic,
    full: DeviceProfile,
    large: dict[str, Any],
    factor: Fraction,
    keep: Keep,
    *,
    budget_s: float,
    perturb: int = 2,
    progress: Progress = quiet,
) -> Rung:
    """WAF of a drive of ``factor`` against that of the full one, ``large`` as measured.

    They agree where the full drive's WAF lies in the small one's order band, or within
    ``TOLERANCE`` of it. The scale error is in the note either way.
    """
    compared = f"WAF at {factor} ({keep} kept) = WAF at full size, store re-emitted"
    try:
        small = scale_profile(full, factor, keep).profile
    except UsageError as error:
        return not_run(2, compared, str(error))
    found = measure_wear(traffic, small, budget_s, perturb, progress)
    return compare(compared, large, found, (full, small))


def compare(
    compared: str,
    large: dict[str, Any],
    small: dict[str, Any],
    drives: tuple[DeviceProfile, DeviceProfile],
) -> Rung:
    """The row for two wear results on the (full, small) ``drives``.

    Nothing is said of one that did not become steady.
    """
    full, profile = drives
    for name, result in (("full", large), ("small", small)):
        if result["waf"]["steady"] is None:
            windows = [round(window["waf"], 3) for window in result["windows"]]
            return not_run(
                2, compared, f"the {name} drive's WAF is not steady yet: windows {windows}"
            )
    true, found = large["waf"]["steady"], small["waf"]["steady"]
    low, high = small["waf"]["low"] or found, small["waf"]["high"] or found
    margin = TOLERANCE * true
    agrees = min(low, found) - margin <= true <= max(high, found) + margin
    note = (
        f"scale error {found / true - 1:+.1%}; {profile.lines} lines of"
        f" {format_size(profile.line_bytes)} instead of {full.lines} of"
        f" {format_size(full.line_bytes)}; order band {low:.3f}–{high:.3f} over"
        f" {small['waf']['band_done'] or 0} perturbed orders"
    )
    return Rung(
        2,
        compared,
        {"waf": true, "lines": full.lines, "line_bytes": full.line_bytes},
        {"waf": found, "lines": profile.lines, "line_bytes": profile.line_bytes},
        Verdict.AGREES if agrees else Verdict.DIFFERS,
        note,
    )
