"""Lifetimes in days by four conventions, and the hard drive of the comparison.

The formulas are Gandalf's (sections 2.2 and 4) and ours where the paper leaves a choice. A TBW
rating is host writes under the vendor's own workload, so its write amplification (``waf_rated``)
is in it already; that is why four conventions differ, and none replaces another.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from harness.core.errors import UsageError
from harness.core.profiles import DeviceProfile

DAYS_A_YEAR = 365
TB = 10**12


@dataclass(frozen=True)
class Lifetimes:
    """Days until the budget of each convention is used up; None where an input is unknown.

    paper_days
        TBW / (w · WAF): the published simulator's formula.
    waf1_days
        TBW / w: the same with the assumption that WAF is 1.
    nand_days, nand_level_days
        PE · raw · E / (w · WAF), the flash itself, with E the mean over the maximal erase count
        of the lines, and with E = 1 (perfect levelling).
    jedec_days
        TBW · waf_rated / (w · WAF): the vendor's workload as yardstick.
    """

    paper_days: float | None
    waf1_days: float | None
    nand_days: float | None
    nand_level_days: float | None
    jedec_days: float | None

    def to_json(self) -> dict[str, float | None]:
        """Plain data."""
        return asdict(self)


def lifetimes(
    profile: DeviceProfile,
    host_bytes_per_day: float | None,
    waf: float | None,
    levelling: float | None = None,
) -> Lifetimes:
    """Lifetimes of a drive that the host writes ``host_bytes_per_day`` bytes a day to.

    Parameters
    ----------
    host_bytes_per_day
        None where the input has no clock: then there are no days at all.
    waf
        NAND over host writes, >= 1; None where it was not measured.
    levelling
        E, mean over maximal erase count of the lines, in (0, 1]; None before any erase.

    Raises
    ------
    UsageError
        A rate that is not positive, a WAF below 1, or E outside (0, 1].
    """
    if host_bytes_per_day is not None and host_bytes_per_day <= 0:
        raise UsageError(f"bytes written a day must be positive: {host_bytes_per_day}")
    if waf is not None and waf < 1:
        raise UsageError(f"a write amplification below 1 is impossible here: {waf}")
    if levelling is not None and not 0 < levelling <= 1:
        raise UsageError(f"levelling must lie in (0, 1]: {levelling}")
    tbw, nand = profile.tbw_bytes, _nand_bytes(profile)
    rated = rated_waf(profile)
    with_waf = host_bytes_per_day * waf if host_bytes_per_day and waf else None
    return Lifetimes(
        paper_days=_over(tbw, with_waf),
        waf1_days=_over(tbw, host_bytes_per_day),
        nand_days=_over(nand * levelling if nand and levelling else None, with_waf),
        nand_level_days=_over(nand, with_waf),
        jedec_days=_over(tbw * rated if tbw and rated else None, with_waf),
    )


def _over(budget_bytes: float | None, rate: float | None) -> float | None:
    return None if budget_bytes is None or rate is None else budget_bytes / rate


def _nand_bytes(profile: DeviceProfile) -> float | None:
    """What the flash can be programmed with over its life, PE · raw."""
    return None if profile.pe_cycles is None else float(profile.pe_cycles * profile.raw_bytes)


def rated_waf(profile: DeviceProfile) -> float | None:
    """``waf_rated`` of the profile, else the estimate PE · raw / TBW, else None.

    The estimate is at least 1: a profile that endures less than its rating is refused.
    """
    if profile.waf_rated is not None:
        return profile.waf_rated
    nand, tbw = _nand_bytes(profile), profile.tbw_bytes
    if nand is None or tbw is None:
        return None
    return nand / tbw


def required_dwpd(capacity_bytes: int, host_bytes_per_day: float) -> float:
    """Drive writes a day that the host asks for, w / C."""
    return host_bytes_per_day / capacity_bytes


def hdd_days(
    rated_bytes_per_year: float, years: float, host_bytes_per_day: float, reads_per_byte: float
) -> float:
    """Days until a hard drive's workload rating, reads plus writes, is used up.

    ``reads_per_byte``: how often each written byte is read, r. T = L·Y / (w·(1 + r)).
    """
    return rated_bytes_per_year * years / (host_bytes_per_day * (1 + reads_per_byte))
