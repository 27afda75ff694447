"""What each rung says of given numbers, and the parts that run without a guest."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.errors import MachineError, UsageError
from harness.core.ops import Op
from harness.core.profiles import DeviceProfile, load_profile
from harness.ftl.workloads import OpList
from harness.trace.parquet import TraceWriter
from harness.trace.schema import TraceMeta
from harness.validate import golden, ladder
from harness.validate.golden import golden_runs, model_counters, model_equals_golden
from harness.validate.guests import (
    drive_counts_what_was_sent,
    femu_counts_pages,
    mixed_ops,
    trace_case,
    with_ends,
)
from harness.validate.ladder import Ladder, climb, failed
from harness.validate.lifetime import lifetime_rungs
from harness.validate.rung import Rung, Verdict, judged, not_run
from harness.validate.scaling import Traffic, compare, measure_wear, small_equals_large

TRAFFIC = Traffic("lmcache-raw-block", "chat", "llama-3.1-8b-tp8")
SMALL = DeviceProfile(
    name="small", nchs=8, luns_per_ch=8, pgs_per_blk=16, blks_per_pl=512, devsz_mb=1792,
    policy="femu-late", capacity_bytes=1792 << 20, dwpd=0.3, warranty_years=5,
)  # fmt: skip


def test_model_equals_every_golden_run() -> None:
    row = model_equals_golden()
    assert row.verdict == Verdict.AGREES
    assert row.expected == row.measured == {"runs": 51, "snapshots": 353}


def test_a_wrong_model_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One page more in one snapshot of one run is enough, and is named."""
    runs = golden_runs()[:3]
    real = golden.model_counters

    def off_by_one(profile: DeviceProfile, ops: OpList) -> list[tuple[int, int, int]]:
        found = real(profile, ops)
        if profile == runs[1].profile:
            tag, host, moved = found[2]
            found[2] = (tag, host, moved + 1)
        return found

    monkeypatch.setattr(golden, "golden_runs", lambda: runs)
    monkeypatch.setattr(golden, "model_counters", off_by_one)
    row = model_equals_golden()
    assert row.verdict == Verdict.DIFFERS
    assert row.measured["runs"] == 2
    assert row.note is not None and row.note.startswith(f"{runs[1].name}: (tag, host, GC) is")


def snapshot(tag: int, smart: dict[str, int], host: int = 0, moved: int = 0) -> dict[str, Any]:
    """A snapshot as a guest reports it."""
    media = {"host_units": host, "media_units": host + moved, "source": "femu-smart"}
    return {"tag": tag, "counters": {"smart": smart, "media": media}}


def smart(writes: int, reads: int, units: int) -> dict[str, int]:
    """The fields of a SMART log that are compared."""
    return {
        "host_write_commands": writes,
        "host_read_commands": reads,
        "data_units_written": units,
    }


@pytest.mark.parametrize(
    ("commands", "units", "verdicts"),
    [
        (2, 1, ["AGREES", "AGREES"]),
        (2, 2, ["AGREES", "AGREES"]),
        (3, 1, ["DIFFERS", "AGREES"]),
        (2, 3, ["AGREES", "DIFFERS"]),
    ],
)
def test_counting_commands_and_units(commands: int, units: int, verdicts: list[str]) -> None:
    ops = OpList(
        np.array([0, 0, 4096, 0, 1, 8192], np.uint64),
        np.array([0, 4096, 131072, 4096, 0, 4096], np.uint64),
        np.array([Op.SNAP, Op.WRITE, Op.WRITE, Op.READ, Op.SNAP, Op.WRITE], np.uint8),
    )
    readings = [snapshot(0, smart(10, 5, 7)), snapshot(1, smart(10 + commands, 6, 7 + units))]
    rows = drive_counts_what_was_sent("x", readings, ops)
    assert [row.verdict.value for row in rows] == verdicts
    assert rows[0].expected == {"write commands": 2, "read commands": 1}


def test_model_against_a_live_femu() -> None:
    run = golden_runs()[0]
    counted = [
        snapshot(tag, smart(0, 0, 0), host, moved)
        for tag, host, moved in model_counters(run.profile, run.ops())
    ]
    row = femu_counts_pages("m", counted, run.profile, run.ops())
    assert row.verdict == Verdict.AGREES and row.expected == row.measured
    counted[3] = snapshot(3, smart(0, 0, 0), 1, 1)
    assert femu_counts_pages("m", counted, run.profile, run.ops()).verdict == Verdict.DIFFERS
    assert femu_counts_pages("m", counted[:3], run.profile, run.ops()).verdict == Verdict.DIFFERS


def test_mixed_commands_are_whole_commands_inside_the_drive() -> None:
    ops = mixed_ops(64 << 20)
    assert int(ops.length.max()) == 256 << 10
    assert bool((ops.offset + ops.length <= np.uint64(64 << 20)).all())
    framed = with_ends(ops)
    assert framed.op[0] == framed.op[-1] == Op.SNAP and len(framed.op) == len(ops.op) + 2


def result(steady: float | None, low: float | None = None, high: float | None = None) -> dict:
    """The part of a wear result that rung 2 reads."""
    waf = {"steady": steady, "low": low, "high": high, "band_done": 2}
    return {"waf": waf, "windows": [{"waf": 1.5}, {"waf": 1.25}]}


