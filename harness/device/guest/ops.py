"""Op lists on a guest's drive, from the host's side."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import MeasurementError
from harness.device.femu import MAX_COMMAND_BYTES
from harness.device.guest.machine import Guest

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


def drive_ops(
    guest: Guest, ops: np.ndarray, *, depth: int = DEPTH, timeout_s: float = 900.0
) -> dict[str, Any]:
    """Send ``ops`` (OP_LIST_DTYPE) to the guest's first drive, in order, one command each.

    Returns ``snapshots`` ({tag, ops_done, counters} at every SNAP, drained), ``bytes`` done by
    operation, ``commands`` sent, how many of them the guest's kernel issued ``in_order``,
    ``duration_s`` and ``failed`` (empty).

    Raises
    ------
    MeasurementError
        An operation is longer than one command may be, one failed, or the guest died.
    """
    if len(ops) and int(ops["length"][ops["op"] <= 1].max(initial=0)) > MAX_COMMAND_BYTES:
        raise MeasurementError(
            f"the op list has reads or writes longer than {MAX_COMMAND_BYTES} bytes: the guest's"
            " kernel would split them, and FEMU collects garbage once a command"
        )
    with tempfile.TemporaryDirectory(prefix="harness-ops-") as folder:
        local = Path(folder, "ops.npy")
        np.save(local, ops)
        guest.put(local, "/run/guest/ops.npy")
    guest.run(["sh", "-c", f"echo 2 > /sys/block/{Path(guest.device).name}/queue/nomerges"])
    argv = [sys.executable, "-m", "harness.device.guest.ops_worker", guest.device]
    done = guest.run([*argv, "/run/guest/ops.npy", str(depth)], timeout_s=timeout_s)
    result: dict[str, Any] = json.loads(done.stdout)
    if result["failed"]:
        first = result["failed"][0]
        raise MeasurementError(
            f"{len(result['failed'])} of {len(ops)} operations failed in the guest, first number"
            f" {first['index']} with result {first['result']}"
        )
    return result
