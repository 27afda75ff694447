"""The model equals real FEMU, counter for counter, in every run and at every snapshot."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from harness.ftl import Counters, Ftl
from harness.ftl.workloads import OpList, golden_ops
from tests.ftl.golden import GOLDEN, RUNS, profile_of

END = 999_999
"""Tag of the snapshot that a few runs took after the last command."""


def ops_of(run: str) -> OpList:
    record = RUNS[run]
    return golden_ops(record["generator"], record["capacity_used_bytes"], record["args"])


def columns(counters: Counters) -> list[int | None]:
    return [
        counters.tag,
        counters.ops_done,
        counters.host_pages,
        counters.gc_pages,
        counters.erased_lines,
        counters.free_lines,
        counters.foreground_gc,
        counters.background_gc,
    ]


def test_all_51_runs_are_here() -> None:
    assert len(RUNS) == 51
    without_a_run = set(GOLDEN["geometries"]) - {run["geometry"] for run in RUNS.values()}
    assert without_a_run == {"K4"}


@pytest.mark.parametrize("geometry", GOLDEN["geometries"])
def test_derived_sizes_and_thresholds(geometry: str) -> None:
    profile, said = profile_of(geometry), GOLDEN["derived"][geometry]
    assert {
        "raw_bytes": profile.raw_bytes,
        "namespace_bytes": profile.namespace_bytes,
        "page_bytes": profile.page_bytes,
        "pages_per_line": profile.pages_per_line,
        "lines": profile.lines,
        "gc_thres_lines": profile.gc_thres_lines,
        "gc_thres_lines_high": profile.gc_thres_lines_high,
    } == said
    assert profile.femu_problems() == []


@pytest.mark.parametrize("run", RUNS)
def test_the_op_list_is_the_one_femu_was_fed(run: str) -> None:
    ops = ops_of(run)
    records = np.zeros(
        len(ops.op), np.dtype([("o", "<u8"), ("n", "<u4"), ("op", "u1"), ("pad", "V3")])
    )
    codes = np.array([1, 0, 2, 255, 255, 255, 3], np.uint8)
    records["o"], records["n"], records["op"] = ops.offset, ops.length, codes[ops.op]
    assert len(records) == RUNS[run]["records"]
    assert hashlib.sha256(records.tobytes()).hexdigest() == RUNS[run]["ops_bin_sha256"]


@pytest.mark.parametrize("run", RUNS)
def test_the_model_equals_femu(run: str) -> None:
    ftl = Ftl(profile_of(RUNS[run]["geometry"]))
    got = [columns(c) for c in ftl.apply(*ops_of(run))]
    expected = RUNS[run]["snapshots"]
    if expected[-1][0] == END:
        got.append([END, *columns(ftl.counters())[1:]])
    assert got == expected


@pytest.mark.parametrize("run", GOLDEN["gdb_checks"])
def test_the_model_ends_in_the_state_seen_in_femus_memory(run: str) -> None:
    ftl = Ftl(profile_of(RUNS[run]["geometry"]))
    ftl.apply(*ops_of(run))
    seen, lines = GOLDEN["gdb_checks"][run], ftl.line_states()
    assert ftl.mapped_pages == seen["l2p_mapped"]
    assert int(ftl.erases.min()) == seen["erase_min"]
    assert int(ftl.erases.max()) == seen["erase_max"]
    assert int(ftl.erases.sum()) == seen["erased_lines_gdb"]
    assert (lines["free"], lines["victims"], lines["full"]) == (
        seen["free"],
        seen["victim"],
        seen["full"],
    )
    assert int(ftl.state.stats[ftl.policy.OPEN]) == seen["open_line"]
    channel, lun, page = seen["wp"]
    profile = ftl.profile
    place = channel + profile.nchs * (lun + profile.luns_per_ch * page)
    assert int(ftl.state.stats[ftl.policy.PLACE]) == place
