"""Steps that signals must not cut in two."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from harness.core.signals import uninterrupted


def test_ctrl_c_comes_after_the_block() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        steps.append("first")
        os.kill(os.getpid(), signal.SIGINT)
        steps.append("second")
    assert steps == ["first", "second"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nothing_happens_without_a_signal() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with uninterrupted():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_error_in_the_block_passes() -> None:
    with pytest.raises(ZeroDivisionError), uninterrupted():
        _ = 1 // 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_default_action_is_taken_late() -> None:
    program = (
        "import os, signal\n"
        "from harness.core.signals import uninterrupted\n"
        "with uninterrupted():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print('whole', flush=True)\n"
        "print('never')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == -signal.SIGTERM
    assert done.stdout == b"whole\n"


def test_other_threads_may_use_it() -> None:
    ran = []

    def work() -> None:
        with uninterrupted():
            ran.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ran == [True]
