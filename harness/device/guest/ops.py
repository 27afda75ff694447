"""Op lists on a drive elsewhere (in a guest, on another machine), from this side."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from harness.core.errors import MeasurementError
from harness.device.femu import MAX_COMMAND_BYTES
from harness.device.guest.session import Completed

OP_LIST_DTYPE = np.dtype([("offset", "<u8"), ("length", "<u8"), ("op", "u1")])
"""Bytes, bytes, code of ``Op``; a SNAP carries its tag in ``offset``."""

DEPTH = 32
"""Far below the queue's limit, so that no submission is put off and loses its place; FEMU polls,
and needs at least 16 in flight to be fast."""


def op_list(offset: np.ndarray, length: np.ndarray, op: np.ndarray) -> np.ndarray:
    """Arrays of one length -> ``OP_LIST_DTYPE``."""
    ops = np.empty(len(op), OP_LIST_DTYPE)
    ops["offset"], ops["length"], ops["op"] = offset, length, op
    return ops


class OpsMachine(Protocol):
    """Where a drive is: a guest of ours, or a user's machine over SSH.

    ``destroy`` is the drive's identity for the guard there, ``scratch`` a folder for one file,
    ``python`` the words that start a Python which can import this package.
    """

    @property
    def device(self) -> str: ...
    @property
    def destroy(self) -> str: ...
    @property
    def scratch(self) -> str: ...
    @property
    def python(self) -> Sequence[str]: ...
    def run(self, argv: Sequence[str], *, timeout_s: float = 120.0) -> Completed: ...
    def runner(self, argv: Sequence[str]) -> bytes | None: ...
    def put(self, local: Path, remote: str) -> None: ...


def drive_ops(
    machine: OpsMachine, ops: np.ndarray, *, depth: int = DEPTH, timeout_s: float = 900.0
) -> dict[str, Any]:
    """Send ``ops`` (OP_LIST_DTYPE) to the machine's drive, in order, one command each.

    Returns ``snapshots`` ({tag, ops_done, counters} at every SNAP, drained), ``bytes`` done by
    operation, ``commands`` sent, how many of them the kernel there issued ``in_order``
    (None: its tracing is not mounted), ``duration_s`` and ``failed`` (empty).

    Raises
    ------
    MeasurementError
        An operation is longer than one command may be, one failed, the guard there refuses the
        drive, or the machine died.
    """
    if len(ops) and int(ops["length"][ops["op"] <= 1].max(initial=0)) > MAX_COMMAND_BYTES:
        raise MeasurementError(
            f"the op list has reads or writes longer than {MAX_COMMAND_BYTES} bytes: the guest's"
            " kernel would split them, and FEMU collects garbage once a command"
        )
    there = f"{machine.scratch}/ops.npy"
    with tempfile.TemporaryDirectory(prefix="harness-ops-") as folder:
        local = Path(folder, "ops.npy")
        np.save(local, ops)
        machine.put(local, there)
    argv = [*machine.python, "-m", "harness.device.guest.ops_worker", machine.device]
    done = machine.run([*argv, machine.destroy, there, str(depth)], timeout_s=timeout_s)
    result: dict[str, Any] = json.loads(done.stdout)
    if result["failed"]:
        first = result["failed"][0]
        raise MeasurementError(
            f"{len(result['failed'])} of {len(ops)} operations failed there, first number"
            f" {first['index']} with result {first['result']}"
        )
    return result
