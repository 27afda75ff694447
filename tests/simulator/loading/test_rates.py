"""Rates read from a calibration file, and what is said when it lacks them."""

from __future__ import annotations

import numpy as np
import pytest

from harness.calibrate.export import export
from harness.calibrate.files import write
from harness.calibrate.reader import Calibration, MissingTerm, load
from harness.simulator.loading.rates import measured_rates
from tests.calibrate.builders import run_folder, typical_bench, wear

CONTEXTS = np.array([16384.0, 65536.0, 1000.0])


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    """A file with layouts and a WAF, from a machine without a GPU."""
    folder = tmp_path_factory.mktemp("rates")
    write(folder / "c.json", export([run_folder(folder, bench=typical_bench(), wear=wear())]))
    return load(folder / "c.json")


def test_a_layouts_bandwidth_depends_on_the_context(calibration: Calibration) -> None:
    found = measured_rates(calibration, CONTEXTS, layout="lmcache-raw-block", fill=True)
    assert found.ssd.tolist() == pytest.approx([6.0e9, 3.44e9, 6.0e9])
    assert found.sources["B_ssd"] == (
        "measured: restores of lmcache-raw-block"
        " (1 of 3 context lengths lie outside the measured range)"
    )
    assert (found.pcie, found.sources["B_pcie"]) == (50e9, "seed")
    assert found.sources["R_prefill"] == "seed" and found.sources["WAF"] == "modelled"


def test_without_a_layout_it_is_the_constant(calibration: Calibration) -> None:
    found = measured_rates(calibration, CONTEXTS, fill=True, waf=2.0, prefill=1000.0)
    assert found.ssd.tolist() == pytest.approx([6.2e9] * 3)
    assert (found.waf, found.prefill) == (2.0, 1000.0)
    assert found.sources["WAF"] == "from this run's wear"


def test_what_the_file_lacks_is_an_error(calibration: Calibration) -> None:
    with pytest.raises(MissingTerm, match="B_pcie is not-measured") as caught:
        measured_rates(calibration, CONTEXTS)
    assert "--constants seed" in (caught.value.fix or "")
    with pytest.raises(MissingTerm, match="no restore of kvbm"):
        measured_rates(calibration, CONTEXTS, layout="kvbm", fill=True)
    with pytest.raises(MissingTerm, match="ssd-to-gpu"):
        measured_rates(calibration, CONTEXTS, path="direct", fill=True)
