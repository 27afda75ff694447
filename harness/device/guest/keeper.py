"""A small process that holds QEMU and lets nothing survive the command that started it.

Run as ``python keeper.py PARENT_PID LIMIT_S STATE_DIR QEMU ARGS…``; it ends with QEMU's exit
status (128 + N for signal N), or 124 when the time limit passed. QEMU is killed when

* the parent process dies, also by ``kill -9`` (seen through a pidfd, immediately);
* this process dies, also by ``kill -9`` (PR_SET_PDEATHSIG);
* the time limit passes, or this process gets SIGTERM.

Standard library only: it runs isolated (``python -I``), in a session of its own, so that
Ctrl-C at the terminal reaches the harness alone and cleaning up stays in its hands.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1
TIMED_OUT = 124


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def keep(parent_fd: int, limit_s: float, argv: list[str], wake_fd: int) -> tuple[int, bool]:
    """Run ``argv`` until it ends or must end; (exit status, parent is gone)."""
    me = os.getpid()
    child = subprocess.Popen(
        argv, preexec_fn=lambda: _die_with(me), close_fds=False, stdin=subprocess.DEVNULL
    )
    child_fd = os.pidfd_open(child.pid)
    ready, _, _ = select.select([parent_fd, child_fd, wake_fd], [], [], limit_s)
    if child_fd not in ready:
        child.kill()
    status = child.wait()
    if not ready:
        return TIMED_OUT, False
    return (status if status >= 0 else 128 - status), parent_fd in ready


def main() -> int:
    """Entry point; see the module's docstring."""
    parent, limit_s, state, argv = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        parent_fd = os.pidfd_open(parent)
    except ProcessLookupError:
        shutil.rmtree(state, ignore_errors=True)
        return 1
    status, orphaned = keep(parent_fd, limit_s, argv, wake_read)
    if orphaned:
        shutil.rmtree(state, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
