"""fio by subprocess: find it, run it, and take nothing of what it says on trust.

fio reports success for I/O that did not happen, so callers compare what it counted with what
they asked for (``fiojobs``).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import MachineError, MeasurementError

OLDEST = (3, 28)
"""Older releases lack ``replay_no_stall`` fixes and json+ percentiles as parsed here."""

HANGS_WITH_URING = (3, 41)
"""From here on a log replayed by io_uring may spin for ever when nothing is in flight."""


@dataclass(frozen=True)
class Fio:
    """A usable fio: its path, version text and version numbers."""

    path: str
    text: str
    version: tuple[int, ...]

    def log_engine(self) -> str:
        """The engine that replays logs without a known fault in this version."""
        return "libaio" if self.version >= HANGS_WITH_URING else "io_uring"


@dataclass(frozen=True)
class FioResult:
    """What one fio run did. ``counted_bytes`` over ``seconds`` is the bandwidth."""

    counted_bytes: int
    commands: int
    seconds: float
    latency_us: dict[str, float] | None
    cpu_seconds: float
    engine: str

    @property
    def gbps(self) -> float:
        """Decimal gigabytes a second."""
        return self.counted_bytes / self.seconds / 1e9


def find_fio() -> Fio:
    """The fio on PATH; MachineError when missing or too old to be trusted."""
    path = shutil.which("fio")
    if path is None:
        raise MachineError("fio is not installed", fix="apt-get install fio")
    asked = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return parse_version(path, asked.stdout.strip())


def parse_version(path: str, text: str) -> Fio:
    """``fio-3.33`` and ``fio-3.40-12-gabc`` -> Fio; MachineError if unusable."""
    match = re.match(r"fio-(\d+)\.(\d+)", text)
    if match is None:
        raise MachineError(
            f"{path} --version said {text!r}, not fio-N.M", fix="install fio >= 3.28"
        )
    version = tuple(int(part) for part in match.groups())
    if version < OLDEST:
        raise MachineError(
            f"{text} is too old: known faults in log replay", fix="install fio >= 3.28"
        )
    return Fio(path, text, version)


def run_fio(fio: Fio, words: Sequence[str], folder: Path, timeout_s: float) -> dict[str, Any]:
    """Run one job; its first job record. Kills fio when interrupted or late."""
    output = folder / "out.json"
    command = [
        fio.path, "--name=cell", "--thread", "--direct=1", *words,
        "--output-format=json+", f"--output={output}",
    ]  # fmt: skip
    child = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True, env=_environment(),
    )  # fmt: skip
    try:
        said, _ = child.communicate(timeout=timeout_s)
    except BaseException as error:
        child.kill()  # fio runs its jobs as threads; harmless when it has just ended
        child.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise MeasurementError(f"fio did not end within {timeout_s:.0f} s") from error
        raise
    if child.returncode < 0:
        raise MeasurementError(f"fio was killed ({signal.Signals(-child.returncode).name})")
    if child.returncode:
        raise MeasurementError(f"fio failed: {_last_words(said) or child.returncode}")
    return read_output(output)


def read_output(path: Path) -> dict[str, Any]:
    """The first job of an output file; MeasurementError when it is cut off or empty."""
    try:
        text = path.read_text()
        # fio prints notes into the same file, ahead of the JSON.
        job: dict[str, Any] = json.loads(text[text.index("{") :])["jobs"][0]
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise MeasurementError(f"fio's JSON result is cut off or empty: {error}") from error
    return job


def _environment() -> dict[str, str]:
    """Let fio's buffers lie on huge pages, as our ring's and a server's pinned ones do.

    On ordinary pages a 1 MiB read has 256 segments, is split by the block layer, and a loop
    device gives half the bandwidth. glibc 2.35 and newer know this; others ignore it.
    """
    given = os.environ.get("GLIBC_TUNABLES")
    tunables = ":".join(filter(None, (given, "glibc.malloc.hugetlb=1")))
    return {**os.environ, "GLIBC_TUNABLES": tunables}


def _last_words(said: str) -> str:
    return "; ".join(line.strip() for line in said.splitlines() if line.strip())[-300:]


def parse_job(job: dict[str, Any], direction: str, engine: str) -> FioResult:
    """One job of fio's json+ -> FioResult; ``direction`` is read, write or both."""
    sides = [job[name] for name in (("read", "write") if direction == "both" else (direction,))]
    if job["error"]:
        raise MeasurementError(f"fio: error {job['error']} ({os.strerror(job['error'])})")
    short = sum(side["short_ios"] + side["drop_ios"] for side in sides)
    if short:
        raise MeasurementError(f"fio: {short} short or dropped reads")
    seconds = max(side["runtime"] for side in sides) / 1e3
    counted = sum(side["io_bytes"] for side in sides)
    if counted == 0 or seconds == 0:
        raise MeasurementError("fio reports success but moved no bytes: the job is too short")
    cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1e3
    return FioResult(
        counted_bytes=counted,
        commands=sum(side["total_ios"] for side in sides),
        seconds=seconds,
        latency_us=_latency_us(sides[0]) if len(sides) == 1 else None,
        cpu_seconds=cpu,
        engine=f"fio/{engine}",
    )


def _latency_us(side: dict[str, Any]) -> dict[str, float] | None:
    table = side["clat_ns"].get("percentile")
    if not table:
        return None
    wanted = {"50.000000": "p50", "99.000000": "p99", "99.900000": "p99.9"}
    named = {name: table[key] / 1e3 for key, name in wanted.items() if key in table}
    return {**named, "max": side["clat_ns"]["max"] / 1e3}
