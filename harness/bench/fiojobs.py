"""The two kinds of fio job: a read plan replayed flat out, and a plain reference job.

A replayed log's last ``iodepth - 1`` commands are issued but never counted by fio (seen in
3.33), and reads beyond the device count as done. So a plan is checked against the device first,
followed by small sentinel reads that take the uncounted places, and compared afterwards with
what fio counted and with the kernel's own counters of the device.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.bench.fio import Fio, FioResult, parse_job, run_fio
from harness.core.errors import MeasurementError, UsageError
from harness.core.ops import SECTOR_BYTES
from harness.device.info import block_name, device_info, read_stat

SENTINEL_BYTES = 4096

_WITNESS_PATIENCE_S = 2.0
"""fio may end before the log's last reads have; the kernel counts them a moment later."""

_IDLE_LOOKS = 5

_GRACE_S = 60.0
"""How long after its runtime a job may take to start and to end."""

_STRANGERS_SHARE = 0.01
"""Reads of others that are tolerated: udev looks for signatures when a writer has closed."""


def replay_plan(
    fio: Fio,
    device: str,
    offsets: NDArray[np.uint64],
    lengths: NDArray[np.uint64],
    *,
    queue_depth: int,
    timeout_s: float = 300.0,
) -> FioResult:
    """Read ``offsets``/``lengths`` (uint64 bytes, in order) flat out at ``queue_depth``.

    Raises
    ------
    UsageError
        A command is unaligned, empty or beyond the device: fio would call it done.
    MeasurementError
        fio failed, or counted or moved other bytes than the plan's.
    """
    _check_plan(offsets, lengths, device_info(device).size_bytes)
    name = block_name(device)
    sentinels = queue_depth if queue_depth > 1 else 0
    planned = int(lengths.sum()) + sentinels * SENTINEL_BYTES
    engine = fio.log_engine()
    with tempfile.TemporaryDirectory(prefix="harness-fio-") as folder:
        log = Path(folder) / "plan.iolog"
        log.write_text(iolog_v2(device, offsets, lengths, sentinels))
        before = read_stat(name).read_sectors
        job = run_fio(
            fio,
            [*engine_words(engine), f"--iodepth={queue_depth}", f"--read_iolog={log}",
             "--replay_no_stall=1"],
            Path(folder), timeout_s,
        )  # fmt: skip
        moved = _await_bytes_read(name, before, planned)
    result = parse_job(job, "read", engine)
    issued = len(offsets) + sentinels
    if result.commands != issued:
        raise MeasurementError(f"fio issued {result.commands} of {issued} planned reads")
    # What is still in flight when the log ends is never counted: at most depth - 1 commands.
    slack = (queue_depth - 1) * int(max(lengths.max(), SENTINEL_BYTES))
    if not planned - slack <= result.counted_bytes <= planned:
        raise MeasurementError(f"fio counted {result.counted_bytes} of {planned} planned bytes")
    # The same commands may be cancelled when fio ends; what it counted must have happened.
    if not result.counted_bytes <= moved <= planned * (1 + _STRANGERS_SHARE):
        raise MeasurementError(
            f"{device} read {moved} bytes, fio counted {result.counted_bytes} of {planned}: "
            + ("they did not happen" if moved < planned else "somebody else uses the device")
        )
    return result


def reference_job(
    fio: Fio,
    device: str,
    *,
    rw: str,
    block_bytes: int,
    queue_depth: int,
    region: tuple[int, int],
    seconds: float,
    threads: int = 1,
    seed: int = 1,
    read_percent: int = 50,
) -> FioResult:
    """A plain fio job: ``rw`` as fio names it, in ``region`` (offset, size), for ``seconds``.

    A job that writes is the caller's to guard. The result counts both directions.

    Raises
    ------
    UsageError
        The region is too small for the blocks of all threads.
    MeasurementError
        fio failed, or the kernel saw other bytes than it counted.
    """
    engine = "io_uring"
    each = region[1] // threads // block_bytes * block_bytes
    if each == 0:
        raise UsageError(f"{threads} blocks of {block_bytes} B do not fit {region[1]} B")
    # By time, not by bytes: a job that wraps around by bytes drains its queue at every lap.
    words = [
        f"--filename={device}", *engine_words(engine), f"--iodepth={queue_depth}", f"--rw={rw}",
        f"--bs={block_bytes}", f"--numjobs={threads}", f"--offset={region[0]}", f"--size={each}",
        f"--offset_increment={each if threads > 1 else 0}", "--time_based=1",
        f"--runtime={int(seconds * 1e6)}us", "--norandommap", f"--randseed={seed}",
        "--group_reporting", "--allow_mounted_write=0",
    ]  # fmt: skip
    if rw in ("rw", "randrw", "readwrite"):
        words.append(f"--rwmixread={read_percent}")
    name = block_name(device)
    before = read_stat(name)
    with tempfile.TemporaryDirectory(prefix="harness-fio-") as folder:
        job = run_fio(fio, words, Path(folder), seconds + _GRACE_S)
    since = read_stat(name).since(before)
    direction = {"read": "read", "randread": "read", "write": "write", "randwrite": "write"}
    result = parse_job(job, direction.get(rw, "both"), engine)
    moved = (since.read_sectors + since.write_sectors) * SECTOR_BYTES
    if not result.counted_bytes <= moved <= result.counted_bytes * (1 + _STRANGERS_SHARE):
        raise MeasurementError(
            f"fio counted {result.counted_bytes} bytes, {device} moved {moved}: "
            "I/O that did not happen, or somebody else uses the device"
        )
    return result


def engine_words(engine: str) -> list[str]:
    """fio's options for an engine: io_uring with registered buffers, as pinned as a server's.

    They are faulted in and looked up once, before the clock runs; without, a sample in which the
    kernel found no huge pages for them gives a fraction of the bandwidth.
    """
    return [f"--ioengine={engine}", *(["--fixedbufs=1"] if engine == "io_uring" else [])]


def iolog_v2(
    device: str, offsets: NDArray[np.uint64], lengths: NDArray[np.uint64], sentinels: int
) -> str:
    """A version 2 log of reads in order, and ``sentinels`` small reads of the first one's start."""
    head = [f"fio version 2 iolog\n{device} add\n{device} open\n"]
    reads = [
        f"{device} read {offset} {length}\n"
        for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True)
    ]
    tail = [f"{device} read {int(offsets[0])} {SENTINEL_BYTES}\n"] * sentinels
    return "".join([*head, *reads, *tail, f"{device} close\n"])


def _check_plan(offsets: NDArray[np.uint64], lengths: NDArray[np.uint64], size_bytes: int) -> None:
    if len(offsets) == 0:
        raise UsageError("the read plan is empty")
    end = int((offsets + lengths).max())
    if end > size_bytes:
        raise UsageError(f"the read plan ends at {end}, beyond the device's {size_bytes} bytes")
    if np.any(lengths == 0) or np.any((offsets | lengths) % np.uint64(512)):
        raise UsageError("the read plan has empty or unaligned commands")


def _await_bytes_read(name: str, before: int, planned: int) -> int:
    """Bytes that device ``name`` has read since it had read ``before`` sectors.

    Waits until that is all of the plan, or until the device has been idle for a moment.
    """
    deadline = time.monotonic() + _WITNESS_PATIENCE_S
    idle = 0
    while True:
        now = read_stat(name)
        moved = (now.read_sectors - before) * SECTOR_BYTES
        idle = 0 if now.in_flight else idle + 1
        if moved >= planned or idle >= _IDLE_LOOKS or time.monotonic() > deadline:
            return moved
        time.sleep(0.01)
