"""What a capture waits for."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from harness.capture.command import check_command, run_command, wait_for
from harness.core.errors import UsageError


def test_a_process_that_its_parent_forgot_has_ended() -> None:
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # now it is a zombie, and stays one
    looks = []
    try:
        assert os.path.exists(f"/proc/{ended.pid}")
        wait_for(None, [ended.pid], lambda: looks.append(1) is None and len(looks) < 50)
    finally:
        ended.wait()
    assert len(looks) == 1


def test_a_process_that_lives_is_waited_for() -> None:
    with subprocess.Popen(["sleep", "0.3"]) as lives:
        began = time.monotonic()
        wait_for(None, [lives.pid], lambda: True)
    assert time.monotonic() - began > 0.2


def test_seconds_end_it_before_the_process() -> None:
    with subprocess.Popen(["sleep", "60"]) as lives:
        wait_for(0.1, [lives.pid], lambda: True)
        assert lives.poll() is None
        lives.kill()


@pytest.mark.parametrize(("words", "status"), [(["true"], 0), (["sh", "-c", "kill -9 $$"], 137)])
def test_the_status_is_the_shells(words: list[str], status: int) -> None:
    assert run_command(words) == status


def test_a_command_is_looked_for_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="no such command"):
        check_command(["no-such-command"])
