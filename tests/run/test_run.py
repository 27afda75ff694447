"""The whole path, small: a real store on a real loop device under the real probe."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.calibrate import load
from harness.run.path import STEPS
from harness.run.plan import load_plan
from harness.trace.parquet import open_trace

pytestmark = [pytest.mark.root, pytest.mark.slow]

DRIVE = """
name: tiny
nchs: 4
luns_per_ch: 4
pgs_per_blk: 64
blks_per_pl: 256
devsz_mb: 896
gc_thres_pcent: 90
gc_thres_pcent_high: 95
capacity_bytes: 939524096
dwpd: 0.3
warranty_years: 5
"""
GRID = """
name: tiny
seed: 1
repeats: 2
max_repeats: 2
sample_seconds: 0.05
budget_s: 8
reference_bytes: 16MiB
anchor_bytes: [1MiB]
layouts:
  - stores: [session-contiguous, lmcache-raw-block]
    models: [llama-3.1-8b-tp8]
    context_tokens: [1024]
    turns: [1]
    access: [whole]
    queue_depth: [8]
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan for a few seconds, with a drive and a grid of its own."""
    folder = tmp_path_factory.mktemp("plan")
    (folder / "drive.yaml").write_text(DRIVE)
    (folder / "grid.yaml").write_text(GRID)
    path = folder / "small.yaml"
    path.write_text(
        f"""
seed: 3
store: lmcache-raw-block
requests: chat
model: llama-3.1-8b-tp8
device_bytes: 512MiB
emit_seconds: 2
drive: {folder / "drive.yaml"}
wear_budget_s: 5
wear_captured_budget_s: 3
bench_grid: {folder / "grid.yaml"}
"""
    )
    return path


def command(plan: Path, results: Path, *more: str) -> list[str]:
    words = [sys.executable, "-m", "harness", "run", "--plan", str(plan)]
    return [*words, "--results", str(results), *more]


def attached(folder: Path) -> list[Path]:
    """Loop devices whose (nameless) file lies in ``folder``."""
    backing = Path("/sys/block").glob("loop*/loop/backing_file")
    return [path for path in backing if str(folder) in _text(path)]


def loops_in(folder: Path) -> list[Path]:
    """The same, after the kernel had its moment to give them up."""
    for _ in range(50):
        if not attached(folder):
            break
        time.sleep(0.1)
    return attached(folder)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@pytest.fixture(scope="module")
def finished(plan: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run that was left alone."""
    results = tmp_path_factory.mktemp("results")
    out = subprocess.run(
        command(plan, results, "--json"), capture_output=True, text=True, check=False
    )
    assert out.returncode == 0, out.stderr
    said = json.loads(out.stdout)
    assert [step["title"] for step in said["steps"]] == [step.title for step in STEPS]
    assert said["failures"] == []
    assert loops_in(results) == []
    return Path(said["folder"])


def test_every_step_leaves_its_result(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert names >= {
        "run.json", "trace.parquet", "objects.parquet", "emit.json", "capture.json",
        "replay-timed.json", "replay-flat-out.json", "wear.json", "wear-captured.json",
        "bench.json", "calibration.json", "report.html",
    }  # fmt: skip
    assert not [name for name in names if name.endswith((".parts", ".tmp", ".partial"))]


def test_the_results_agree_with_each_other(finished: Path) -> None:
    def read(name: str) -> dict:
        return json.loads((finished / f"{name}.json").read_text())

    emit, capture, timed = read("emit"), read("capture"), read("replay-timed")
    trace = open_trace(finished / "trace.parquet")
    assert capture["verdict"] == "LOSSLESS"
    assert trace.rows == capture["requests"] == timed["requests"]
    table = trace.table(["op", "bytes"]).to_pandas()
    assert table[table.op == "W"].bytes.sum() == emit["bytes_written"]
    assert table[table.op == "R"].bytes.sum() == emit["bytes_read"]
    assert emit["verify_errors"] == 0
    assert timed["fidelity"]["order_kept"] == 1.0
    wear = read("wear")
    assert wear["waf"]["first"] >= 1
    assert wear["profile"]
    calibration = load(finished / "calibration.json")
    assert calibration is not None
    record = read("run")
    assert (record["state"], record["exit_code"]) == ("done", 0)
    assert record["config"]["seed"] == 3


def test_the_report_needs_no_network(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    assert "LOSSLESS" in page
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page)


@pytest.fixture
def started(plan: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run in a process group of its own, ended whatever the test does."""
    process = subprocess.Popen(
        command(plan, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait_for_step(process: subprocess.Popen[str], results: Path, number: int) -> None:
    """Return shortly after step ``number`` (from 0) began."""
    assert process.stdout is not None
    while not list(results.glob("*.partial")):
        assert process.poll() is None
        time.sleep(0.1)
    for step in STEPS[:number]:
        line = process.stdout.readline()
        assert line.startswith(step.title), line
    time.sleep(0.2)


@pytest.mark.parametrize("number", range(len(STEPS) - 1))
def test_ctrl_c_in_a_step_leaves_a_partial_run_and_no_device(
    started: subprocess.Popen[str], tmp_path: Path, number: int
) -> None:
    wait_for_step(started, tmp_path, number)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 130, said
    assert "interrupted" in said
    assert "Traceback" not in said
    (folder,) = tmp_path.iterdir()
    assert folder.name.endswith(".partial")
    assert json.loads((folder / "run.json").read_text())["state"] == "interrupted"
    assert loops_in(tmp_path) == []


def test_kill_9_leaves_no_loop_device(started: subprocess.Popen[str], tmp_path: Path) -> None:
    while not attached(tmp_path):
        assert started.poll() is None
        time.sleep(0.05)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    assert loops_in(tmp_path) == []


def test_a_full_disk_is_said_before_anything_is_written(plan: Path, tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", tmp_path], check=True)
    try:
        out = subprocess.run(command(plan, tmp_path), capture_output=True, text=True, check=False)
        assert out.returncode == 3
        assert "free" in out.stderr
        assert "Traceback" not in out.stderr
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_mistake_in_a_plan_names_file_and_key(plan: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(plan.read_text() + "speed: 3\ndevice_bytes: -1\n")
    out = subprocess.run(command(wrong, tmp_path), capture_output=True, text=True, check=False)
    assert out.returncode == 2
    assert f"{wrong}: speed: unknown key" in out.stderr


def test_the_embedded_plan_is_valid() -> None:
    assert load_plan("default").seed == 7
