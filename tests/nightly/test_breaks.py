"""Connections that break, hosts that reboot or stay away: what goes on, and what is said."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import MeasurementError
from harness.nightly.remote import Remote
from tests.nightly.conftest import night
from tests.nightly.hosts import Lab

pytestmark = pytest.mark.root

SLOW = 'for i in 1 2 3 4 5 6 7 8; do echo "part $i" >&2; sleep 1; done'


def during(lab: Lab, host: str, then: Any) -> threading.Thread:
    """Call ``then`` once the host's job is in the middle."""

    def wait() -> None:
        deadline = time.monotonic() + 60
        said = ""
        while "part 3" not in said and time.monotonic() < deadline:
            time.sleep(0.1)
            found = list((lab.folder / host / ".cache").glob("kvflash-nightly/job-*/stderr"))
            said = found[0].read_text() if found else ""
        then()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_job_goes_on_when_the_connection_breaks_and_is_heard_to_the_end(lab: Lab) -> None:
    host, cut = lab.host("a", behaviour=SLOW), []
    thread = during(lab, "a", lambda: cut.append(lab.cut("a")))
    code, data = night(lab, [host])
    thread.join()
    assert cut and cut[0] >= 1
    assert (code, data["tasks"][0]["why"]) == (0, "")
    log = (Path(data["night"]) / "logs/a-whole.log").read_text().splitlines()
    assert log[1:] == [f"part {i}" for i in range(1, 9)]  # nothing lost, nothing twice
    assert data["tasks"][0]["runs"] == ["20260101T0000-run-a"]


@pytest.mark.slow
def test_a_reboot_in_the_middle_fails_that_job_and_the_next_one_runs(lab: Lab) -> None:
    host = lab.host("a", own_processes=True, behaviour=f"case $1 in run) {SLOW};; esac")

    def reboot() -> None:
        lab.down("a")
        (lab.folder / "a/boot_id").write_text("another-boot\n")
        time.sleep(1)
        lab.boot("a")

    thread = during(lab, "a", reboot)
    jobs = (
        {"name": "whole", "kind": "run", "minutes": 5},
        {"name": "model", "kind": "wear", "store": "x"},
    )
    code, data = night(lab, [host], *jobs)
    thread.join()
    assert (code, [task["state"] for task in data["tasks"]]) == (1, ["failed", "done"])
    assert data["tasks"][0]["why"] == "the host rebooted in the middle of it"


@pytest.mark.slow
def test_a_host_that_stays_away_is_given_up_and_the_others_are_not(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.nightly.night.PATIENCE_S", 4.0)
    hosts = [lab.host("a", own_processes=True, behaviour=SLOW), lab.host("b")]
    thread = during(lab, "a", lambda: lab.down("a"))
    code, data = night(lab, hosts)
    thread.join()
    assert (code, [task["state"] for task in data["tasks"]]) == (1, ["failed", "done"])
    assert "was out of reach for" in data["tasks"][0]["why"]
    assert "job-" in data["tasks"][0]["why"]


def test_fetching_goes_on_where_it_was_and_checks_hashes(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = lab.host("a")
    monkeypatch.setenv("HOME", str(lab.folder / "home"))
    there = lab.folder / "a/out"
    (there / "sub dir").mkdir(parents=True)
    (there / "sub dir/x").write_bytes(b"x" * 100_000)
    (there / "y").write_bytes(b"whole")
    here = lab.folder / "here"
    remote = Remote(str(host["address"]))
    asked: list[int] = []
    original = remote._copy

    def copy(source: str, target: Path, start: int) -> None:
        asked.append(start)
        original(source, target, start)

    monkeypatch.setattr(remote, "_copy", copy)
    try:
        remote.fetch("out", here)
        assert asked == [0, 0]
        (here / "sub dir/x").write_bytes(b"x" * 500)  # torn
        (here / "y").write_bytes(b"wrong and longer")
        remote.fetch("out", here)
        assert asked[2:] == [500, 16, 0] or asked[2:] == [16, 0, 500]
        assert (here / "sub dir/x").read_bytes() == b"x" * 100_000
        assert (here / "y").read_bytes() == b"whole"
        remote.fetch("out", here)
        assert len(asked) == 5  # what is whole is not sent again
        (there / "odd\nname").touch()
        with pytest.raises(MeasurementError, match="odd name"):
            remote.fetch("out", here)
    finally:
        remote.close()
