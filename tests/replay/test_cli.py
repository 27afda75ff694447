"""``harness replay`` as people and programs meet it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from harness.cli.app import app
from harness.core.errors import UsageError
from harness.trace.parquet import open_trace

from .conftest import Own
from .traces import MIB, mixed_trace, write_trace


def harness(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", "replay", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


def on_loop(trace: Path, results: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return harness(trace, "--loop", "64MiB", "--loop-dir", "/dev/shm", "--results", results, *words)


@pytest.mark.root
def test_json_and_run_folder_hold_the_same_result(tmp_path: Path) -> None:
    trace = mixed_trace(tmp_path / "kv.parquet", 1000, seconds=0.5)
    done = on_loop(trace, tmp_path, "--json", "--verify")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    folder = Path(result["run"])
    assert json.loads((folder / "replay.json").read_text()) == result
    run = json.loads((folder / "run.json").read_text())
    assert run["fidelity"] == result["fidelity"]
    assert run["config"]["mode"] == "timed"
    assert set(result["fidelity"]["lag_ns"]) >= {"p50", "p99", "max"}
    assert result["requests"] == 1000
    assert result["errors"] == 0
    assert {"before", "after"} == set(result["counters"])


@pytest.mark.root
def test_people_get_a_verdict_and_a_table(tmp_path: Path) -> None:
    trace = mixed_trace(tmp_path / "kv.parquet", 500, seconds=0.2)
    done = on_loop(trace, tmp_path, "--mode", "flat-out")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("FAITHFUL\n")
    assert "order kept" in done.stdout
    assert "100.0000%" in done.stdout


@pytest.mark.root
def test_an_unmet_verdict_exits_1(tmp_path: Path) -> None:
    """A burst that no device takes at once, at a recorded rate that it cannot carry: LATE."""
    trace = write_trace(
        tmp_path / "kv.parquet",
        ts_ns=np.arange(6000) * 10,
        op=1,
        offset=np.arange(6000) % 60 * MIB,
        length=262144,
    )
    late = on_loop(trace, tmp_path, "--json")
    assert late.returncode == 0, late.stderr
    fidelity = json.loads(late.stdout)["fidelity"]
    assert fidelity["verdict"] == "LATE"
    assert "cannot carry the trace" in fidelity["reasons"][0]
    assert on_loop(trace, tmp_path, "--json", "--strict").returncode == 1


@pytest.mark.root
def test_the_probe_bears_witness(tmp_path: Path) -> None:
    trace = mixed_trace(tmp_path / "kv.parquet", 2000, seconds=1.0)
    done = on_loop(trace, tmp_path, "--json", "--witness")
    if done.returncode == 3:
        pytest.skip(f"no probe here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    seen = result["witness"]
    assert seen["requests"] == seen["matched"] == 2000
    assert seen["unmatched"] == seen["others"] == 0
    assert seen["order_kept"] == 1.0
    assert open_trace(Path(result["run"]) / "witness.parquet").rows == 2000
    ours = result["fidelity"]["lag_ns"]
    assert abs(seen["lag_ns"]["p50"] - ours["p50"]) < 2e6
    assert abs(seen["lag_ns"]["max"] - ours["max"]) < 10e6
    assert seen["lag_ns"]["max"] > 0


@pytest.mark.root
def test_a_device_must_be_named_twice(own: Own, tmp_path: Path) -> None:
    trace = mixed_trace(tmp_path / "kv.parquet", 10)
    done = harness(trace, "--device", own.loop.path, "--results", tmp_path)
    assert done.returncode == 2
    assert "must be named twice" in done.stderr
    assert list(tmp_path.glob("*replay*")) == []


@pytest.mark.root
def test_a_trace_that_does_not_fit_is_refused_whole(tmp_path: Path) -> None:
    trace = write_trace(
        tmp_path / "kv.parquet", ts_ns=[0, 1], op=1, offset=[0, 65 * MIB], length=4096
    )
    done = on_loop(trace, tmp_path)
    assert done.returncode == 2
    assert "row 1 (W, LBA 133120, 4096 bytes) lies beyond the device of 64 MiB" in done.stderr
    assert "harness trace scale" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["missing.parquet", "--loop", "64MiB"], "no such trace"),
        ([__file__, "--loop", "64MiB"], "is not a whole Parquet file"),
        (["x", "--loop", "64MiB", "--device", "/dev/x"], "say where"),
        (["x"], "say where"),
        (["x", "--loop", "1MiB", "--mode", "quick"], "unknown mode 'quick'"),
        (["x", "--loop", "1MiB", "--until", "lots"], "not a size"),
        (["x", "--loop", "1MiB", "--destroy", "S1"], "no meaning: --destroy"),
        (["x", "--device", "/dev/x", "--loop-dir", "/tmp"], "no meaning: --loop-dir"),
        (["x", "--loop", "1MiB", "--keep", "line-count"], "no meaning: --keep"),
        (["x", "--loop", "1MiB", "--until", "1GB", "--repeat", "1"], "no meaning: --repeat"),
        (["x", "--loop", "1MiB", "--mode", "flat-out", "--no-realtime"], "meaning: --realtime"),
        (["x", "--loop", "1MiB", "--engine", "fio", "--seed", "3"], "no meaning: --seed"),
    ],
)
def test_bad_words_get_one_clear_error(words: list[str], reason: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["replay", *words, "--results", str(tmp_path)])
    assert isinstance(done.exception, UsageError)
    assert reason in str(done.exception)
    assert list(tmp_path.iterdir()) == []