@pytest.mark.parametrize(
    ("small", "verdict"),
    [
        (result(2.08), "AGREES"),
        (result(2.2), "DIFFERS"),
        (result(2.2, 2.05, 2.3), "AGREES"),
        (result(1.8, 1.7, 1.91), "AGREES"),
        (result(1.8, 1.7, 1.85), "DIFFERS"),
    ],
)
def test_sizes_agree_within_the_order_band(small: dict, verdict: str) -> None:
    row = compare("x", result(2.0), small, (SMALL, SMALL))
    assert row.verdict.value == verdict
    assert row.note is not None and "scale error" in row.note


def test_nothing_is_said_of_what_is_not_steady() -> None:
    row = compare("x", result(None), result(2.0), (SMALL, SMALL))
    assert row.verdict == Verdict.NOT_RUN
    assert row.note == "the full drive's WAF is not steady yet: windows [1.5, 1.25]"


@pytest.mark.timeout(900)
def test_store_is_emitted_again_at_each_size() -> None:
    """Really measured: 1.75 GiB against a quarter of it, lines shrunk. Both become steady long
    before the budget on a machine that has nothing else to do."""
    large = measure_wear(TRAFFIC, SMALL, 300)
    row = small_equals_large(
        TRAFFIC, SMALL, large, Fraction(1, 4), "line-count", budget_s=300, perturb=1
    )
    assert row.measured["lines"] == row.expected["lines"] == 512
    assert row.measured["line_bytes"] * 4 == row.expected["line_bytes"]
    assert 1.0 <= row.measured["waf"] < 5.0


def test_scale_without_a_working_drive_is_a_row_with_the_reason() -> None:
    row = small_equals_large(TRAFFIC, SMALL, result(1.0), Fraction(1, 256), "line-size", budget_s=1)
    assert row.verdict == Verdict.NOT_RUN
    assert row.note is not None and "spare" in row.note


def life(paper: float | None, waf1: float | None) -> dict[str, Any]:
    """The part of a wear result that rung 4 reads."""
    days = {"paper_days": paper, "waf1_days": waf1, "nand_days": None}
    return {
        "lifetimes": days, "required_dwpd": 3.0, "rate_source": "clock", "policy": "drive",
        "lifetimes_from": "steady WAF", "store": "s", "model": "m", "seed": 0,
    }  # fmt: skip


def test_lifetimes_by_assumption_and_by_measurement() -> None:
    drive = load_profile("1tb-0.3dwpd")
    assumed, early = lifetime_rungs(drive, life(100.0, 260.0))
    assert assumed.verdict == Verdict.DIFFERS
    assert assumed.measured == {"waf": 2.6, "days": 100.0}
    assert early.verdict == Verdict.AGREES and early.expected["days_below"] == 1825
    assumed, early = lifetime_rungs(drive, life(2000.0, 2050.0))
    assert assumed.verdict == Verdict.AGREES
    assert early.verdict == Verdict.DIFFERS


def test_no_clock_no_days() -> None:
    rows = lifetime_rungs(load_profile("1tb-0.3dwpd"), life(None, None))
    assert [row.verdict for row in rows] == [Verdict.NOT_RUN] * 2


def test_what_fails_a_ladder() -> None:
    good, odd = judged(1, "a", 1, 1), judged(3, "b", 1, 2)
    scale = Rung(2, "c", 1.0, 2.0, Verdict.DIFFERS)
    absent = not_run(1, "d", "no FEMU")
    assert not failed([good, scale, absent])
    assert failed([good, odd])
    assert failed([good, scale], strict=True) and failed([good, absent], strict=True)


def test_a_machine_without_guests_still_climbs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(*words: object) -> list[Rung]:
        raise MachineError("guests need qemu-system-x86_64", fix="apt-get install it")

    monkeypatch.setattr(ladder, "stock_rungs", missing)
    monkeypatch.setattr(ladder, "femu_binary", lambda: None)
    rows = climb(Ladder(SMALL, TRAFFIC, rungs=(3,)), tmp_path)
    assert {row.rung for row in rows} == {3}
    assert {row.verdict for row in rows} == {Verdict.NOT_RUN}
    assert rows[0].note == "guests need qemu-system-x86_64 (apt-get install it)"
    json.dumps(ladder.to_json(rows, Ladder(SMALL, TRAFFIC)), allow_nan=False)


def test_a_trace_becomes_a_case_for_femu(tmp_path: Path) -> None:
    """The drive as FEMU can be it, the trace's requests split at one command, between SNAPs."""
    path = tmp_path / "kv.parquet"
    with TraceWriter(path, TraceMeta(source="test")) as writer:
        writer.write(
            {"ts_ns": np.arange(2), "op": np.full(2, Op.WRITE, np.uint8),
             "lba": np.array([2048, 0], np.uint64), "bytes": np.array([1 << 20, 4096], np.uint64)}
        )  # fmt: skip
    name, profile, ops = trace_case(path, SMALL.with_policy("drive"), Fraction(1, 2))
    assert (name, profile.policy, profile.namespace_bytes) == ("kv", "femu-late", 896 << 20)
    assert ops.op.tolist() == [Op.SNAP, *[Op.WRITE] * 5, Op.SNAP]
    assert ops.length.tolist() == [0, *[256 << 10] * 4, 4096, 0]
    with pytest.raises(UsageError, match="row 0 ends at byte 2097152"):
        trace_case(path, SMALL.changed(devsz_mb=1, capacity_bytes=1 << 20), Fraction(1))


def test_a_drive_that_is_not_named_is_not_written_to() -> None:
    (row,) = ladder._real_drive(None)
    assert row.verdict == Verdict.NOT_RUN and "--device D --destroy ID" in (row.note or "")
