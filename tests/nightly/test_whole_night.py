"""Two whole nights with the real harness: every kind of job that this machine can do is done."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from harness.cli.app import app
from harness.nightly.history import History
from tests.nightly.conftest import night
from tests.nightly.hosts import Lab

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

_GRID = """
name: tiny
seed: 1
repeats: 3
max_repeats: 3
sample_seconds: 0.1
budget_s: 10
"""
GRID = (
    _GRID
    + """
reference_bytes: 16MiB
anchor_bytes: [1MiB]
layouts:
  - stores: [session-contiguous]
    models: [llama-3.1-8b-tp8]
    context_tokens: [1024]
    turns: [1]
    age: [1.0]
    access: [layers]
    queue_depth: [8]
    read_bytes: 1MiB
"""
)
GDS = (
    _GRID
    + """
gds:
  - stores: [session-contiguous]
    model: llama-3.1-8b-tp8
    context_tokens: [1024]
    host: [posix-direct]
    threads: [1]
    task_bytes: [1MiB]
"""
)
DRIVE = "devsz_mb: 384\nnchs: 4\nluns_per_ch: 4\nblks_per_pl: 512\npgs_per_blk: 16\n"


@pytest.fixture
def drives(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """A loop device for each host, by its backing file."""
    images = {name: tmp_path / f"{name}.img" for name in "ab"}
    loops = []
    for image in images.values():
        image.touch()
        os.truncate(image, 512 << 20)
        attach = ["losetup", "--find", "--show", str(image)]
        done = subprocess.run(attach, capture_output=True, text=True, check=True)
        loops.append(done.stdout.strip())
    yield images
    for loop in loops:
        subprocess.run(["losetup", "--detach", loop], check=True)


def test_two_nights_of_every_job_on_two_hosts(lab: Lab, drives: dict[str, Path]) -> None:
    hosts = [
        {**lab.host(name, real=True), "devices": [{"serial": str(drives[name])}]} for name in "ab"
    ]
    files = {"grid": GRID, "gds": GDS, "drive": DRIVE}
    paths = {name: str(lab.folder / f"{name}.yaml") for name in files}
    for name, text in files.items():
        Path(paths[name]).write_text(text)
    a, b = ({"devices": [str(drives[name])]} for name in "ab")
    trace = str(lab.folder / "kept.parquet")
    jobs: list[dict[str, Any]] = [
        {"name": "path", "kind": "capture-replay", "seconds": 1, "mode": "flat-out", **a},
        {"name": "layouts", "kind": "bench", "grid": paths["grid"], **b},
        {"name": "gpu", "kind": "gds", "grid": paths["gds"], **b},
        {"name": "again", "kind": "replay", "trace": trace, "mode": "flat-out", **b},
        {"name": "model", "kind": "wear", "store": "lmcache-raw-block", "hosts": ["b"],
         "profile": paths["drive"], "model": "llama-3.1-8b-tp8", "budget_s": 2},
        {"name": "ladder", "kind": "validate", "rungs": [4], "hosts": ["a"],
         "profile": paths["drive"], "budget_s": 2},
    ]  # fmt: skip
    first = [job for job in jobs if job["name"] != "again"]
    code, data = night(lab, hosts, *first)
    assert (code, data["done"], data["failed"]) == (0, 5, 0)
    results = lab.folder / "results"
    by_name = {task["job"]: task for task in data["tasks"]}
    capture, replay = by_name["path"]["runs"]
    assert json.loads((results / capture / "capture.json").read_text())["verdict"] == "LOSSLESS"
    replayed = json.loads((results / replay / "replay.json").read_text())
    assert replayed["fidelity"]["verdict"] in {"FAITHFUL", "LATE"}
    assert replayed["requests"] > 0
    os.link(results / capture / "trace.parquet", trace)
    wear = json.loads((results / by_name["model"]["runs"][0] / "wear.json").read_text())
    assert wear["waf"]["cumulative"] >= 1
    ladder = json.loads((results / by_name["ladder"]["runs"][0] / "validate.json").read_text())
    assert {row["rung"] for row in ladder["rungs"]} == {4}
    missing = by_name["gpu"]["not_measured"]
    assert missing
    assert all(why for why in missing.values())

    # Had bandwidth been ten times as high for 40 nights, the two real ones would be a regression.
    history = History(results / "history")
    (bench,) = [n for n in history.nights() if n.job == "layouts: bench"]
    for day in range(40):
        figures = tuple(replace(m, value=10 * m.value) for m in bench.metrics if m.better > 0)
        past = bench.started - timedelta(days=41 - day)
        history.append(replace(bench, run=f"made-{day}", started=past, metrics=figures))

    code, data = night(lab, hosts, *(job for job in jobs if job["name"] in ("layouts", "again")))
    assert (data["done"], data["failed"]) == (2, 0)
    nights = [n for n in history.nights() if not n.run.startswith("made")]
    kinds = [
        "again: replay", "gpu: bench-gds", "ladder: validate", "layouts: bench", "layouts: bench",
        "model: wear", "path: capture", "path: replay",
    ]  # fmt: skip
    assert sorted(n.job for n in nights) == kinds
    assert all(n.good and (results / n.run / "run.json").is_file() for n in nights)
    assert {n.device for n in nights if n.job == "layouts: bench"} == {str(drives["b"])}
    assert all(n.metrics for n in nights), [n.job for n in nights if not n.metrics]
    assert not list((lab.folder / "a/.cache/kvflash-nightly").iterdir())

    words = ["nightly", "report", "--history", str(history.folder), "--recent", "2", "--json"]
    result = CliRunner().invoke(app, words)
    said = json.loads(result.stdout)
    assert (result.exit_code, said["verdict"], said["nights"]) == (1, "REGRESSED", 48)
    found = said["findings"][0]
    assert (found["kind"], found["host"], found["job"]) == ("regression", "b", "layouts: bench")
    assert found["after"] < found["before"] / 2
    assert (history.folder / "dashboard.html").read_text().count("<svg") == 2
