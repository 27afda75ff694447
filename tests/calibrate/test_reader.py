"""The reader: exact at what was measured, marked beyond it, silent about nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.calibrate import Calibration, MissingTerm, load
from harness.calibrate.export import export
from harness.calibrate.files import write
from harness.calibrate.request import (
    Work,
    cost_usd,
    drive_price,
    load_seconds,
    measured_constants,
    seed_constants,
)
from harness.core.errors import UsageError
from tests.calibrate.builders import run_folder, typical_bench, wear

DOC = Path(__file__).resolve().parents[2] / "docs" / "calibration-reader.md"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    write(
        folder / "calibration.json",
        export([run_folder(folder, bench=typical_bench(), wear=wear())]),
    )
    return folder / "calibration.json"


@pytest.fixture(scope="module")
def calibration(path: Path) -> Calibration:
    return load(path)


def test_constants_measured_imported_and_missing(calibration: Calibration) -> None:
    b_ssd = calibration.constant("B_ssd")
    assert (float(b_ssd), b_ssd.source) == (pytest.approx(6.2), "measured")
    assert b_ssd.low <= b_ssd.value <= b_ssd.high
    assert calibration.constant("WAF").source == "modelled"
    with pytest.raises(MissingTerm, match="B_pcie is not-measured"):
        calibration.constant("B_pcie")
    with pytest.raises(MissingTerm, match="R_prefill is imported"):
        calibration.constant("R_prefill")
    assert calibration.constant("R_prefill", seed=True).source == "seed"
    assert float(calibration.constant("B_pcie", seed=True)) == 50.0
    with pytest.raises(MissingTerm, match="no constant 'B_dram'"):
        calibration.constant("B_dram")


def test_bandwidth_by_size_and_depth(calibration: Calibration) -> None:
    found = calibration.bandwidth_gbps(65536, 8)
    truth = min(8 * 65536 / (80e-6 + 65536 / 2e9) / 1e9, 6.5)
    assert found.value == pytest.approx(truth, rel=0.02)
    assert found.source == "fitted" and not found.extrapolated
    assert found.low <= truth <= found.high
    assert calibration.bandwidth_gbps(64 << 20, 8).extrapolated
    assert calibration.bandwidth_gbps(65536, 4096).extrapolated
    with pytest.raises(MissingTerm, match="no fit for ssd-to-dram read random"):
        calibration.bandwidth_gbps(4096, 1, pattern="random")


def test_restores_by_layout_and_context(calibration: Calibration) -> None:
    at = calibration.restore_gbps
    assert at("lmcache-raw-block", 16384).value == pytest.approx(6.0)
    assert at("lmcache-raw-block", 65536).value == pytest.approx(3.44)
    # 32768 is half way in log context.
    assert at("lmcache-raw-block", 32768).value == pytest.approx((6.0 + 3.44) / 2)
    assert not at("lmcache-raw-block", 32768).extrapolated
    assert at("lmcache-raw-block", 219000).value == pytest.approx(3.44)
    assert at("lmcache-raw-block", 219000).extrapolated
    assert at("lmcache-raw-block", 1000).extrapolated
    with pytest.raises(MissingTerm, match="layouts in the file: lmcache-raw-block, session-cont"):
        at("mooncake-bucket", 16384)
    with pytest.raises(MissingTerm):
        at("lmcache-raw-block", 16384, background_writes=True)


def test_hops_waf_and_endurance(calibration: Calibration) -> None:
    assert calibration.hop_gbps("ssd-to-dram").value == pytest.approx(6.5, rel=0.05)
    with pytest.raises(MissingTerm, match="hop ssd-to-gpu read was not measured"):
        calibration.hop_gbps("ssd-to-gpu")
    waf = calibration.waf(store="lmcache-raw-block", policy="drive")
    assert (waf.value, waf.low, waf.high, waf.source) == (2.0, 1.8, 2.2, "modelled")
    with pytest.raises(MissingTerm, match="no WAF for store kvbm"):
        calibration.waf(store="kvbm")
    assert calibration.endurance("1tb-0.3dwpd").tbw_bytes == pytest.approx(547.5e12)
    with pytest.raises(MissingTerm, match="no endurance of mydrive"):
        calibration.endurance("mydrive")
    with pytest.raises(MissingTerm, match="no price_usd"):
        drive_price(calibration)


def test_a_waf_that_was_not_steady_is_marked(tmp_path: Path) -> None:
    waf = {"first": 1.1, "cumulative": 1.4, "steady": None, "low": None, "high": None}
    found = Calibration(export([run_folder(tmp_path, wear=wear(waf=waf))])).waf()
    assert found.value == found.low == found.high == 1.4
    assert found.extrapolated


def test_load_latency_by_hand(calibration: Calibration) -> None:
    seed = seed_constants(calibration)
    # 10 GB from SSD in 1 s, 10 GB over PCIe in 0.2 s; 6000 tokens in 0.1 s run beside it.
    assert load_seconds(Work(10e9, 10e9, 6000, 0), seed) == pytest.approx(1.2)
    assert load_seconds(Work(1e6, 1e6, 600_000, 0), seed) == pytest.approx(10.0)
    measured = measured_constants(calibration)
    assert load_seconds(Work(6.2e9, 0, 0, 0), measured) == pytest.approx(1.0)
    assert measured.sources == {
        "B_ssd": "measured", "B_pcie": "seed", "WAF": "modelled", "R_prefill": "seed",
    }  # fmt: skip
    slow = measured_constants(calibration, layout="lmcache-raw-block", context_tokens=65536)
    assert load_seconds(Work(3.44e9, 0, 0, 0), slow) == pytest.approx(1.0)


def test_cost_by_hand(calibration: Calibration) -> None:
    work = Work(0, 0, 60_000, 1e9)
    prices = {"gpu_usd_per_s": 2.0, "usd_per_written_byte": 1e-9}
    assert cost_usd(work, seed_constants(calibration), **prices) == pytest.approx(2.0 + 1.0)
    # WAF 2 wears the drive twice as fast.
    assert cost_usd(work, measured_constants(calibration), **prices) == pytest.approx(2.0 + 2.0)


def test_the_documented_example_runs(path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=path.parent, capture_output=True, text=True, check=True
    )
    before, after = done.stdout.splitlines()
    assert before.startswith("assumed") and after.startswith("measured")
    # 8.59 GB: 0.859 s + 0.172 s as assumed, 1.385 s + 0.172 s at 6.2 GB/s.
    assert float(before.split()[2]) == pytest.approx(1.031, abs=0.001)
    assert float(after.split()[2]) == pytest.approx(1.557, abs=0.001)
    assert float(after.split()[5]) > float(before.split()[5])


def test_every_documented_call_exists(calibration: Calibration) -> None:
    for name in re.findall(r"^\| `\.(\w+)", DOC.read_text(), re.MULTILINE):
        assert hasattr(calibration, name)


def test_what_is_no_calibration_file(tmp_path: Path) -> None:
    other = tmp_path / "bench.json"
    other.write_text(json.dumps({"cells": []}))
    with pytest.raises(UsageError, match="not a calibration file"):
        load(other)
