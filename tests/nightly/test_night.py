"""Nights over real sshd instances, of which some go wrong in the ways that hosts do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from harness.cli.app import app
from harness.core.errors import MachineError, MeasurementError
from harness.device.loop import LoopDevice
from harness.nightly.history import History
from harness.nightly.inventory import Limits
from harness.nightly.remote import Remote, parse_health
from tests.nightly.hosts import SSHD, Lab

pytestmark = pytest.mark.root

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    if SSHD is None:
        pytest.skip("openssh-server is not installed")
    made = not Path("/run/sshd").exists()
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    found = Lab(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    try:
        yield found
    finally:
        found.close()
        if made:
            Path("/run/sshd").rmdir()


JOB = {"name": "whole", "kind": "run", "minutes": 5}


def night(lab: Lab, hosts: list[dict[str, Any]], *jobs: dict[str, Any]) -> tuple[int, Any]:
    """A night with ``jobs``; its exit code and ``--json``."""
    path = lab.folder / "nightly.yaml"
    path.write_text(yaml.safe_dump({"hosts": hosts, "jobs": list(jobs) or [JOB]}))
    words = ["nightly", "run", str(path), "--results", str(lab.folder / "results"), "--json"]
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.slow
def test_a_night_brings_runs_home_and_records_them(lab: Lab) -> None:
    hosts = [lab.host("a"), lab.host("b")]
    code, data = night(lab, hosts)
    assert (code, data["done"], data["failed"]) == (0, 2, 0)
    results = lab.folder / "results"
    for task, name in zip(data["tasks"], "ab", strict=True):
        assert task["runs"] == [f"20260101T0000-run-{name}"]
        assert json.loads((results / task["runs"][0] / "run.json").read_text())["state"] == "done"
        assert not list((lab.folder / name / ".cache/kvflash-nightly").iterdir())
    assert len(History(results / "history").nights()) == 2
    assert not list(results.glob(".incoming*"))
    assert (Path(data["night"]) / "logs/a-whole.log").read_text().startswith("arguments: run")


@pytest.mark.slow
def test_what_fails_on_one_host_is_its_failure_alone(lab: Lab) -> None:
    hosts = [
        lab.host("good"),
        lab.host("stranger", trusted=False),
        lab.host("shut", lets_in=False),
        lab.host("old", version="0.0.1"),
        lab.host("full", behaviour="raise SystemExit('No space left on device')"),
        {**lab.host("nosudo"), "sudo": True, "harness": "/no/such/harness"},
        lab.host("down"),
    ]
    lab.processes[-1].terminate()
    lab.processes[-1].wait()
    code, data = night(lab, hosts)
    assert (code, data["done"], data["failed"]) == (1, 1, 6)
    why = {task["host"]: task["why"] for task in data["tasks"]}
    assert why["good"] == ""
    assert "host key" in why["stranger"]
    assert "does not let root in" in why["shut"]
    assert "0.0.1" in why["old"]
    assert "No space left on device" in why["full"]
    assert "does not start there" in why["nosudo"]
    assert "cannot connect" in why["down"]


@pytest.mark.slow
def test_a_job_past_its_time_is_ended_and_its_children_too(lab: Lab) -> None:
    mark = lab.folder / "survived"
    slow = f"time.sleep(8); pathlib.Path({str(mark)!r}).touch()"
    code, data = night(lab, [lab.host("a", behaviour=slow)], {**JOB, "minutes": 0.04})
    assert code == 1
    assert "past its time" in data["tasks"][0]["why"]
    time.sleep(7)
    assert not mark.exists()


@pytest.mark.slow
def test_two_nights_never_meet_on_a_device(lab: Lab) -> None:
    host = lab.host("a", behaviour="time.sleep(4)")
    with LoopDevice(16 << 20, lab.folder) as loop:
        backing = subprocess.run(
            ["losetup", "-n", "-O", "BACK-FILE", loop.path], capture_output=True, text=True,
            check=True,
        ).stdout.strip()  # fmt: skip
        host["devices"] = [{"serial": backing}]
        job = {"name": "layouts", "kind": "bench", "devices": [backing]}
        first: list[Any] = []
        lab2 = threading.Thread(target=lambda: first.append(_hold(host, backing)))
        lab2.start()
        try:
            time.sleep(1.5)
            code, data = night(lab, [host], job)
        finally:
            lab2.join()
        assert first == [0]
        assert (code, data["tasks"][0]["why"]) == (1, "another run holds its lock")
        code, data = night(lab, [host], job)
        assert (code, data["failed"]) == (0, 0)
        (log,) = (Path(data["night"]) / "logs").iterdir()
        assert f"--device={loop.path} --destroy={backing}" in log.read_text()


def _hold(host: dict[str, Any], lock: str) -> int:
    remote = Remote(host["address"])
    try:
        with (Path(host["harness"]).parent / "held.log").open("wb") as log:
            return remote.job(["sleep", "12"], lock, 1, log).code
    finally:
        remote.close()


def test_a_broken_connection_ends_the_job_there(lab: Lab) -> None:
    host = lab.host("a")
    mark = lab.folder / "mark"
    remote = Remote(str(host["address"]))
    threading.Timer(2.0, remote.close).start()
    script = f"sleep 6; touch {mark}"
    with (lab.folder / "log").open("wb") as log, pytest.raises(MachineError, match="broke"):
        remote.job(["sh", "-c", script], "x", 1, log)
    time.sleep(6)
    assert not mark.exists()


def test_fetching_sends_what_is_missing_or_torn_and_checks_hashes(lab: Lab) -> None:
    host = lab.host("a")
    there = lab.folder / "a/out"
    (there / "sub dir").mkdir(parents=True)
    (there / "sub dir/x").write_bytes(b"x" * 100_000)
    (there / "y").write_bytes(b"whole")
    here = lab.folder / "here"
    remote = Remote(str(host["address"]))
    try:
        remote.fetch("out", here)
        inode = (here / "y").stat().st_mtime_ns
        (here / "sub dir/x").write_bytes(b"x" * 500)
        remote.fetch("out", here)
        assert (here / "sub dir/x").read_bytes() == b"x" * 100_000
        assert (here / "y").stat().st_mtime_ns == inode
        (there / "odd\nname").touch()
        with pytest.raises(MeasurementError, match="odd name"):
            remote.fetch("out", here)
    finally:
        remote.close()


def test_a_drive_past_its_limits_is_named() -> None:
    health = parse_health(b'{"temperature": 353, "percent_used": 95, "media_errors": 2}')
    assert health.beyond(Limits()) == [
        "temperature 80 is above 75",
        "percentage used 95 is above 90",
        "media errors 2 is above 0",
    ]
    assert health.beyond(Limits(temperature_c=80, percentage_used=95, media_errors=2)) == []
    with pytest.raises(MachineError, match="no JSON"):
        parse_health(b"nvme: not found")


def test_a_dry_run_touches_nothing_and_names_what_would_be_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "nightly.yaml"
    host = {"name": "nowhere.invalid", "devices": [{"serial": "S1"}]}
    job = {"name": "layouts", "kind": "bench", "devices": ["S1"]}
    path.write_text(yaml.safe_dump({"hosts": [host], "jobs": [job]}))
    words = ["nightly", "run", str(path), "--dry-run", "--results", str(tmp_path / "results")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    assert "OVERWRITES the drive with serial S1" in result.stdout
    assert (
        json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["tasks"][0]["overwrites"]
        == "S1"
    )
    assert not (tmp_path / "results").exists()


GRID = """
name: tiny
seed: 1
repeats: 3
max_repeats: 3
sample_seconds: 0.1
budget_s: 10
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


