from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.core.config import validate
from harness.core.errors import UsageError
from harness.core.profiles import DeviceProfile, load_profile, profile_names

SMALL: dict[str, Any] = {
    "nchs": 4, "luns_per_ch": 4, "pgs_per_blk": 16, "blks_per_pl": 512, "devsz_mb": 384,
}  # fmt: skip


def profile(**keys: Any) -> DeviceProfile:
    return validate({**SMALL, **keys}, DeviceProfile, "p.yaml")


@pytest.mark.parametrize(
    ("percent", "lines", "threshold"),
    [(90, 100, 9), (95, 100, 5), (95, 256, 12), (75, 256, 64), (95, 32, 1), (99, 512, 5),
     (98, 512, 10), (95, 512, 25)],
)  # fmt: skip
def test_thresholds_round_as_doubles_do(percent: int, lines: int, threshold: int) -> None:
    p = profile(blks_per_pl=lines, devsz_mb=1, gc_thres_pcent=percent, gc_thres_pcent_high=99)
    assert p.gc_thres_lines == threshold


def test_the_default_policy_follows_from_the_thresholds() -> None:
    assert profile().policy == "drive"
    assert profile(gc_thres_pcent=98, gc_thres_pcent_high=99).policy == "femu"
    stock = profile(policy="femu")
    assert (stock.gc_thres_pcent, stock.gc_thres_pcent_high) == (75, 95)
    late = stock.with_policy("femu-late")
    assert (late.gc_thres_lines, late.gc_thres_lines_high) == (10, 5)


def test_the_namespace_follows_femus_rule() -> None:
    assert profile().namespace_bytes == 384 << 20
    shrunk = profile(devsz_mb=None, op_pcent=20, gc_thres_pcent=90, gc_thres_pcent_high=95)
    assert shrunk.namespace_bytes == 447392256
    assert shrunk.namespace_pages == 109227
    bare = validate({}, DeviceProfile, "bare")
    assert (bare.namespace_bytes, bare.raw_bytes) == (1 << 30, 16 << 30)


def test_the_lba_format_trap_is_femus() -> None:
    """With 4 KiB LBAs and 512 B sectors, eight blocks share one logical page."""
    trap = profile(lba_index=3)
    assert (trap.lpn_bytes, trap.page_bytes) == (32768, 4096)
    right = profile(lba_index=3, secsz=4096, secs_per_pg=1)
    assert right.lpn_bytes == right.page_bytes == 4096


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"gc_thresh_pcent": 75}, "gc_thresh_pcent: unknown key"),
        ({"capacity_bytes": -5}, "capacity_bytes: size must not be negative"),
        ({"nchs": 0}, "nchs: Input should be greater than 0"),
        ({"gc_policy": "random"}, "gc_policy: Input should be 'greedy'"),
        ({"gc_thres_pcent": 101}, "gc_thres_pcent: Input should be less than or equal to 100"),
        ({"devsz_mb": 600}, "namespace of 629145600 B (600 MiB) is larger than the raw flash of "
                            "536870912 B (512 MiB)"),
        ({"devsz_mb": 500, "policy": "femu-stock"},
         "512 usable lines of 1 MiB minus 500 that the namespace of 500 MiB fills leave 12 spare, "
         "but forced GC starts at 25 free lines (gc_thres_pcent_high 95) and needs 2 more: give "
         "it at least 27 spare lines"),
        ({"devsz_mb": 511, "drive": {"line_bytes": "1MiB"}}, "leave 1 spare, but the drive "
         "policy's write points and reserve take 3"),
        ({"policy": "femu-late", "gc_thres_pcent": 75}, "policy femu-late has the thresholds "
         "98/99; the profile says 75/None"),
        ({"op_pcent": 7}, "op_pcent and devsz_mb are both given"),
        ({"pe_cycles": 3000}, "pe_cycles and pe_source"),
        ({"capacity_bytes": "384MiB", "dwpd": 3, "warranty_years": 5, "pe_cycles": 3000,
          "pe_source": "made up, TLC"}, "endure 1.61e+12 B, less than the rated 2.2e+12 B"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_their_numbers(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as error:
        profile(**keys)
    assert said in str(error.value)


def test_one_terabyte() -> None:
    drive = load_profile("1tb-0.3dwpd")
    assert drive.name == "1tb-0.3dwpd"
    assert drive.tbw_bytes == pytest.approx(547.5e12)
    assert drive.namespace_bytes == 10**12
    assert drive.raw_bytes // 512 <= 2**31 - 1
    assert drive.with_policy("femu-late").lines == 16383
    assert drive.with_policy("femu-stock").spare_lines == 1481


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_that_ships_works(name: str) -> None:
    drive = load_profile(name)
    assert drive.tbw_bytes is not None
    assert drive.description
    for policy in ("drive", "femu-late"):
        assert drive.with_policy(policy).spare_lines > 0  # type: ignore[arg-type]


def test_a_profile_by_path_and_its_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("devsz_mb: 1024\npolicy: femu-late\n")
    assert load_profile(str(path)).name == "mine"
    path.write_text("devsz_mb: -1\n")
    with pytest.raises(UsageError, match=r"mine\.yaml: devsz_mb: "):
        load_profile(str(path))
    with pytest.raises(UsageError, match=r"unknown name 'nosuch' in femu/devices/; known: .*1tb"):
        load_profile("nosuch")


def test_changes_are_validated_again() -> None:
    with pytest.raises(UsageError, match="larger than the raw flash"):
        profile().changed(devsz_mb=513)
    larger = profile().changed(drive={"line_bytes": 1 << 22})
    assert larger.lines == 128
    assert larger.changed(drive={"victim": "cost-benefit"}).drive.line_bytes == 1 << 22


def test_any_geometry_alone_is_enough() -> None:
    assert profile().lines == 512
    assert profile().tbw_bytes is None
