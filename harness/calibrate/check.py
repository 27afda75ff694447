"""Does a calibration file make sense? Schema first, then units, order, identities and age."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.calibrate.files import InvalidCalibration, Problem, read
from harness.calibrate.model import CalibrationFile

STALE_DAYS = 365
"""Age after which a file is doubted: firmware, kernels and drives have moved on."""

_GBPS_LIMIT = 2000.0
"""No hop in a server moves 2 TB/s; such a figure is in another unit."""

_IDENTITY_TOLERANCE = 0.02
"""Lifetimes are stored rounded; identities between them hold to this."""


@dataclass(frozen=True)
class Check:
    """Outcome of a check; ``warnings`` do not make a file invalid."""

    valid: bool
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]

    def as_json(self) -> dict[str, Any]:
        """``{valid, problems: [{path, message}], warnings: [...]}``."""
        return {
            "valid": self.valid,
            "problems": [asdict(p) for p in self.problems],
            "warnings": [asdict(p) for p in self.warnings],
        }


def check(path: Path, *, max_age_days: int | None = None, now: datetime | None = None) -> Check:
    """Check the file at ``path``; only an unreadable path raises (UsageError).

    Measurements older than ``max_age_days`` are a problem, older than ``STALE_DAYS`` a warning.
    """
    try:
        parsed = read(path)
    except InvalidCalibration as error:
        return Check(False, tuple(error.problems), ())
    today = now or datetime.now(UTC)
    problems = list(sense(parsed.file))
    age_days = (today - parsed.file.provenance.measured_to).days
    if max_age_days is not None and age_days > max_age_days:
        problems.append(
            Problem("provenance.measured_to", f"measured {age_days} days ago, over {max_age_days}")
        )
    warnings = [
        Problem(key, "unknown key of a newer version, skipped") for key in parsed.unknown_keys
    ]
    warnings += doubts(parsed.file, today)
    return Check(not problems, tuple(problems), tuple(warnings))


def sense(file: CalibrationFile) -> Iterator[Problem]:
    """Contradictions in a file that fits the schema."""
    yield from _bandwidths(file)
    yield from _waf(file)
    yield from _lifetimes(file)
    yield from _dates(file)


def doubts(file: CalibrationFile, now: datetime) -> list[Problem]:
    """What a careful reader should know: age, unsettled cells, stand-ins."""
    found = []
    age_days = (now - file.provenance.measured_to).days
    if age_days > STALE_DAYS:
        found.append(Problem("provenance.measured_to", f"measured {age_days} days ago"))
    if age_days < -1:
        found.append(Problem("provenance.measured_to", "lies in the future: a wrong clock?"))
    for number, cell in enumerate(file.bandwidth):
        if not cell.settled:
            found.append(Problem(f"bandwidth.{number}", "did not settle"))
    for number, stand_in in enumerate(file.provenance.stand_ins):
        found.append(Problem(f"provenance.stand_ins.{number}", stand_in))
    return found


def _bandwidths(file: CalibrationFile) -> Iterator[Problem]:
    for number, cell in enumerate(file.bandwidth):
        where = f"bandwidth.{number}"
        if not 0 < cell.gbps.low <= cell.gbps.high < _GBPS_LIMIT:
            yield Problem(f"{where}.gbps", "expected GB/s (1e9 bytes a second), positive")
        if (cell.pattern == "layout") != (cell.layout is not None):
            yield Problem(f"{where}.layout", "given exactly for cells of pattern 'layout'")
    for number, term in enumerate(file.bandwidth_terms):
        where = f"bandwidth_terms.{number}"
        # Time must grow with size: a negative fixed cost or an unphysical rate is a bad fit.
        if term.form == "latency" and (term.t0_us is None or term.t0_us < 0 or not term.b1_gbps):
            yield Problem(where, "form 'latency' needs t0_us >= 0 and b1_gbps")
        if term.form == "saturation" and term.half_bytes is None:
            yield Problem(where, "form 'saturation' needs half_bytes")
        for key, valid in term.valid.items():
            if valid.low > valid.high:
                yield Problem(f"{where}.valid.{key}", "expected low <= high")
    for number, layout in enumerate(file.layout_terms):
        contexts = [point.context_tokens for point in layout.points]
        if contexts != sorted(set(contexts)):
            yield Problem(f"layout_terms.{number}.points", "context_tokens must ascend")


def _waf(file: CalibrationFile) -> Iterator[Problem]:
    for number, sample in enumerate(file.waf):
        where = f"waf.{number}"
        value = sample.steady if sample.steady is not None else sample.cumulative
        if sample.low is not None and sample.high is not None:
            # The band belongs to the value that is printed beside it.
            if not sample.low <= sample.high:
                yield Problem(where, "expected low <= high")
            elif not sample.low <= value * 1.001 or not value <= sample.high * 1.001:
                yield Problem(where, f"the band {sample.low}-{sample.high} misses {value}")
    for number, term in enumerate(file.waf_terms):
        if term.valid.low >= term.valid.high:
            yield Problem(f"waf_terms.{number}.valid", "expected low < high")


def _lifetimes(file: CalibrationFile) -> Iterator[Problem]:
    for number, drive in enumerate(file.endurance):
        where = f"endurance.{number}"
        tbw = drive.capacity_bytes * drive.dwpd * 365 * drive.warranty_years
        if not _close(tbw, drive.tbw_bytes):
            yield Problem(f"{where}.tbw_bytes", f"capacity x DWPD x 365 x years is {tbw:.4g}")
        if drive.price_usd and drive.usd_per_written_byte:
            rate = drive.price_usd / drive.tbw_bytes
            if not _close(rate, drive.usd_per_written_byte):
                yield Problem(f"{where}.usd_per_written_byte", f"price / TBW is {rate:.4g}")
        if drive.waf1_days and drive.writes_per_day_bytes:
            days = drive.tbw_bytes / drive.writes_per_day_bytes
            if not _close(days, drive.waf1_days):
                yield Problem(f"{where}.waf1_days", f"TBW / writes a day is {days:.4g}")
        if drive.paper_days and drive.waf1_days and drive.paper_days > 1.001 * drive.waf1_days:
            yield Problem(f"{where}.paper_days", "longer than with WAF 1: WAF below 1?")


def _dates(file: CalibrationFile) -> Iterator[Problem]:
    origin = file.provenance
    if origin.measured_from > origin.measured_to:
        yield Problem("provenance.measured_from", "after measured_to")
    for number, run in enumerate(origin.runs):
        if run.started > file.created:
            yield Problem(f"provenance.runs.{number}.started", "after the file was created")


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= _IDENTITY_TOLERANCE * max(abs(one), abs(other))
