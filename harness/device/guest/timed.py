"""Replay a trace at its recorded times, by the harness itself inside the guest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import MeasurementError
from harness.core.ops import Op
from harness.core.progress import Progress, quiet
from harness.device.counter_reader import read_counters
from harness.device.counters import delta
from harness.device.guest.machine import Guest
from harness.device.guest.plan import GuestPlan
from harness.trace.parquet import TraceWriter, open_trace
from harness.trace.schema import TraceMeta

_LIMIT_S = 7200.0
_PLAIN_CPU = {"NUMBA_CPU_NAME": "generic"}
"""Makes machine code that an emulated processor can use too, and finds it in the host's cache:
compiling the engine takes seconds here and many minutes without KVM."""

EMULATED = "the guest is emulated (no KVM): its times are those of the emulation, not of a drive"


def replay_timed_in_guest(
    plan: GuestPlan,
    trace_path: Path,
    *,
    discard: bool = True,
    console: Path | None = None,
    memory_bytes: int = 2048 << 20,
    progress: Progress = quiet,
) -> dict[str, Any]:
    """``harness replay --mode timed`` inside a guest, with what it runs on added.

    Raises
    ------
    MeasurementError
        The replay could not be done in the guest; its own message is in it.
    MachineError, GuestError
        The guest cannot be started, or died; with cause and cure.
    """
    trace = open_trace(trace_path)
    with Guest(
        [plan.drive], binary=plan.binary, console=console, memory_bytes=memory_bytes
    ) as guest:
        facts = guest.facts()
        emulated = facts["accelerator"] != "kvm"
        if emulated:
            progress(0, None, "compiling for an emulated processor")
            _compile_here()
        words = ["--device", guest.device, "--destroy", guest.destroy, "--mode", "timed"]
        words += ["--results", "/run/guest/results", "--json"]
        words += [] if discard else ["--no-discard"]
        before = read_counters(guest.device, guest.runner)
        progress(0, None, "replaying")
        done = guest.harness(
            "replay", str(trace.path.absolute()), *words,
            timeout_s=_LIMIT_S, check=False, env=_PLAIN_CPU if emulated else None,
        )  # fmt: skip
        change = delta(before, read_counters(guest.device, guest.runner))
    try:
        details: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        said = done.stderr.decode(errors="replace").strip()
        raise MeasurementError(f"the replay in the guest failed: {said}") from error
    described = plan.to_json()
    notes = [*described.pop("notes"), *([EMULATED] if emulated else []), *details["notes"]]
    return {
        **details,
        **described,
        "waf": change.waf,
        "why_no_waf": change.why_no_waf,
        "change": change.to_json(),
        "fills": 0,
        "guest": facts,
        "notes": notes,
    }


def _compile_here() -> None:
    """Replay a few requests on a loop device, so that the engine's machine code is cached."""
    with tempfile.TemporaryDirectory(prefix="harness-compile-") as folder:
        path = Path(folder, "few.parquet")
        op = np.array([Op.WRITE, Op.READ, Op.DISCARD, Op.FLUSH], np.uint8)
        with TraceWriter(path, TraceMeta(source="compile")) as writer:
            writer.write(
                {"ts_ns": np.arange(4) * 1000, "op": op, "lba": np.zeros(4, np.uint64),
                 "bytes": np.array([4096, 4096, 4096, 0], np.uint64)}
            )  # fmt: skip
        argv = [sys.executable, "-m", "harness", "replay", str(path), "--loop", "64MiB"]
        argv += ["--results", folder, "--json"]
        subprocess.run(
            argv, env={**os.environ, **_PLAIN_CPU}, capture_output=True, check=False, timeout=600
        )
