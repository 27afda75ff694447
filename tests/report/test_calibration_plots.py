"""Figures of a calibration file show the samples that were fitted, and what the fits miss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas

from harness.calibrate.export import export
from harness.calibrate.files import write
from harness.report import calibration_plots, calibration_waf_plots
from harness.report.calibration_page import write_calibration_page
from harness.report.calibration_plots import fitted, members, miss
from tests.calibrate.builders import layout_cell, run_folder, typical_bench
from tests.calibrate.test_wear_sweeps import point


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("plots")
    points = [
        point(1 + a * u**3, utilisation=u, policy=policy)
        for u in (0.5, 0.7, 0.9, 1.0)
        for policy, a in (("drive", 0.2), ("femu-late", 2.0))
    ]
    bench = typical_bench()
    bench["cells"].append(layout_cell("kvbm", 16384, 2.0, size=8192).model_dump(mode="json"))
    bench["cells"].append(
        layout_cell("kvbm", 16384, 0.1, size=8192, background_writes=True).model_dump(mode="json")
    )
    file = export([run_folder(folder, bench=bench, wear={"grid": {}, "points": points})])
    write(folder / "c.json", file)
    return dict(json.loads((folder / "c.json").read_text()))


def test_fitted_bandwidth_is_that_of_the_two_forms() -> None:
    size = np.array([1e6])
    latency = {"form": "latency", "t0_us": 100.0, "b1_gbps": 2.0, "b_max_gbps": 5.0}
    assert fitted(latency, size, 2) == pytest.approx([2 * 1e6 / (100e-6 + 500e-6) / 1e9])
    assert fitted(latency, size, 32) == pytest.approx([5.0])
    saturation = {"form": "saturation", "half_bytes": 1e6, "b_max_gbps": 5.0}
    assert fitted(saturation, size, 1) == pytest.approx([2.5])
    assert fitted(saturation, size, 4) == pytest.approx([4.0])  # bytes in flight
    assert fitted({"form": "saturation", "b_max_gbps": 5.0}, size, 1) is None


def test_residuals_are_those_of_the_file(data: dict[str, Any]) -> None:
    assert len(data["bandwidth_terms"]) >= 2
    for term in data["bandwidth_terms"]:
        mine = members(term, data["bandwidth"])
        assert len(mine) == term["n"]
        off = np.array([miss(term, sample) for sample in mine])
        assert np.abs(off).max() == pytest.approx(term["residuals"]["worst"])
        assert np.sqrt((off**2).mean()) == pytest.approx(term["residuals"]["rms"])
    for term in data["waf_terms"]:
        assert len(calibration_waf_plots.members(term, data["waf"])) == term["n"] == 4


def test_every_fit_is_drawn_with_its_residuals(data: dict[str, Any]) -> None:
    found = calibration_plots.figures(data, "a drive") + calibration_waf_plots.figures(data, "d")
    names = [figure.name for figure in found]
    assert names == [
        "calibration-fit-0", "calibration-fit-1", "calibration-residuals",
        "calibration-waf-utilisation", "calibration-waf-residuals-utilisation",
    ]  # fmt: skip
    axes = {}
    for figure in found:
        axes[figure.name] = Canvas().add_subplot()
        figure.draw(axes[figure.name])
    residuals = axes["calibration-residuals"]
    drawn = sum(len(line.get_xdata()) for line in residuals.lines[:-1])  # the last is zero
    whole = [term for term in data["bandwidth_terms"] if not term["layout"]]
    assert drawn == sum(term["n"] for term in whole)
    legend = axes["calibration-waf-utilisation"].get_legend()
    # What bends most comes first, named by what tells it from the other.
    assert [text.get_text() for text in legend.get_texts()] == ["femu-late", "drive"]


def test_too_few_sizes_for_a_fit_are_shown_as_they_are(data: dict[str, Any]) -> None:
    (figure,) = calibration_plots.figures({**data, "bandwidth_terms": []}, "a drive")
    assert figure.name == "calibration-bandwidth" and "too few" in figure.note
    assert calibration_plots.figures({}, "a drive") == []


def test_a_file_has_a_page_of_its_own(data: dict[str, Any], tmp_path: Path) -> None:
    write_calibration_page(data, "c.json", tmp_path / "c.html")
    page = (tmp_path / "c.html").read_text()
    for words in ("ACME Flash 1", "Residuals of the bandwidth fits", "B_ssd", "Fitted WAF"):
        assert words in page
