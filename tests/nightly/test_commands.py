"""The commands as a shell sees them: output, files, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.csv
import pytest
from typer.testing import CliRunner

from harness.cli.app import app
from harness.core.errors import UsageError
from harness.core.runs import load_run
from harness.nightly.history import History
from harness.nightly.nights import night_of
from tests.nightly.made import gbps, night, waf
from tests.report.made_run import make_run

runner = CliRunner()


def call(*words: str | Path) -> tuple[int, str]:
    result = runner.invoke(app, ["nightly", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty steady nights, then eight of less bandwidth under another kernel."""
    history = History(tmp_path / "history")
    for day in range(28):
        slow, kernel = (0.5, "2") if day >= 20 else (0.0, "1")
        history.append(night(day, gbps(2.0 - slow + day / 1000), waf(1.5), kernel=kernel))
    return history.folder


def test_a_run_folder_is_recorded_with_the_figures_of_its_report(tmp_path: Path) -> None:
    path = make_run(tmp_path / "results")
    target = tmp_path / "history"
    code, out = call("record", path, "--history", target, "--json")
    (said,) = json.loads(out)
    assert (code, said["added"], said["run"]) == (0, True, path.name)
    assert said["figures"] > 10
    _, shown = call("show", path.name, "--history", target, "--json")
    wear = json.loads((path / "wear.json").read_text())
    metrics = {m["name"]: m for m in json.loads(shown)["metrics"]}
    steady = [m for name, m in metrics.items() if name.startswith("WAF steady")]
    assert wear["waf"]["steady"] in [m["value"] for m in steady]
    assert all(m["better"] == -1 for m in steady)
    again = json.loads(call("record", path, "--history", target, "--json")[1])
    assert not again[0]["added"]


def test_a_night_names_device_and_software_of_its_run(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    found = night_of(path)
    assert found.software["kernel"] == load_run(path)["host"]["kernel"]
    assert found.device
    assert found.job.startswith("run ")


def test_an_interrupted_run_is_not_recorded(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    partial = path.rename(path.with_name(path.name + ".partial"))
    with pytest.raises(UsageError, match="interrupted"):
        call("record", partial, "--history", tmp_path / "history")
    assert not (tmp_path / "history").exists()


def test_history_lists_and_exports_the_same_nights(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    code, out = call("history", "--history", folder, "--last", "3", "--export", target, "--json")
    nights = json.loads(out)
    assert (code, len(nights)) == (0, 3)
    rows = pyarrow.csv.read_csv(target)
    assert sorted(set(rows["run"].to_pylist())) == [n["run"] for n in nights]
    assert len(rows) == 6
    assert json.loads(call("history", "--history", folder, "--host", "x", "--json")[1]) == []
    assert "SN1" in call("history", "--history", folder)[1]


def test_a_report_of_a_regression_exits_with_1_and_names_the_kernel(folder: Path) -> None:
    code, out = call("report", "--history", folder, "--json")
    data = json.loads(out)
    assert (code, data["verdict"], data["judged"]) == (1, "REGRESSED", 2)
    (found,) = data["findings"]
    assert (found["metric"], found["run"]) == ("Bandwidth", night(20).run)
    assert found["beside"] == ["kernel 1 -> 2 on 2026-01-21"]
    code, text = call("report", "--history", folder, "--all")
    assert code == 1
    assert "REGRESSED" in text
    assert "kernel 1 -> 2" in text
    assert "every change of level" in text


def test_a_report_without_a_regression_exits_with_0(tmp_path: Path) -> None:
    history = History(tmp_path)
    for day in range(3):
        history.append(night(day, waf(1.5)))
    code, out = call("report", "--history", tmp_path, "--json")
    assert (code, json.loads(out)["verdict"]) == (0, "UNKNOWN")
    for day in range(3, 10):
        history.append(night(day, waf(1.5)))
    code, out = call("report", "--history", tmp_path, "--json")
    assert (code, json.loads(out)["verdict"]) == (0, "STEADY")


def test_no_history_is_a_usage_error(tmp_path: Path) -> None:
    for command in (["history"], ["report"], ["show", "x"]):
        with pytest.raises(UsageError, match="no history"):
            call(*command, "--history", tmp_path / "none")
