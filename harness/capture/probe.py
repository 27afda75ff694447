"""The loader on this host: the only privileged process of a capture."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from typing import IO

from harness.capture.options import TraceOptions
from harness.core.assets import asset_dir
from harness.core.errors import MachineError

SYSTEM_PYTHON = "/usr/bin/python3"
_STOP_TIMEOUT_S = 30.0


class LocalProbe:
    """A running loader. ``stdout`` carries its stream; ``stop`` ends it in good order."""

    def __init__(self, options: TraceOptions) -> None:
        if not os.path.exists(SYSTEM_PYTHON):
            raise MachineError(
                f"{SYSTEM_PYTHON} is missing", fix="apt-get install python3 python3-bpfcc"
            )
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            [*_as_root(), SYSTEM_PYTHON, "-B", str(asset_dir("ebpf") / "loader.py"),
             *options.loader_words()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,  # a Ctrl-C is ours to handle
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """Process id of the loader (of sudo, where that was needed)."""
        return self._process.pid

    @property
    def stdout(self) -> IO[bytes]:
        """The stream's end; close it once another process has it."""
        assert self._process.stdout is not None
        return self._process.stdout

    def stop(self) -> None:
        """Ask the loader to stop; harmless when it has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def wait(self) -> int:
        """Wait for the end after ``stop``; kills a loader that does not end."""
        try:
            return self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def messages(self) -> str:
        """The end of what the loader said on stderr."""
        self._stderr.seek(0)
        return self._stderr.read().decode("utf-8", "replace")[-2000:].strip()

    def close(self) -> None:
        """Stop, wait, and give everything back."""
        self.stop()
        self.wait()
        self.stdout.close()
        self._stderr.close()


def _as_root() -> list[str]:
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        raise MachineError("loading the probe needs root", fix="run as root, or install sudo")
    return ["sudo", "-n"]
