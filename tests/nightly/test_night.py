"""Nights over real sshd instances, of which some go wrong in the ways that hosts do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from harness.cli.app import app
from harness.core.errors import MachineError
from harness.core.identity import code
from harness.nightly.health import parse_health
from harness.nightly.history import History
from harness.nightly.inventory import Limits, Window
from tests.nightly.conftest import JOB, inventory, night
from tests.nightly.hosts import TOP, Lab

pytestmark = pytest.mark.root


@pytest.mark.slow
def test_a_night_brings_runs_home_and_records_them(lab: Lab) -> None:
    hosts = [lab.host("a"), lab.host("b")]
    exit_code, data = night(lab, hosts)
    assert (exit_code, data["done"], data["failed"]) == (0, 2, 0)
    results = lab.folder / "results"
    for task, name in zip(data["tasks"], "ab", strict=True):
        assert task["runs"] == [f"20260101T0000-run-{name}"]
        assert json.loads((results / task["runs"][0] / "run.json").read_text())["state"] == "done"
        assert not list((lab.folder / name / ".cache/kvflash-nightly").iterdir())
    nights = History(results / "history").nights()
    assert {(n.host, n.job) for n in nights} == {("a", "whole: run"), ("b", "whole: run")}
    assert not list(results.glob(".incoming*"))
    assert (Path(data["night"]) / "logs/a-whole.log").read_text().startswith("arguments: run")


@pytest.mark.slow
def test_what_fails_on_one_host_is_its_failure_alone(lab: Lab) -> None:
    fill = 'head -c 4000000 /dev/zero > "$results/../big"; echo "cannot go on" >&2; exit 3'
    hosts = [
        lab.host("good"),
        lab.host("stranger", trusted=False),
        lab.host("shut", lets_in=False),
        lab.host("old", known_as="0.0.1 (code 000000000000)"),
        lab.host("full", disk="1m", behaviour=fill),
        lab.host("tiny", disk="64k"),
        {**lab.host("nosudo", user="lab"), "sudo": True},
        {**lab.host("bare"), "harness": "/no/such/harness"},
        lab.host("down"),
    ]
    lab.down("down")
    exit_code, data = night(lab, hosts)
    assert (exit_code, data["done"], data["failed"]) == (1, 1, 8)
    why = {task["host"]: task["why"] for task in data["tasks"]}
    assert why["good"] == ""
    assert "host key" in why["stranger"]
    assert "does not let root in" in why["shut"]
    assert "the harness there is 0.0.1 (code 000000000000), here it is" in why["old"]
    log = (Path(data["night"]) / "logs/full-whole.log").read_text()
    assert "No space left on device" in log  # said on a disk that was full
    assert why["full"] == "exit code 3: cannot go on"
    assert "no job can begin there" in why["tiny"]
    assert "No space left on device" in why["tiny"]
    assert "sudo is refused" in why["nosudo"]
    assert "does not start there" in why["bare"]
    assert "cannot connect" in why["down"]


@pytest.mark.slow
def test_a_user_with_sudo_gets_the_results_of_root(lab: Lab) -> None:
    host = lab.host("a", user="lab", sudoers="lab ALL=(root) NOPASSWD: ALL\n")
    exit_code, data = night(lab, [{**host, "sudo": True}])
    assert (exit_code, data["tasks"][0]["why"]) == (0, "")
    there = lab.folder / "a/.cache/kvflash-nightly"
    assert not list(there.iterdir())
    assert there.stat().st_uid == 61234  # nothing of root's is left in the user's home


@pytest.mark.slow
def test_a_job_past_its_time_or_its_window_is_ended_and_its_children_too(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = lab.folder / "survived"
    host = lab.host("a", behaviour=f"(sleep 9; touch {mark}) & wait")
    exit_code, data = night(lab, [host], {**JOB, "minutes": 0.04})
    assert (exit_code, data["tasks"][0]["why"]) == (1, "past its time: it was ended")
    ended_at = time.monotonic()
    window = {"start": "00:00", "end": "00:00"}
    closes = {"soon": lambda _, now: now + timedelta(seconds=3), "shut": lambda *_: None}
    monkeypatch.setattr(Window, "closes", closes["soon"])
    exit_code, data = night(lab, [host], window=window)
    assert (exit_code, data["tasks"][0]["why"]) == (1, "its window ended: it was stopped")
    monkeypatch.setattr(Window, "closes", closes["shut"])
    exit_code, data = night(lab, [host], window=window)
    task = data["tasks"][0]
    assert (exit_code, task["state"], task["why"]) == (1, "skipped", "its window is shut")
    time.sleep(max(0.0, ended_at + 9 - time.monotonic()))
    assert not mark.exists()


FAKE_NVME = """#!/bin/sh
echo '{{"temperature": '"$(cat {place}/kelvin)"', "percent_used": 3, "media_errors": 0}}'
"""
FAKE_LSBLK = """#!/bin/sh
echo '{"blockdevices": [{"path": "/dev/nvme7n1", "serial": "HOT1"}]}'
"""


@pytest.mark.slow
def test_a_hot_drive_is_not_written_to_and_one_that_becomes_hot_no_longer(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.nightly.hostnight._HEALTH_S", 1.0)
    place = lab.folder / "a"
    mark = place / "written"
    host = lab.host("a", behaviour=f"echo 360 > {place}/kelvin; sleep 30 & wait; touch {mark}")
    for name, text in (("nvme", FAKE_NVME.format(place=place)), ("lsblk", FAKE_LSBLK)):
        (place / "bin" / name).write_text(text)
        (place / "bin" / name).chmod(0o755)
    host["devices"] = [{"serial": "HOT1"}]
    job = {"name": "layouts", "kind": "bench", "devices": ["HOT1"]}
    (place / "kelvin").write_text("320")
    exit_code, data = night(lab, [host], job)
    task = data["tasks"][0]
    assert (exit_code, task["why"]) == (1, "ended: temperature 87 is above 75")
    assert task["health"]["before"]["temperature_c"] == 47
    assert task["health"]["after"]["temperature_c"] == 87
    exit_code, data = night(lab, [host], job)
    assert (exit_code, data["tasks"][0]["why"]) == (1, "not written to: temperature 87 is above 75")
    assert not mark.exists()


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
    job = {"name": "path", "kind": "capture-replay", "devices": ["S1"]}
    path.write_text(yaml.safe_dump({"hosts": [host], "jobs": [job]}))
    words = ["nightly", "run", str(path), "--dry-run", "--results", str(tmp_path / "results")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    assert "OVERWRITES the drive with serial S1" in result.stdout
    assert "replay <captured trace> --mode=timed" in result.stdout
    (task,) = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["tasks"]
    assert task["overwrites"] == "S1"
    assert [command[1] for command in task["commands"]] == ["capture", "replay"]
    assert not (tmp_path / "results").exists()


# The checkout may be edited between the start of this process and that of the other.
_DRIVER = """import sys
from harness.core import identity
code = sys.argv.pop(1)
identity.code = lambda: code
from harness.cli.app import main
main()"""


def start(lab: Lab, path: Path, said: Path) -> subprocess.Popen[bytes]:
    """A night in a process of its own, which writes what it says to ``said``."""
    words = [sys.executable, "-c", _DRIVER, code(), "nightly", "run", str(path)]
    with said.open("wb") as file:
        return subprocess.Popen(
            [*words, "--results", str(lab.folder / "results")], cwd=TOP,
            env={**os.environ, "HOME": str(lab.folder / "home")}, stdout=file, stderr=file,
        )  # fmt: skip


def until(what: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert what()


@pytest.mark.slow
def test_two_nights_at_once_share_history_and_never_meet_on_a_device(lab: Lab) -> None:
    """One of them gets the device, the other says so; what needs no device runs in both."""
    image, inside, free = (lab.folder / name for name in ("drive.img", "inside", "free"))
    with image.open("wb") as file:
        file.truncate(16 << 20)
    behaviour = (
        f'case "$*" in *--destroy=*) mkdir {inside} || exit 9\n'
        f"  n=0; until [ -e {free} ] || [ $n -gt 900 ]; do sleep 0.1; n=$((n + 1)); done\n"
        f"  rmdir {inside};; esac\n"
        f'mkdir -p "$results"; cp -r {lab.made} "$results/$(date +%s%N)-run-$$"; exit'
    )
    host = lab.host("a", behaviour=behaviour)
    attach = ["losetup", "--find", "--show", str(image)]
    path = subprocess.run(attach, capture_output=True, text=True, check=True).stdout.strip()
    said = [lab.folder / f"said-{number}" for number in range(2)]
    try:
        host["devices"] = [{"serial": str(image)}]
        bench = {"name": "layouts", "kind": "bench", "devices": [str(image)]}
        file_ = inventory(lab, [host], bench, JOB)
        nights = [start(lab, file_, one) for one in said]
        until(lambda: any("another run holds its lock" in one.read_text() for one in said))
        assert inside.exists()
        free.touch()
        codes = sorted(one.wait(120) for one in nights)
    finally:
        subprocess.run(["losetup", "--detach", path], check=True)
    assert codes == [0, 1], [one.read_text() for one in said]
    records = [json.loads(p.read_text()) for p in lab.folder.glob("results/*/nightly.json")]
    layouts = sorted(record["tasks"][0]["why"] for record in records)
    assert layouts == ["", "another run holds its lock"]
    assert [record["tasks"][1]["state"] for record in records] == ["done", "done"]
    assert len(History(lab.folder / "results/history").nights()) == 3
    logs = [p.read_text() for p in lab.folder.glob("results/*/logs/*layouts*.log")]
    assert sum(f"--device={path} --destroy={image}" in log for log in logs) == 1
    assert "a: a-whole: begins" in said[0].read_text().splitlines()


@pytest.mark.slow
def test_ctrl_c_ends_the_jobs_on_the_hosts(lab: Lab) -> None:
    mark, began = lab.folder / "mark", lab.folder / "began"
    host = lab.host("a", behaviour=f"touch {began}; sleep 12 & wait; touch {mark}")
    process = start(lab, inventory(lab, [host]), lab.folder / "said")
    try:
        until(began.exists)
        ended_at = time.monotonic() + 12
        process.send_signal(signal.SIGINT)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "interrupted" in (lab.folder / "said").read_text()
    time.sleep(max(0.0, ended_at - time.monotonic()))
    assert not mark.exists()
    (partial,) = (lab.folder / "results").iterdir()
    assert partial.name.endswith("nightly.partial")
