"""Talking to a GPU worker: one JSON line there, one back, with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.bench.gpumodes import environment
from harness.core.errors import MeasurementError

START_S = 120.0
ANSWER_S = 300.0


class GpuProcess:
    """A worker of one mode. Use as a context manager; MeasurementError when it fails.

    ``command`` replaces the worker for tests.
    """

    def __init__(
        self, mode: str, path: str, threads: int, task_bytes: int,
        command: list[str] | None = None,
    ) -> None:  # fmt: skip
        self._folder = tempfile.TemporaryDirectory(prefix="harness-gds-")
        asked = environment(mode, Path(self._folder.name), threads, task_bytes)
        self._errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 (lives as long as we)
        self._child = subprocess.Popen(
            command or [sys.executable, "-m", "harness.bench.gdsworker", mode, path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env={**os.environ, **asked}, start_new_session=True,
        )  # fmt: skip
        try:
            self.gpu = str(self._line(START_S)["ready"])
        except BaseException:
            self.close()
            raise

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The worker's answer to ``request``."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            raise MeasurementError(f"the GPU worker ended: {self._last_words()}") from None
        return self._line(ANSWER_S)

    def close(self) -> None:
        """End the worker."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._errors.close()
        self._folder.cleanup()

    def __enter__(self) -> GpuProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _line(self, timeout_s: float) -> dict[str, Any]:
        assert self._child.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._child.stdout, selectors.EVENT_READ)
            if not waiting.select(timeout_s):
                raise MeasurementError(f"the GPU worker did not answer within {timeout_s:.0f} s")
        line = self._child.stdout.readline()
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            raise MeasurementError(f"the GPU worker ended: {self._last_words()}") from None
        if "error" in answer:
            raise MeasurementError(answer["error"])
        return answer

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(5)
        self._errors.seek(0)
        said = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return said[-1] if said else f"exit code {self._child.returncode}"
