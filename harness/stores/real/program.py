"""Programs under another Python: started, listened to, ended with us; and the log they leave."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import MeasurementError
from harness.stores.ops import OP_DTYPE, OpArray

_GRACE_S = 20.0
_LAST_LINES = 3


@contextmanager
def child(
    words: Sequence[str], log: Path, *, listen: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """A child whose errors go to ``log`` (its output too, unless it is listened to).

    Ended with us: first as by Ctrl-C, then by force.
    """
    with log.open("w") as file:
        process = subprocess.Popen(
            list(words), stdout=subprocess.PIPE if listen else file, stderr=file, text=True
        )
        try:
            yield process
        finally:
            end(process)
            if process.stdout:
                process.stdout.close()


def end(process: subprocess.Popen[str]) -> None:
    """End a child that still runs, and wait for it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            continue


def result_of(
    name: str, words: Sequence[str], log: Path, told: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Run a program that prints JSON lines to its end; what it printed as ``result``.

    MeasurementError with its last words if it failed or printed none.
    """
    result: dict[str, Any] | None = None
    with child(words, log, listen=True) as process:
        for line in process.stdout or ():
            said = json.loads(line) if line.startswith('{"') else {}
            result = said.get("result", result)
            if "served" in said:
                told(said)
        status = process.wait()
    if status or result is None:
        raise failure(name, f"ended with status {status}", log)
    return result


def failure(name: str, what: str, log: Path) -> MeasurementError:
    """The error that a program failed, with the end of what it said."""
    last = log.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]
    return MeasurementError(
        f"{name} {what}: {' / '.join(last) or 'it said nothing'}",
        fix=f"all that it said is in {log}",
    )


def read_calls(path: Path) -> tuple[OpArray, NDArray[np.int64], NDArray[np.int64]]:
    """(ops, issue ns, completion ns) of the log that ``logged_device`` wrote."""
    with np.load(path) as columns:
        ops = np.zeros(len(columns["offset"]), OP_DTYPE)
        for name in OP_DTYPE.names or ():
            if name != "layer":
                ops[name] = columns[name]
        ops["layer"] = -1
        return ops, columns["issue_ns"], columns["done_ns"]


def deepest(issue: NDArray[np.int64], finish: NDArray[np.int64]) -> int:
    """The most calls in flight at once; ``issue`` is sorted."""
    flying = np.arange(1, len(issue) + 1) - np.searchsorted(np.sort(finish), issue, "right")
    return int(flying.max(initial=0))


def covered_s(issue: NDArray[np.int64], finish: NDArray[np.int64]) -> float:
    """Seconds in which at least one call is in flight; ``issue`` is sorted."""
    ends = np.maximum.accumulate(finish)
    begins = np.maximum(issue[1:], ends[:-1])
    return float(finish[:1].sum() - issue[:1].sum() + (ends[1:] - begins).clip(0).sum()) / 1e9
