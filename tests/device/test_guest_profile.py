"""From a profile to FEMU's properties, its limits, its memory, and smaller drives."""

from __future__ import annotations

from fractions import Fraction

import pytest

from harness.core.errors import MachineError, UsageError
from harness.core.profiles import DeviceProfile, load_profile
from harness.device.femu import Keep, femu_drive, femu_profile, parse_scale, scale_profile
from harness.device.guest.plan import flash_latencies_ns

STOCK = DeviceProfile(name="stock", devsz_mb=12288, policy="femu-stock")


def test_properties_of_femus_own_default_script() -> None:
    drive = femu_drive(STOCK)
    assert drive.properties == {
        "femu_mode": 1, "nchs": 8, "luns_per_ch": 8, "pls_per_lun": 1, "blks_per_pl": 256,
        "pgs_per_blk": 256, "secs_per_pg": 8, "secsz": 512, "devsz_mb": 12288,
        "gc_thres_pcent": 75, "gc_thres_pcent_high": 95, "pg_rd_lat": 0, "pg_wr_lat": 0,
        "blk_er_lat": 0, "lba_index": 0, "queues": 1, "mdts": 6,
    }  # fmt: skip
    argv = drive.argv(1, None)  # type: ignore[arg-type]
    assert argv[0] == "-device"
    assert argv[1].startswith("femu,id=drive1,addr=0x11,femu_mode=1,nchs=8,")


def test_memory_is_the_namespace_and_80_bytes_a_raw_page() -> None:
    # Measured on the emulator: 16 GiB raw in 4 KiB pages cost 315 MiB (80.2 B a page).
    parts = femu_drive(STOCK).memory_parts()
    assert parts == {"drive data": 12 << 30, "FTL metadata": 4194304 * 80}


def test_over_provisioning_in_percent_allocates_all_raw_flash() -> None:
    drive = femu_drive(DeviceProfile(op_pcent=20, policy="femu-late"))
    assert drive.properties["op_pcent"] == 20 and "devsz_mb" not in drive.properties
    assert drive.size_bytes == (16 << 30) * 100 // 120 // 512 * 512
    assert drive.memory_parts()["drive data"] == 16 << 30


def test_latencies_are_given_for_timing_only() -> None:
    keys = ("pg_rd_lat", "pg_wr_lat", "blk_er_lat")
    assert [femu_drive(STOCK).properties[key] for key in keys] == [0, 0, 0]
    profile = STOCK.changed(pg_rd_lat=50_000, pg_wr_lat=500_000)
    latencies_ns = flash_latencies_ns(profile)
    assert latencies_ns == dict(zip(keys, (50_000, 500_000, 2_000_000), strict=True))
    drive = femu_drive(profile, latencies_ns=latencies_ns)
    assert [drive.properties[key] for key in keys] == [50_000, 500_000, 2_000_000]


def test_femu_without_a_needed_property_is_named() -> None:
    old = {key for key in femu_drive(STOCK).properties if key != "mdts"}
    with pytest.raises(MachineError, match="lacks the properties mdts"):
        femu_drive(STOCK, known=old)


def test_more_than_2_to_31_sectors_is_refused() -> None:
    full = DeviceProfile(blks_per_pl=16384, devsz_mb=900_000, policy="femu-late")
    assert full.raw_bytes // 512 == 2**31
    with pytest.raises(UsageError, match="2147483648 flash sectors exceed 2147483647") as caught:
        femu_drive(full)
    assert caught.value.fix == "derive a smaller drive: --scale 1/64"


def test_drive_policy_becomes_late_femu_and_whole_mebibytes() -> None:
    profile, notes = femu_profile(load_profile("1tb-0.3dwpd"))
    assert (profile.gc_thres_pcent, profile.gc_thres_pcent_high) == (98, 99)
    assert profile.namespace_bytes == 953674 << 20
    assert len(notes) == 2 and "femu-late" in notes[0] and "953674 MiB" in notes[1]
    assert femu_profile(profile) == (profile, ())


@pytest.mark.parametrize("keep", ["line-size", "line-count"])
def test_scaled_drive_keeps_what_it_says(keep: Keep) -> None:
    full, _ = femu_profile(load_profile("1tb-0.3dwpd"))
    scaled = scale_profile(full, Fraction(1, 64), keep)
    small = scaled.profile
    assert small.over_provisioning == pytest.approx(full.over_provisioning, rel=2e-3)
    assert small.namespace_bytes == pytest.approx(full.namespace_bytes / 64, rel=2e-3)
    assert (small.gc_thres_pcent, small.gc_thres_pcent_high) == (98, 99)
    if keep == "line-size":
        assert (small.line_bytes, small.lines) == (64 << 20, 256)
        assert "256 instead of 16383" in scaled.consequences[2]
    else:
        assert (small.line_bytes, small.lines) == (1 << 20, 16383)
        assert "1 MiB instead of 64 MiB" in scaled.consequences[2]
    assert scaled.consequences[-1].endswith("not stretched")
    assert femu_drive(small).size_bytes == small.namespace_bytes


def test_scale_that_leaves_no_working_drive_is_refused() -> None:
    full, _ = femu_profile(load_profile("1tb-0.3dwpd"))
    with pytest.raises(UsageError, match="spare"):
        scale_profile(full, Fraction(1, 4096), "line-size")
    with pytest.raises(UsageError, match="no whole number"):
        scale_profile(full, Fraction(1, 3), "line-count")


@pytest.mark.parametrize(
    ("text", "expected"), [("1/64", Fraction(1, 64)), ("1", Fraction(1)), (" 0.5 ", Fraction(1, 2))]
)
def test_scales(text: str, expected: Fraction) -> None:
    assert parse_scale(text) == expected


@pytest.mark.parametrize("text", ["", "x", "1/0", "0", "2", "-1/2"])
def test_not_scales(text: str) -> None:
    with pytest.raises(UsageError, match="scale"):
        parse_scale(text)
