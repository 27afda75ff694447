"""What runs while a capture is on: a command, a span of time, or a process that already exists."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.core.errors import UsageError

_GRACE_S = 5.0
_LOOK_S = 0.1


def check_command(words: Sequence[str]) -> None:
    """UsageError if the command cannot be started; asked before a probe is loaded for it."""
    if shutil.which(words[0]) is None:
        raise UsageError(f"cannot run {words[0]!r}: no such command")


def run_command(words: Sequence[str], *, quiet_stdout: bool = False) -> int:
    """Run a command to its end; its exit status, 128 + n where signal n ended it.

    ``quiet_stdout`` sends its standard output to ours of errors. An exception (Ctrl-C, SIGTERM)
    ends the command, politely first.
    """
    try:
        child = subprocess.Popen(list(words), stdout=sys.stderr if quiet_stdout else None)
    except OSError as error:
        raise UsageError(f"cannot run {words[0]!r}: {error.strerror}") from error
    try:
        status = child.wait()
    except BaseException:
        _end(child)
        raise
    return 128 - status if status < 0 else status


def _end(child: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is None:
            child.send_signal(number)
        try:
            child.wait(_GRACE_S)
            return
        except subprocess.TimeoutExpired:
            continue


def wait_for(
    seconds: float | None,
    pids: Sequence[int],
    alive: Callable[[], bool],
    progress: Callable[[float], None] = lambda waited_s: None,
) -> None:
    """Wait until ``seconds`` have passed, all of ``pids`` are gone, or ``alive`` says no.

    With no ``seconds`` and no ``pids`` only Ctrl-C ends it.
    """
    begun = time.monotonic()
    while alive():
        waited = time.monotonic() - begun
        progress(waited)
        if seconds is not None and waited >= seconds:
            return
        if pids and not any(_lives(pid) for pid in pids):
            return
        left = _LOOK_S if seconds is None else min(_LOOK_S, seconds - waited)
        time.sleep(max(left, 0.0))


def _lives(pid: int) -> bool:
    """Whether any thread of a process runs; one that has ended may wait for its parent to look."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False
