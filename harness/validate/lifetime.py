"""Rung 4: the life of the drive by the simulator's assumption, WAF 1, and by the measured WAF."""

from __future__ import annotations

from typing import Any

from harness.core.profiles import DeviceProfile
from harness.endurance.lifetimes import DAYS_A_YEAR
from harness.validate.rung import Rung, Verdict, not_run

TOLERANCE = 0.05


def lifetime_rungs(profile: DeviceProfile, result: dict[str, Any]) -> list[Rung]:
    """Two rows from a wear result: WAF 1 against measured, and whether the drive dies early.

    Conventions (TBW as host writes under the rating's own workload): ``paper_days`` divides the
    TBW rating by writes and WAF, ``waf1_days`` by writes alone, as the published simulator does.
    """
    assumed = f"life of {profile.name}: assumed WAF 1 = measured WAF"
    early = f"{profile.name} dies before its warranty under this traffic"
    life = result["lifetimes"]
    if life["waf1_days"] is None or life["paper_days"] is None:
        why = "no days: the profile has no rating, or the request trace no clock"
        return [not_run(4, assumed, why), not_run(4, early, why)]
    note = _assumptions(result)
    waf = life["waf1_days"] / life["paper_days"]
    same = abs(waf - 1) <= TOLERANCE
    return [
        Rung(
            4,
            assumed,
            {"waf": 1.0, "days": life["waf1_days"]},
            {"waf": waf, "days": life["paper_days"]},
            Verdict.AGREES if same else Verdict.DIFFERS,
            note,
        ),
        _early(early, profile, result, note),
    ]


def _early(compared: str, profile: DeviceProfile, result: dict[str, Any], note: str) -> Rung:
    assert profile.warranty_years is not None  # a TBW, hence days, needs it
    warranty = profile.warranty_years * DAYS_A_YEAR
    life = result["lifetimes"]
    others = {key: days for key, days in life.items() if days is not None}
    holds = life["paper_days"] < warranty
    return Rung(
        4,
        compared,
        {"days_below": warranty, "dwpd": profile.dwpd},
        {**others, "required_dwpd": result["required_dwpd"]},
        Verdict.AGREES if holds else Verdict.DIFFERS,
        note,
    )


def _assumptions(result: dict[str, Any]) -> str:
    return (
        f"writes a day from {result['rate_source']}; WAF from {result['lifetimes_from']}, policy"
        f" {result['policy']}; store {result['store']}, model {result['model']}, seed"
        f" {result['seed']}"
    )
