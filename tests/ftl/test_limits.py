"""What the drive refuses, and how it says so; and tables of 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.core.config import validate
from harness.core.errors import MachineError, MeasurementError, UsageError
from harness.core.ops import Op
from harness.core.profiles import DeviceProfile
from harness.ftl import Ftl, pages
from harness.ftl.workloads import b_rand, join, sequential
from tests.ftl.golden import profile_of
from tests.ftl.test_golden import columns, ops_of

POLICIES: tuple[Any, ...] = ("femu", "drive")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("offset", "length"),
    [(384 << 20, 4096), ((384 << 20) - 4096, 8192), (0, (384 << 20) + 1), (2**64 - 1, 4096),
     (0, 2**64 - 1)],
)  # fmt: skip
@pytest.mark.parametrize("op", [Op.WRITE, Op.READ, Op.DISCARD])
def test_a_command_beyond_the_namespace_is_named(
    policy: Any, offset: int, length: int, op: Op
) -> None:
    ftl = Ftl(profile_of("A").with_policy(policy))
    offsets, lengths = np.array([0, offset], np.uint64), np.array([4096, length], np.uint64)
    with pytest.raises(UsageError, match=rf"request 11 \(offset {offset}, length") as error:
        ftl.apply(offsets, lengths, np.array([Op.WRITE, op]), first=10)
    assert "the namespace of 402653184 B" in str(error.value)
    assert error.value.fix is not None
    assert "harness trace scale" in error.value.fix
    assert ftl.counters().host_pages == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_a_write_of_nothing_is_refused_but_an_empty_discard_is_not(policy: Any) -> None:
    ftl = Ftl(profile_of("A").with_policy(policy))
    zero = np.zeros(1, np.uint64)
    ftl.apply(zero, zero, np.array([Op.DISCARD]))
    ftl.apply(zero, zero, np.array([Op.FLUSH]))
    assert ftl.counters().ops_done == 2
    with pytest.raises(UsageError, match="request 0 writes 0 bytes"):
        ftl.apply(zero, zero, np.array([Op.WRITE]))


def test_running_out_of_lines_names_the_cause() -> None:
    """One command longer than what forced GC keeps free: FEMU aborts."""
    profile = profile_of("T").changed(gc_thres_pcent=99, gc_thres_pcent_high=100, devsz_mb=127)
    ftl = Ftl(profile)
    ftl.apply(*sequential(0, profile.namespace_bytes, 1 << 16))
    with pytest.raises(MeasurementError) as error:
        ftl.apply(np.array([0]), np.array([8 << 20]), np.array([Op.WRITE]), first=7)
    said = str(error.value)
    assert "no free lines left while serving request 7 (2048 pages, 128 lines" in said
    assert (
        "forced GC keeps 0 free (gc_thres_pcent_high 100) of 2048 lines, 16 of them spare" in said
    )
    assert "over-provisioning 0.8 %" in said
    with pytest.raises(MeasurementError, match="ran out of lines before"):
        ftl.apply(np.array([0]), np.array([4096]), np.array([Op.WRITE]))


def test_tables_that_do_not_fit_are_a_machine_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.ftl.model.available_bytes", lambda: 512 << 10)
    with pytest.raises(MachineError, match="tables of A need 906 KiB, 512 KiB are available"):
        Ftl(profile_of("A").changed(name="A"))


def test_memory_of_a_terabyte() -> None:
    needed = pages.table_bytes(244_140_625, 16383, 16384, False)
    assert needed < 2.5 * 2**30
    assert pages.table_bytes(2**31, 2**17, 2**15, False) > 8 * 2**32


@pytest.mark.parametrize("run", ["m_micro_M", "g_edge_O", "h_rand4k_T"])
def test_64_bit_tables_give_the_same_counters(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = Ftl(profile_of(run.rpartition("_")[2]))
    monkeypatch.setattr("harness.ftl.pages.NARROW_BELOW", 0)
    wide = Ftl(narrow.profile)
    assert (narrow.state.pages.l2p.itemsize, wide.state.pages.l2p.itemsize) == (4, 8)
    found = [[columns(c) for c in ftl.apply(*ops_of(run))] for ftl in (narrow, wide)]
    assert found[0] == found[1]


def test_64_bit_tables_of_a_drive() -> None:
    narrow = Ftl(profile_of("A").with_policy("drive"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.ftl.pages.NARROW_BELOW", 0)
        wide = Ftl(narrow.profile)
    ops = join(b_rand(narrow.profile.namespace_bytes, bs=16384, mult=3))
    narrow.apply(*ops)
    wide.apply(*ops)
    assert wide.state.pages.p2l.itemsize == 8
    assert narrow.counters() == wide.counters()
    assert narrow.counters().gc_pages > 0


def test_a_smaller_page_than_a_write_costs_a_whole_one() -> None:
    profile = validate(
        {"secs_per_pg": 32, "pgs_per_blk": 16, "blks_per_pl": 64, "devsz_mb": 896},
        DeviceProfile, "16 KiB pages",
    )  # fmt: skip
    ftl = Ftl(profile)
    ftl.apply(np.arange(4) * 4096, np.full(4, 4096), np.full(4, Op.WRITE))
    counters = ftl.counters()
    assert (counters.host_pages, counters.host_bytes) == (4, 16384)
    assert ftl.mapped_pages == 1