@pytest.mark.slow
def test_the_real_harness_benches_a_drive_by_its_serial(lab: Lab) -> None:
    host = lab.host("a")
    stub = lab.folder / "a/harness"
    stub.write_text(f'#!/bin/sh\nPYTHONPATH={TOP} exec {sys.executable} -m harness "$@"\n')
    image, grid = lab.folder / "drive.img", lab.folder / "tiny.yaml"
    image.touch()
    os.truncate(image, 512 << 20)
    grid.write_text(GRID)
    attach = ["losetup", "--find", "--show", str(image)]
    path = subprocess.run(attach, capture_output=True, text=True, check=True).stdout.strip()
    try:
        host["devices"] = [{"serial": str(image)}]
        job = {"name": "layouts", "kind": "bench", "grid": str(grid), "devices": [str(image)]}
        code, data = night(lab, [host], job)
    finally:
        subprocess.run(["losetup", "--detach", path], check=True)
    assert (code, data["tasks"][0]["why"]) == (0, "")
    (recorded,) = History(lab.folder / "results/history").nights()
    assert [recorded.run] == data["tasks"][0]["runs"]
    assert recorded.software["fio"]
    bandwidths = [m.value for m in recorded.metrics if m.unit == "GB/s" and m.better == 1]
    assert bandwidths
    assert min(bandwidths) > 0


@pytest.mark.slow
def test_ctrl_c_ends_the_jobs_on_the_hosts(lab: Lab) -> None:
    mark, began = lab.folder / "mark", lab.folder / "began"
    slow = (
        f"pathlib.Path({str(began)!r}).touch(); time.sleep(15); pathlib.Path({str(mark)!r}).touch()"
    )
    path = lab.folder / "nightly.yaml"
    path.write_text(yaml.safe_dump({"hosts": [lab.host("a", behaviour=slow)], "jobs": [JOB]}))
    words = [sys.executable, "-m", "harness", "nightly", "run", str(path)]
    process = subprocess.Popen(
        [*words, "--results", str(lab.folder / "results")],
        cwd=TOP, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not began.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "interrupted" in said
    time.sleep(15)
    assert not mark.exists()
    assert [p.name.endswith("nightly.partial") for p in (lab.folder / "results").iterdir()] == [
        True
    ]
