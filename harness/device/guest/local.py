"""A drive of this very machine as an ``OpsMachine``: the same op lists, the same counters."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from harness.core.errors import MeasurementError
from harness.device.counter_reader import run_here
from harness.device.guest.session import Completed


class LocalDrive:
    """``device``, named a second time by ``destroy``; the guard of the worker decides."""

    def __init__(self, device: str, destroy: str) -> None:
        self.device, self.destroy = device, destroy
        self.python = (sys.executable,)
        self.runner = run_here
        self._folder = tempfile.TemporaryDirectory(prefix="harness-drive-")
        self.scratch = self._folder.name

    def __enter__(self) -> LocalDrive:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def run(self, argv: Sequence[str], *, timeout_s: float = 120.0) -> Completed:
        """Run a command; MeasurementError with the end of what it said if it fails."""
        try:
            done = subprocess.run(
                list(argv), capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout_s,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise MeasurementError(f"{self.device}: not done after {timeout_s:.0f} s") from error
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise MeasurementError("\n".join(said[-8:]) or f"status {done.returncode}")
        return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)

    def put(self, local: Path, remote: str) -> None:
        """Copy a file into the scratch folder."""
        shutil.copyfile(local, remote)
