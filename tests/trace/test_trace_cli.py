"""The commands: what they print, their JSON, and how they refuse."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.trace.schema import TraceMeta
from tests.trace.helpers import read_rows, write_trace
from tests.trace.samples import SAMPLES, R, W


@dataclass(frozen=True)
class Done:
    stdout: str
    stderr: str


class Command:
    """``harness trace`` in this process, by the same entry point as the installed command."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capture = patch, capture

    def __call__(self, *words: str | Path, code: int = 0) -> Done:
        self._patch.setattr(sys, "argv", ["harness", "trace", *map(str, words)])
        before = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.raises(SystemExit) as left:
                main()
        finally:
            signal.signal(signal.SIGTERM, before)
        out = self._capture.readouterr()
        assert (left.value.code or 0) == code, out.out + out.err
        return Done(out.out, out.err)

    def json(self, *words: str | Path) -> Any:
        return json.loads(self(*words, "--json").stdout)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    rows = [(i * 1_000_000, (W, R)[i % 2], i * 8, 4096, 500_000) for i in range(100)]
    meta = TraceMeta(verdict="LOSSLESS", host="h", events_seen=100, clock_zero_ns=5)
    return write_trace(tmp_path / "t.parquet", rows, meta)


def test_info(run: Command, trace: Path) -> None:
    found = run.json("info", trace)
    assert (found["rows"], found["duration_s"]) == (100, 0.099)
    assert found["meta"]["verdict"] == "LOSSLESS"
    shown = run("info", trace).stdout
    assert "LOSSLESS" in shown
    assert "99 ms" in shown


def test_stats_with_plots(run: Command, trace: Path, tmp_path: Path) -> None:
    found = run.json("stats", trace, "--plots", tmp_path / "plots")
    assert found["operations"]["write"]["requests"] == 50
    assert all(Path(path).stat().st_size > 0 for path in found["plots"])
    shown = run("stats", trace).stdout
    assert "overwrite factor" in shown
    run("stats", trace, "--plot-format", "gif", code=2)


def test_convert_and_back(run: Command, trace: Path, tmp_path: Path) -> None:
    there = run.json("convert", trace, tmp_path / "t.csv")
    assert (there["rows"], there["source"], there["target"]) == (100, "parquet", "csv")
    run("convert", tmp_path / "t.csv", tmp_path / "back.parquet")
    assert [row[:4] for row in read_rows(tmp_path / "back.parquet")] == [
        row[:4] for row in read_rows(trace)
    ]
    refused = run("convert", tmp_path / "t.csv", tmp_path / "back.parquet", code=2)
    assert "exists" in refused.stderr
    assert "--force" in refused.stderr
    run("convert", tmp_path / "t.csv", tmp_path / "back.parquet", "--force")


def test_bad_lines(run: Command, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text(next(s.text for s in SAMPLES if s.format == "msr") + "oops\n")
    refused = run("convert", path, tmp_path / "out.parquet", code=2)
    assert "in.csv:3: expected 7 columns" in refused.stderr
    assert not (tmp_path / "out.parquet").exists()
    done = run.json("convert", path, tmp_path / "out.parquet", "--skip-bad", "1")
    assert (done["rows"], done["bad_lines"]) == (2, 1)


def test_scale_slice_and_merge(run: Command, trace: Path, tmp_path: Path) -> None:
    report = run.json("scale", trace, tmp_path / "s.parquet", "--time", "2", "--size", "8MiB")
    assert (report["mode"], report["aliased_pages"], report["rows"]) == ("keep", 0, 100)
    assert read_rows(tmp_path / "s.parquet")[-1][0] == 198_000_000
    part = run.json("slice", trace, tmp_path / "p.parquet", "--from", "0.05", "--ops", "W")
    assert part["rows"] == 25
    both = run.json("merge", tmp_path / "m.parquet", trace, tmp_path / "p.parquet")
    assert both["rows"] == 125
    assert len(read_rows(tmp_path / "m.parquet")) == 125
    run("scale", trace, tmp_path / "x.parquet", "--mode", "squeeze", code=2)
    run("merge", tmp_path / "x.parquet", trace, code=2)
    assert not (tmp_path / "x.parquet").exists()


def test_refusals_leave_no_traceback(run: Command, trace: Path, tmp_path: Path) -> None:
    truncated = tmp_path / "cut.parquet"
    truncated.write_bytes(trace.read_bytes()[:-30])
    assert "not a whole Parquet file" in run("info", truncated, code=2).stderr
    assert "No such file" in run("stats", tmp_path / "absent", code=2).stderr
    assert "names no format" in run("convert", trace, tmp_path / "x.y", code=2).stderr
    assert "is empty" in run("info", "/dev/null", code=2).stderr
    run("scale", trace, tmp_path / "x.parquet", "--size", "-1", code=2)


def test_the_installed_command_refuses_without_a_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness", "trace", "stats", str(tmp_path / "absent")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: cannot read ")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_conversion_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with (tmp_path / "in.trace").open("w") as out:
        for million in range(5):
            out.writelines(f"{million}{i:06d} 0 {i} 8 0\n" for i in range(10**6))
    words = ("trace", "convert", tmp_path / "in.trace", tmp_path / "out.parquet")
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", *map(str, words)], stderr=subprocess.PIPE, text=True
    )
    while not list(tmp_path.glob(".out.parquet.*")):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert [entry.name for entry in tmp_path.iterdir()] == ["in.trace"]
