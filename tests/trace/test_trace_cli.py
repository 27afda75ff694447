"""The commands: what they print, their JSON, and how they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.trace.schema import TraceMeta
from tests.trace.helpers import read_rows, write_trace
from tests.trace.samples import SAMPLES, R, W


def run(*words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "harness", "trace", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def data(*words: str | Path) -> Any:
    return json.loads(run(*words, "--json").stdout)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    rows = [(i * 1_000_000, (W, R)[i % 2], i * 8, 4096, 500_000) for i in range(100)]
    meta = TraceMeta(verdict="LOSSLESS", host="h", events_seen=100, clock_zero_ns=5)
    return write_trace(tmp_path / "t.parquet", rows, meta)


def test_info(trace: Path) -> None:
    found = data("info", trace)
    assert (found["rows"], found["duration_s"]) == (100, 0.099)
    assert found["meta"]["verdict"] == "LOSSLESS"
    shown = run("info", trace).stdout
    assert "LOSSLESS" in shown
    assert "99 ms" in shown


def test_stats_with_plots(trace: Path, tmp_path: Path) -> None:
    found = data("stats", trace, "--plots", tmp_path / "plots")
    assert found["operations"]["write"]["requests"] == 50
    assert all(Path(path).stat().st_size > 0 for path in found["plots"])
    shown = run("stats", trace).stdout
    assert "overwrite factor" in shown
    run("stats", trace, "--plot-format", "gif", code=2)


def test_convert_and_back(trace: Path, tmp_path: Path) -> None:
    there = data("convert", trace, tmp_path / "t.csv")
    assert (there["rows"], there["source"], there["target"]) == (100, "parquet", "csv")
    run("convert", tmp_path / "t.csv", tmp_path / "back.parquet")
    assert [row[:4] for row in read_rows(tmp_path / "back.parquet")] == [
        row[:4] for row in read_rows(trace)
    ]
    refused = run("convert", tmp_path / "t.csv", tmp_path / "back.parquet", code=2)
    assert "exists" in refused.stderr
    assert "--force" in refused.stderr
    run("convert", tmp_path / "t.csv", tmp_path / "back.parquet", "--force")


def test_bad_lines(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text(next(s.text for s in SAMPLES if s.format == "msr") + "oops\n")
    refused = run("convert", path, tmp_path / "out.parquet", code=2)
    assert "in.csv:3: expected 7 columns" in refused.stderr
    assert not (tmp_path / "out.parquet").exists()
    done = data("convert", path, tmp_path / "out.parquet", "--skip-bad", "1")
    assert (done["rows"], done["bad_lines"]) == (2, 1)


def test_scale_slice_and_merge(trace: Path, tmp_path: Path) -> None:
    report = data("scale", trace, tmp_path / "s.parquet", "--time", "2", "--size", "8MiB")
    assert (report["mode"], report["aliased_pages"], report["rows"]) == ("keep", 0, 100)
    assert read_rows(tmp_path / "s.parquet")[-1][0] == 198_000_000
    part = data("slice", trace, tmp_path / "p.parquet", "--from", "0.05", "--ops", "W")
    assert part["rows"] == 25
    both = data("merge", tmp_path / "m.parquet", trace, tmp_path / "p.parquet")
    assert both["rows"] == 125
    assert len(read_rows(tmp_path / "m.parquet")) == 125
    run("scale", trace, tmp_path / "x.parquet", "--mode", "squeeze", code=2)
    run("merge", tmp_path / "x.parquet", trace, code=2)
    assert not (tmp_path / "x.parquet").exists()


def test_refusals_leave_no_traceback(trace: Path, tmp_path: Path) -> None:
    truncated = tmp_path / "cut.parquet"
    truncated.write_bytes(trace.read_bytes()[:-30])
    assert "not a whole Parquet file" in run("info", truncated, code=2).stderr
    assert "No such file" in run("stats", tmp_path / "absent", code=2).stderr
    assert "names no format" in run("convert", trace, tmp_path / "x.y", code=2).stderr
    assert "is empty" in run("info", "/dev/null", code=2).stderr
    run("scale", trace, tmp_path / "x.parquet", "--size", "-1", code=2)
