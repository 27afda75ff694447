"""Runs become a calibration file: what is in it, where it comes from, what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from harness.calibrate.check import check
from harness.calibrate.export import export
from harness.calibrate.files import read, write
from harness.core.errors import UsageError
from tests.calibrate.builders import NVME, bench, layout_cell, run_folder, typical_bench, wear


def test_a_whole_run_round_trips_and_makes_sense(tmp_path: Path) -> None:
    run = run_folder(tmp_path, bench=typical_bench(), wear=wear(), wear_captured=wear())
    file = export([run])
    path = tmp_path / "calibration.json"
    write(path, file)
    assert read(path).file == file
    found = check(path)
    assert found.valid, found.problems
    origin = file.provenance
    assert origin.device is not None
    assert origin.device.model == "ACME Flash 1" and origin.device.firmware == "F1"
    assert origin.device.serial_sha256 == hashlib.sha256(b"S123").hexdigest()
    assert "S123" not in path.read_text()
    digest = hashlib.sha256((run / "bench.json").read_bytes()).hexdigest()
    assert origin.runs[0].files["bench.json"] == digest


def test_constants_are_replaced_where_they_were_measured(tmp_path: Path) -> None:
    file = export([run_folder(tmp_path, bench=typical_bench(), wear=wear())])
    named = {constant.name: constant for constant in file.constants}
    assert named["B_ssd"].status == "measured"
    assert named["B_ssd"].value is not None
    assert named["B_ssd"].value.median == pytest.approx(6.2)
    assert "session-contiguous" in named["B_ssd"].conditions
    waf = named["WAF"]
    assert (waf.status, waf.seed) == ("modelled", 1.0)
    assert waf.value is not None
    assert (waf.value.low, waf.value.median, waf.value.high) == (1.8, 2.0, 2.2)
    assert (named["B_pcie"].status, named["B_pcie"].value) == ("not-measured", None)
    assert (named["R_prefill"].status, named["R_prefill"].seed) == ("imported", 60000)


def test_nothing_unmeasured_gets_a_figure(tmp_path: Path) -> None:
    file = export([run_folder(tmp_path, wear=wear())])
    assert file.bandwidth == [] and file.bandwidth_terms == [] and file.hop_terms == []
    assert file.provenance.device is None
    missing = {item.what for item in file.not_measured}
    assert {"hop ssd-to-dram", "hop ssd-to-gpu", "R_prefill", "WAF of a real drive"} <= missing


def test_a_waf_that_is_not_steady_says_so(tmp_path: Path) -> None:
    waf = {"first": 1.1, "cumulative": 1.4, "steady": None, "low": None, "high": None}
    file = export([run_folder(tmp_path, wear=wear(waf=waf))])
    constant = next(c for c in file.constants if c.name == "WAF")
    # The sample is kept; the simulator's constant is not replaced by a figure still moving.
    assert (constant.status, constant.value) == ("not-measured", None)
    assert "not steady, cumulative 1.4" in constant.conditions
    assert file.waf[0].cumulative == 1.4
    assert any("steady WAF" in item.what for item in file.not_measured)


def test_a_waf_without_a_band_does_not_claim_one(tmp_path: Path) -> None:
    waf = {"first": 1.1, "cumulative": 1.9, "steady": 2.0, "low": None, "high": None}
    file = export([run_folder(tmp_path, wear=wear(waf=waf))])
    constant = next(c for c in file.constants if c.name == "WAF")
    assert constant.value is not None and constant.value.median == 2.0
    assert "interval: not measured" in constant.conditions


def test_layout_terms_carry_the_slowdown_by_context(tmp_path: Path) -> None:
    file = export([run_folder(tmp_path, bench=typical_bench())])
    term = next(t for t in file.layout_terms if t.layout == "lmcache-raw-block")
    assert [point.context_tokens for point in term.points] == [16384, 65536]
    slow = [point.slowdown.median for point in term.points if point.slowdown]
    assert slow == [1.0, 1.8]
    contiguous = next(t for t in file.layout_terms if t.layout == "session-contiguous")
    assert all(point.slowdown is None for point in contiguous.points)


def test_bandwidth_is_fitted_within_its_range(tmp_path: Path) -> None:
    file = export([run_folder(tmp_path, bench=typical_bench())])
    term = next(t for t in file.bandwidth_terms if t.pattern == "sequential")
    assert term.form == "latency"
    assert term.t0_us == pytest.approx(80, rel=0.02)
    assert term.b1_gbps == pytest.approx(2.0, rel=0.02)
    assert term.b_max_gbps == pytest.approx(6.5, rel=0.02)
    assert (term.valid["request_bytes"].low, term.valid["request_bytes"].high) == (4096, 4 << 20)
    # Two sizes of fragments are no curve: no term for the layouts.
    assert all(t.pattern != "layout" for t in file.bandwidth_terms)


def test_waf_terms_need_three_points_that_differ_in_one_thing(tmp_path: Path) -> None:
    def point(utilisation: float, steady: float, store: str = "kvbm") -> dict:
        waf = {"first": 1.0, "cumulative": steady, "steady": steady, "low": None, "high": None}
        return wear(waf=waf, utilisation=utilisation, store=store)

    points = [point(0.5, 1.2), point(0.7, 1.6), point(0.9, 2.0), point(0.9, 3.0, store="other")]
    sweep = {"points": points, "profile": "1tb-0.3dwpd", "policy": "drive"}
    file = export([run_folder(tmp_path, wear=sweep)])
    assert len(file.waf) == 4
    (term,) = file.waf_terms
    assert (term.store, term.variable, term.n) == ("kvbm", "utilisation", 3)
    assert (term.valid.low, term.valid.high) == (0.5, 0.9)
    assert term.residuals.worst < 1e-9


def test_endurance_follows_the_profile(tmp_path: Path) -> None:
    file = export([run_folder(tmp_path, wear=wear())])
    (drive,) = file.endurance
    assert drive.tbw_bytes == pytest.approx(547.5e12)
    assert drive.paper_days == pytest.approx(547.5 / 4)


def test_runs_join(tmp_path: Path) -> None:
    one = run_folder(tmp_path, "20261101T120000Z-bench-a", bench=typical_bench())
    two = run_folder(tmp_path, "20261102T120000Z-wear-b", wear=wear())
    file = export([one, two])
    assert [run.name for run in file.provenance.runs] == [one.name, two.name]
    assert file.bandwidth and file.waf


def test_runs_of_different_devices_are_refused(tmp_path: Path) -> None:
    other = bench([layout_cell("kvbm", 1024, 1.0)], [], device={**NVME, "serial": "S999"})
    one = run_folder(tmp_path, "20261101T120000Z-bench-a", bench=typical_bench())
    two = run_folder(tmp_path, "20261102T120000Z-bench-b", bench=other)
    with pytest.raises(UsageError, match=r"different devices.*S123.*S999"):
        export([one, two])


def test_loop_devices_of_one_host_are_one_stand_in(tmp_path: Path) -> None:
    def loop(name: str, size: int) -> dict:
        device = {**NVME, "name": name, "model": None, "serial": None, "size_bytes": size}
        return bench([layout_cell("kvbm", 1024, 1.0)], [], device=device, stand_in="a loop device")

    one = run_folder(tmp_path, "20261101T120000Z-bench-a", bench=loop("loop0", 2**30))
    two = run_folder(tmp_path, "20261102T120000Z-bench-b", bench=loop("loop3", 2**31))
    file = export([one, two])
    assert file.provenance.stand_ins == ["a loop device"]
    assert file.provenance.device is not None and file.provenance.device.kind == "loop"


def test_runs_of_different_hosts_are_refused(tmp_path: Path) -> None:
    one = run_folder(tmp_path, "20261101T120000Z-run-a", wear=wear())
    two = run_folder(tmp_path, "20261102T120000Z-run-b", wear=wear(), host={"host": "lab2"})
    with pytest.raises(UsageError, match=r"different hosts \(lab1, lab2\)"):
        export([one, two])


def test_a_partial_run_is_refused_unless_it_is_ones_own(tmp_path: Path) -> None:
    run = run_folder(tmp_path, "20261101T120000Z-run-a.partial", wear=wear())
    with pytest.raises(UsageError, match="interrupted run"):
        export([run])
    assert export([run], unfinished=True).provenance.runs[0].name == "20261101T120000Z-run-a"


def test_a_result_that_is_cut_off_is_named(tmp_path: Path) -> None:
    run = run_folder(tmp_path, bench=typical_bench())
    whole = (run / "bench.json").read_text()
    (run / "bench.json").write_text(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match=r"bench\.json is cut off"):
        export([run])


def test_a_result_with_a_wrong_key_is_named(tmp_path: Path) -> None:
    result = typical_bench()
    result["cells"][2]["gbps"]["median"] = "fast"
    with pytest.raises(UsageError, match=r"cells\.2\.gbps\.median"):
        export([run_folder(tmp_path, bench=result)])


def test_a_run_without_results_and_no_run_at_all(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to calibrate from"):
        export([run_folder(tmp_path)])
    with pytest.raises(UsageError, match="no runs"):
        export([])


def test_a_wear_result_without_policy_is_no_waf(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="without policy"):
        export([run_folder(tmp_path, wear=wear(policy=None))])


def test_stretched_traces_give_no_waf(tmp_path: Path) -> None:
    waf = {"first": None, "cumulative": None, "steady": None, "low": None, "high": None}
    assert export([run_folder(tmp_path, wear=wear(waf=waf))]).waf == []


def test_the_file_is_json_without_nan(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    write(path, export([run_folder(tmp_path, bench=typical_bench(), wear=wear())]))
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} in the file"))
