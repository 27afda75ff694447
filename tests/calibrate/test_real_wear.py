"""What the FTL model really prints becomes WAF samples and endurance terms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.calibrate.check import sense
from harness.calibrate.export import export
from harness.core.profiles import DeviceProfile
from harness.endurance.inputs import OpListInput
from harness.endurance.result import to_json
from harness.endurance.wear import Options, wear
from tests.calibrate.builders import run_folder

MIB = 1 << 20


@pytest.fixture(scope="module")
def profile() -> DeviceProfile:
    return DeviceProfile.model_validate(
        {
            "name": "small", "nchs": 2, "luns_per_ch": 2, "blks_per_pl": 64, "pgs_per_blk": 64,
            "devsz_mb": 48, "capacity_bytes": 48 * MIB, "dwpd": 0.3, "warranty_years": 5,
            "pe_cycles": 3000, "pe_source": "TLC", "price_usd": 10, "policy": "femu-late",
        }
    )  # fmt: skip


def test_a_real_wear_result_is_understood(tmp_path: Path, profile: DeviceProfile) -> None:
    ops = tmp_path / "ops.csv"
    pages = np.random.default_rng(1).integers(0, 12_000, 40_000)
    rows = [f"{page * 4096},4096,W" for page in pages.tolist()]
    ops.write_text("\n".join(rows) + "\n")
    done = wear(OpListInput(ops), profile, Options(writes_per_day=(1e9,)))
    result = to_json(done)
    file = export([run_folder(tmp_path / "r", wear=result)])
    (sample,) = file.waf
    assert sample.cumulative == result["waf"]["cumulative"] > 1
    assert (sample.source, sample.profile, sample.policy) == ("ftl-model", "small", "femu-late")
    assert sample.line_bytes == profile.line_bytes
    assert sample.over_provisioning == pytest.approx(result["over_provisioning"])
    (drive,) = file.endurance
    assert drive.tbw_bytes == pytest.approx(profile.tbw_bytes or 0)
    assert drive.usd_per_written_byte == pytest.approx(10 / drive.tbw_bytes)
    assert drive.waf1_days == pytest.approx(drive.tbw_bytes / 1e9)
    assert list(sense(file)) == []
