"""A capture around work in this process or another: ``Capture``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from harness.capture.options import TraceOptions
from harness.capture.probe import LocalProbe
from harness.core.errors import HarnessError, MachineError, MeasurementError

# Arrow's own pools keep what they once had. Each batch needs the same few MiB again: left to
# itself, malloc gives them back to the kernel and has them cleared anew, a tenth of the time. What
# one thread allocates another frees, so that they share one arena.
ALLOCATOR = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(16 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(32 << 20),
}


class Probe(Protocol):
    """Where the stream comes from: this host (``LocalProbe``) or another."""

    @property
    def stdout(self) -> Any: ...

    def stop(self) -> None: ...

    def messages(self) -> str: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class CaptureResult:
    """What a capture says of itself; ``details`` holds the whole of it, as ``--json`` prints it.

    ``lost`` counts issues that are missing from the trace, ``completions_lost`` requests whose
    latency is null for that reason.
    """

    verdict: str
    requests: int
    events: int
    lost: int
    completions_lost: int
    trace: Path
    duration_s: float
    details: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The contract's fields first, then all others."""
        return self.details

    @property
    def summary(self) -> str:
        """LOSSLESS, LOSSY(n) or UNKNOWN."""
        return f"LOSSY({self.lost})" if self.verdict == "LOSSY" else self.verdict


class Capture:
    """Trace block devices while the ``with`` block runs.

    ``result`` is there once the block has been left, also when it was left by an exception.

    Parameters
    ----------
    options
        What to trace; a path stands for that device and all that it does.
    out
        The trace file to write.
    command
        What is being traced, for the metadata.
    host
        "user@host" whose devices to trace, over SSH; by default this host's.

    Raises
    ------
    UsageError
        No such device, or a filter that makes no sense.
    MachineError
        Not root, no bcc, no headers, no tracepoints, disk full.
    MeasurementError
        The probe or the recorder died; what was recorded is in ``OUT.parts/``.
    """

    def __init__(
        self,
        options: TraceOptions | str,
        out: str | Path,
        *,
        command: str = "",
        host: str | None = None,
    ) -> None:
        self._options = TraceOptions((options,)) if isinstance(options, str) else options
        self._out = Path(out)
        self._command = command
        self._host = host
        self._probe: Probe | None = None
        self._recorder: subprocess.Popen[str] | None = None
        self._begun_s = 0.0
        self.hello: dict[str, Any] = {}
        self.result: CaptureResult | None = None

    def __enter__(self) -> Capture:
        self._out.parent.mkdir(parents=True, exist_ok=True)
        self._probe = self._start_probe()
        try:
            self._recorder = subprocess.Popen(
                self._recorder_words(),
                stdin=self._probe.stdout,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **ALLOCATOR},
                start_new_session=True,
            )
            self._probe.stdout.close()
            self.hello = self._next("ready")
        except BaseException:
            self._probe.close()
            if self._recorder is not None:
                self._recorder.wait()
            raise
        self._begun_s = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._probe is not None and self._recorder is not None
        duration_s = time.monotonic() - self._begun_s
        try:
            self._probe.stop()
            details = self._next("result")
            self.result = _as_result(details, duration_s)
        except HarnessError:
            if error is None:
                raise
        finally:
            self._probe.close()
            self._recorder.wait()
            assert self._recorder.stdout is not None
            self._recorder.stdout.close()

    def _start_probe(self) -> Probe:
        if self._host is None:
            return LocalProbe(self._options)
        from harness.capture.remote import RemoteProbe  # paramiko takes its time

        return RemoteProbe(self._options, self._host)

    @property
    def probe(self) -> Probe:
        """The probe that is being read; AssertionError before the block is entered."""
        assert self._probe is not None
        return self._probe

    @property
    def recorder_pid(self) -> int:
        """Process id of the recorder; AssertionError before the block is entered."""
        assert self._recorder is not None
        return self._recorder.pid

    def alive(self) -> bool:
        """Whether the probe and the recorder are still at work."""
        return self._recorder is not None and self._recorder.poll() is None

    def _recorder_words(self) -> list[str]:
        words = [sys.executable, "-m", "harness.capture.record_main", "--out", str(self._out)]
        words += ["--command", self._command]
        words += ["--segment-s", str(self._options.segment_s)]
        return words + (["--bios"] if self._options.bios else [])

    def _next(self, wanted: str) -> dict[str, Any]:
        """The recorder's next message; its error as the exception it stands for."""
        assert self._probe is not None and self._recorder is not None
        assert self._recorder.stdout is not None
        line = self._recorder.stdout.readline()
        message: dict[str, Any] = json.loads(line) if line else {}
        if wanted in message:
            content: dict[str, Any] = message[wanted]
            return content
        said = self._probe.messages()
        if "error" not in message:
            raise MeasurementError(
                "the recorder died",
                fix=f"save what it had: harness trace recover {self._out}.parts {self._out}",
            )
        if said.startswith("sudo:"):
            raise MachineError(
                f"loading the probe needs root, and sudo says: {said.splitlines()[0]}",
                fix="run as root, or let this user run sudo without a password",
            )
        text = message["error"] + (f"\n{said}" if said else "")
        failure = HarnessError(text, fix=message["fix"])
        failure.exit_code = message["code"]
        raise failure


def _as_result(details: dict[str, Any], duration_s: float) -> CaptureResult:
    first = ("verdict", "requests", "events", "lost", "completions_lost", "trace")
    ordered = {name: details[name] for name in first}
    ordered["duration_s"] = duration_s
    ordered.update((name, value) for name, value in details.items() if name not in first)
    return CaptureResult(
        verdict=details["verdict"],
        requests=details["requests"],
        events=details["events"],
        lost=details["lost"],
        completions_lost=details["completions_lost"],
        trace=Path(details["trace"]),
        duration_s=duration_s,
        details=ordered,
    )
