"""The lifetimes that the seed paper prints, within the rounding of its inputs."""

from __future__ import annotations

import pytest

from harness.core.errors import UsageError
from harness.core.profiles import DeviceProfile, load_profile
from harness.endurance.lifetimes import (
    TB,
    hdd_days,
    lifetimes,
    rated_waf,
    required_dwpd,
)

TRACE_A_DAYS = 1.92 / 24
CLAUDE_CODE_DAYS = 4.94


def drive(**changes: object) -> DeviceProfile:
    geometry = {"blks_per_pl": 16383, "policy": "drive"}
    rating = {"capacity_bytes": TB, "dwpd": 1.0, "warranty_years": 5}
    return DeviceProfile.model_validate({**geometry, **rating, **changes})


@pytest.mark.parametrize(
    ("written_tb", "trace_days", "days", "tolerance"),
    [
        (42.2, TRACE_A_DAYS, 3.46, 0.005),
        (42.7, TRACE_A_DAYS, 3.4, 0.05),
        (63.5, TRACE_A_DAYS, 2.3, 0.05),
        (36.1, TRACE_A_DAYS, 4.0, 0.05),
        (6.8, TRACE_A_DAYS, 21.5, 0.2),
        (4.4, TRACE_A_DAYS, 33, 0.5),
        (0.58, TRACE_A_DAYS, 251.7, 0.1),
        (501 * 2**30 / TB, TRACE_A_DAYS, 271, 0.6),
        (508 * 2**30 / TB, TRACE_A_DAYS, 268, 0.6),
        (92, CLAUDE_CODE_DAYS, 98, 0.5),
        (153, CLAUDE_CODE_DAYS, 59, 0.5),
    ],
)
def test_the_seeds_lifetimes(
    written_tb: float, trace_days: float, days: float, tolerance: float
) -> None:
    rate = written_tb * TB / trace_days
    assert lifetimes(drive(), rate, 1.0).paper_days == pytest.approx(days, abs=tolerance)


def test_table_3() -> None:
    assert required_dwpd(TB, 34.4 * TB) == pytest.approx(34.4)
    assert required_dwpd(4 * TB, 34.4 * TB) == pytest.approx(8.60)


@pytest.mark.parametrize(("tb_per_day", "years"), [(98, 0.4), (240, 0.2), (81, 0.4), (199, 0.2)])
def test_table_2_is_30_tb_at_a_third_dwpd_and_waf_1_24(tb_per_day: float, years: float) -> None:
    big = drive(capacity_bytes=30 * TB, dwpd=0.3, blks_per_pl=65536, pgs_per_blk=2048)
    days = lifetimes(big, tb_per_day * TB, 1.24).paper_days
    assert days is not None
    assert days / 365 == pytest.approx(years, abs=0.05)


def test_the_drive_to_be_emulated() -> None:
    assert load_profile("1tb-0.3dwpd").tbw_bytes == pytest.approx(547.5 * TB)


def test_the_four_conventions() -> None:
    worn = drive(pe_cycles=3000, pe_source="datasheet, TLC", dwpd=1.0)
    found = lifetimes(worn, TB, 2.0, levelling=0.5)
    nand = 3000 * worn.raw_bytes / (2.0 * TB)
    assert found.paper_days == pytest.approx(912.5)
    assert found.waf1_days == pytest.approx(1825)
    assert found.nand_days == pytest.approx(nand * 0.5)
    assert found.nand_level_days == pytest.approx(nand)
    # Without a stated one, the rated WAF is an estimate that makes the yardstick the flash.
    assert found.jedec_days == pytest.approx(nand)
    assert rated_waf(worn) == pytest.approx(3000 * worn.raw_bytes / (1825 * TB))
    stated = lifetimes(drive(waf_rated=2.0), TB, 2.0)
    assert stated.jedec_days == pytest.approx(1825)


def test_what_is_unknown_is_absent() -> None:
    no_rate = lifetimes(drive(), None, 2.0)
    assert set(no_rate.to_json().values()) == {None}
    no_rating = lifetimes(DeviceProfile(devsz_mb=12288), TB, 2.0)
    assert set(no_rating.to_json().values()) == {None}
    no_waf = lifetimes(drive(), TB, None)
    assert no_waf.paper_days is None
    assert no_waf.waf1_days == pytest.approx(1825)


def test_contradictions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"endure 1\.1e\+15 B, less than the rated 1\.82e\+15 B"):
        drive(pe_cycles=1000, pe_source="made up")
    with pytest.raises(UsageError, match="below 1"):
        lifetimes(drive(), TB, 0.9)
    with pytest.raises(UsageError, match="must be positive"):
        lifetimes(drive(), 0.0, 1.0)
    with pytest.raises(UsageError, match="levelling"):
        lifetimes(drive(), TB, 1.0, levelling=1.5)


def test_a_hard_drive_counts_reads_too() -> None:
    assert hdd_days(550 * TB, 5, TB, 0) == pytest.approx(2750)
    assert hdd_days(550 * TB, 5, TB, 4) == pytest.approx(550)
