"""The whole ladder: every rung that this machine allows, and the reason for each that it does
not."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from harness.core.errors import MachineError, MeasurementError
from harness.core.host import host_facts
from harness.core.profiles import DeviceProfile
from harness.core.progress import Progress, quiet
from harness.device.femu import CHECKED_COMMIT, Keep
from harness.device.guest.binary import NO_FEMU, femu_binary
from harness.validate.golden import model_equals_golden
from harness.validate.guests import (
    drive_rungs,
    femu_rungs,
    quick_femu_cases,
    stock_rungs,
    trace_case,
)
from harness.validate.lifetime import lifetime_rungs
from harness.validate.rung import Rung, Verdict, not_run
from harness.validate.scaling import Traffic, measure_wear, small_equals_large

KEEPS: tuple[Keep, ...] = ("line-size", "line-count")


@dataclass(frozen=True)
class Ladder:
    """What to climb. ``budget_s`` is for each wear measurement of rungs 2 and 4.

    ``trace`` also goes to FEMU (rung 1), on the profile at ``trace_scale``. ``drive`` is a real
    NVMe drive for rung 3, (path, its identity): its data are overwritten.
    """

    profile: DeviceProfile
    traffic: Traffic
    rungs: tuple[int, ...] = (1, 2, 3, 4)
    scales: tuple[Fraction, ...] = (Fraction(1, 8), Fraction(1, 64))
    budget_s: float = 60.0
    perturb: int = 2
    trace: Path | None = None
    trace_scale: Fraction = Fraction(1, 256)
    drive: tuple[str, str] | None = None


def climb(
    ladder: Ladder, console_dir: Path | None = None, progress: Progress = quiet
) -> list[Rung]:
    """Run the rungs asked for, from the lowest on; a guest that fails is a row, not the end."""
    rows: list[Rung] = []
    if 1 in ladder.rungs:
        rows.append(model_equals_golden(progress))
    if 1 in ladder.rungs or 3 in ladder.rungs:
        rows += _on_guests(ladder, console_dir, progress)
    if 2 in ladder.rungs or 4 in ladder.rungs:
        rows += _by_model(ladder, progress)
    return sorted(rows, key=lambda row: row.rung)


def to_json(rows: list[Rung], ladder: Ladder) -> dict[str, Any]:
    """What ``harness validate --json`` prints and the calibration may cite."""
    return {
        "rungs": [row.to_json() for row in rows],
        "femu_checked": CHECKED_COMMIT,
        "profile": ladder.profile.model_dump(mode="json", exclude_none=True),
        "traffic": ladder.traffic.__dict__,
        "host": host_facts(),
    }


def failed(rows: list[Rung], *, strict: bool = False) -> bool:
    """Whether an equality that must hold does not: rungs 1 and 3.

    Rungs 2 and 4 are measurements of an error and of a claim; they count under ``strict``, and
    so does what could not be run.
    """
    if strict:
        return any(row.verdict != Verdict.AGREES for row in rows)
    return any(row.verdict == Verdict.DIFFERS and row.rung in (1, 3) for row in rows)


def _on_guests(ladder: Ladder, console_dir: Path | None, progress: Progress) -> list[Rung]:
    rows: list[Rung] = []
    stock = "stock QEMU NVMe: counters = commands sent"
    if 3 in ladder.rungs:
        console = console_dir / "console-stock.log" if console_dir else None
        try:
            rows += stock_rungs(console, progress)
        except MachineError as error:
            rows.append(not_run(3, stock, _reason(error)))
        rows += _real_drive(ladder.drive)
    try:
        cases = quick_femu_cases()
        if ladder.trace is not None and 1 in ladder.rungs:
            cases.append(trace_case(ladder.trace, ladder.profile, ladder.trace_scale))
        if femu_binary() is None:
            rows += [not_run(rung, f"{name}, live", NO_FEMU) for rung, name in _FEMU_ROWS]
        else:
            rows += femu_rungs(cases, console_dir, progress)
    except (MachineError, MeasurementError) as error:
        rows += [not_run(rung, f"{name}, live", _reason(error)) for rung, name in _FEMU_ROWS]
    return [row for row in rows if row.rung in ladder.rungs]


_FEMU_ROWS = ((1, "FTL model = FEMU"), (3, "FEMU: counters = commands sent"))


def _real_drive(named: tuple[str, str] | None) -> list[Rung]:
    """A real drive is only written to when it is named, twice."""
    compared = "real NVMe: counters = commands sent"
    if named is None:
        return [not_run(3, compared, "no drive was named: --device D --destroy ID")]
    try:
        return drive_rungs(*named)
    except MeasurementError as error:
        return [not_run(3, compared, _reason(error))]


def _by_model(ladder: Ladder, progress: Progress) -> list[Rung]:
    profile, traffic = ladder.profile, ladder.traffic
    large = measure_wear(traffic, profile, ladder.budget_s, progress=progress)
    rows: list[Rung] = []
    if 2 in ladder.rungs:
        for scale in ladder.scales:
            for keep in KEEPS:
                rows.append(
                    small_equals_large(
                        traffic, profile, large, scale, keep,
                        budget_s=ladder.budget_s, perturb=ladder.perturb, progress=progress,
                    )
                )  # fmt: skip
    if 4 in ladder.rungs:
        rows += lifetime_rungs(profile, large)
    return rows


def _reason(error: MachineError | MeasurementError) -> str:
    return f"{error} ({error.fix})" if error.fix else str(error)
