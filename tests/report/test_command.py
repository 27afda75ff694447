"""``harness report`` as people and scripts call it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.made_run import make_run

_DRIVER = (
    "import sys; from harness.cli.app import main; sys.argv = ['harness', 'report', *sys.argv[1:]];"
    "main()"
)


def _report(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _DRIVER, *map(str, words)], capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    make_run(folder)
    make_run(folder, "other", seed=2, scale=1.1)
    return folder


def _runs(results: Path) -> list[Path]:
    return sorted(p for p in results.iterdir() if p.is_dir())


def test_the_terminal_shows_what_the_page_shows(results: Path) -> None:
    done = _report(_runs(results)[0])
    assert done.returncode == 0, done.stderr
    for shown in ("LOSSLESS", "FAITHFUL", "NOT STEADY", "2.60", "1tb-0.3dwpd", "no GPU"):
        assert shown in done.stdout
    assert (_runs(results)[0] / "report.html").is_file()


def test_without_a_run_the_newest_is_taken(results: Path) -> None:
    done = _report("--html", "--results", results)
    assert done.stdout.strip() == str(_runs(results)[1] / "report.html")


def test_json_is_all_there_is_on_stdout(results: Path) -> None:
    found = json.loads(_report(_runs(results)[0], "--json").stdout)
    assert found["page"].endswith("report.html")
    numbers = {n["key"]: n["value"] for n in found["numbers"]}
    assert numbers["capture.requests"] == 20_000
    assert found["caveats"]


def test_comparing_writes_a_page_and_prints_the_changes(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "difference.html"
    done = _report("--compare", *_runs(results), "--out", out)
    assert done.returncode == 0, done.stderr
    assert "within noise" in done.stdout
    assert out.stat().st_size > 100_000
    found = json.loads(_report("--compare", *_runs(results), "--out", out, "--json").stdout)
    assert found["runs"] == [p.name for p in _runs(results)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["/nonexistent"], "is not a run folder"),
        (["--compare", "/nonexistent"], "--compare takes two runs, not 1"),
        (["a", "b"], "one run, not 2"),
        (["a", "--out", "x.html"], "--out goes with --compare"),
        (["--results", "/nonexistent"], "no finished run"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(words: list[str], said: str) -> None:
    done = _report(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
