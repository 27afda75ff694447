"""fio as the second engine, for comparison; what it reports is checked against the block layer.

fio counts I/O that did not happen as done, and does not count the bytes of the last requests in
flight, so requests come from fio, bytes from the kernel. Its timed replay computes each wait
from the previous issue and drops lateness, so it drifts; its log of issue times (ms) shows by
how much.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.core.errors import Interrupted, MachineError, MeasurementError
from harness.core.ops import SECTOR_BYTES, Op
from harness.core.progress import Progress
from harness.core.units import format_size
from harness.device.guard import Target
from harness.device.info import BlockStat, read_stat
from harness.replay.options import ReplayOptions
from harness.replay.plan import each_pass
from harness.replay.survey import Rows, Survey
from harness.trace.columns import batch_from_arrays
from harness.trace.formats.base import Writing
from harness.trace.formats.fio import FORMAT
from harness.trace.parquet import Trace

OLDEST = (3, 31)
HANGS_WITH_URING = (3, 41)
"""From here on a timed log replayed by io_uring spins for ever when nothing is in flight."""
LOGGED_ROWS = 5_000_000
"""fio keeps its log of issue times in memory; longer traces go without."""
_LOOK_S = 0.2
_END_S = 10.0


@dataclass(frozen=True)
class Fio:
    """The installed fio."""

    path: str
    version: tuple[int, int]

    def io_engine(self, mode: str) -> str:
        """The I/O engine that replays logs without a known fault."""
        hangs = mode == "timed" and self.version >= HANGS_WITH_URING
        return "libaio" if hangs else "io_uring"


@dataclass
class FioRun:
    """What one run of fio left: its JSON job, issue times and order, and how it ended."""

    seconds: float
    depth: int
    engine: str
    version: str
    job: dict[str, Any] | None = None
    issue_ms: NDArray[np.int64] | None = None
    order_kept: float | None = None
    problem: str | None = None
    interrupted: bool = False
    moved: BlockStat | None = field(default=None)


def find_fio() -> Fio:
    """fio on PATH; MachineError when missing or without version 3 logs."""
    path = shutil.which("fio")
    if path is None:
        raise MachineError("fio is not installed", fix="apt-get install fio")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    return parse_fio(path, said.strip())


def parse_fio(path: str, said: str) -> Fio:
    """``fio-3.33`` as a ``Fio``."""
    match = re.match(r"fio-(\d+)\.(\d+)", said)
    if match is None or (int(match[1]), int(match[2])) < OLDEST:
        raise MachineError(f"{said or path} is not fio 3.31 or newer", fix="install a newer fio")
    return Fio(path, (int(match[1]), int(match[2])))


def run_fio(
    trace: Trace,
    target: Target,
    survey: Survey,
    options: ReplayOptions,
    depth: int,
    progress: Progress,
) -> FioRun:
    """Replay ``trace`` with fio. A problem or an interruption is in the result, not raised."""
    fio = find_fio()
    engine = fio.io_engine(options.mode)
    logged = options.mode == "timed" and survey.replayed * options.repeat <= LOGGED_ROWS
    with tempfile.TemporaryDirectory(prefix="harness-fio-") as name:
        folder = Path(name)
        rows = each_pass(trace, survey, options)
        assert FORMAT.write is not None
        FORMAT.write(_batches(rows), folder / "trace.iolog", Writing(trace.meta))
        run = FioRun(0.0, depth, engine, ".".join(map(str, fio.version)))
        words = [
            fio.path, "--name=replay", "--thread", "--direct=1", f"--ioengine={engine}",
            f"--iodepth={depth}", "--read_iolog=trace.iolog", f"--replay_redirect={target.path}",
            "--output-format=json", "--output=out.json",
        ]  # fmt: skip
        words += ["--replay_no_stall=1"] if options.mode == "flat-out" else []
        words += ["--zero_buffers"] if options.zero else []
        words += ["--write_lat_log=issue", "--log_offset=1"] if logged else []
        before = read_stat(target.name)
        _watch(words, folder, target, survey, options, run, progress)
        run.moved = read_stat(target.name).since(before)
        if run.problem is None or run.interrupted:
            run.job = _read_job(folder / "out.json", run)
        if logged and run.problem is None:
            _read_issue_log(folder / "issue_slat.1.log", each_pass(trace, survey, options), run)
    return run


def _watch(
    words: list[str],
    folder: Path,
    target: Target,
    survey: Survey,
    options: ReplayOptions,
    run: FioRun,
    progress: Progress,
) -> None:
    begun = time.monotonic()
    child = subprocess.Popen(
        words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        _wait(child, target, survey, options, run, progress)
    except (KeyboardInterrupt, Interrupted):
        run.interrupted, run.problem = True, "interrupted"
        child.send_signal(signal.SIGINT)
    finally:
        _end(child)
        run.seconds = time.monotonic() - begun
    if run.problem is None and child.returncode:
        said = child.stderr.read() if child.stderr else ""
        raise MeasurementError(f"fio failed: {said.strip()[-300:] or child.returncode}")


def _wait(
    child: subprocess.Popen[str],
    target: Target,
    survey: Survey,
    options: ReplayOptions,
    run: FioRun,
    progress: Progress,
) -> None:
    """Until fio ends, or the device does nothing for longer than the stall limit."""
    first = last = read_stat(target.name)
    moved_at = time.monotonic()
    total = int(survey.bytes[:2].sum()) * options.repeat
    while child.poll() is None:
        time.sleep(_LOOK_S)
        now = read_stat(target.name)
        done = _bytes(now) - _bytes(first)
        progress(done, total, format_size(done))
        idle = now.in_flight == 0
        if idle or _bytes(now) != _bytes(last) or now.flush_ios != last.flush_ios:
            last, moved_at = now, time.monotonic()
        elif time.monotonic() - moved_at > options.stall_limit_s:
            run.problem = f"the device stalled for {options.stall_limit_s:g} s"
            return


def _end(child: subprocess.Popen[str]) -> None:
    try:
        child.wait(_END_S if child.poll() is None else 0)
    except subprocess.TimeoutExpired:
        child.kill()
        try:
            child.wait(_END_S)
        except subprocess.TimeoutExpired:
            return  # it waits in the kernel for the device; nobody can end it


def _bytes(stat: BlockStat) -> int:
    return (stat.read_sectors + stat.write_sectors + stat.discard_sectors) * SECTOR_BYTES


def _read_job(path: Path, run: FioRun) -> dict[str, Any] | None:
    try:
        text = path.read_text()
        job: dict[str, Any] = json.loads(text[text.index("{") :])["jobs"][0]
    except (OSError, ValueError, KeyError, IndexError) as error:
        if run.interrupted:
            return None
        raise MeasurementError(f"fio's JSON result is cut off or empty: {error}") from error
    return job


def _read_issue_log(path: Path, passes: Iterator[Rows], run: FioRun) -> None:
    """Issue times (ms), and the share of requests that were issued in their recorded place."""
    try:
        log = np.loadtxt(path, delimiter=",", dtype=np.int64, usecols=(0, 2, 3, 4), ndmin=2)
    except OSError:
        return
    run.issue_ms = log[:, 0]
    kept, at = 0, 0
    for rows in passes:
        moving = rows.op <= Op.DISCARD
        part = log[at : at + int(np.count_nonzero(moving))]
        same = part[:, 1] == rows.op[moving][: len(part)]
        same &= part[:, 2] == rows.length[moving][: len(part)]
        same &= part[:, 3] == rows.offset[moving][: len(part)]
        kept += int(np.count_nonzero(same))
        at += int(np.count_nonzero(moving))
    run.order_kept = kept / at if at else 1.0


def _batches(passes: Iterator[Rows]) -> Iterator[pa.RecordBatch]:
    for rows in passes:
        yield batch_from_arrays(
            {
                "ts_ns": rows.ts_ns,
                "op": rows.op,
                "lba": (rows.offset // SECTOR_BYTES).astype(np.uint64),
                "bytes": rows.length.astype(np.uint64),
            }
        )


def lags_ms(run: FioRun, passes: Iterator[Rows]) -> NDArray[np.int64]:
    """Issue time against schedule (ms), both since the first request."""
    assert run.issue_ms is not None
    due = np.concatenate([rows.ts_ns[rows.op <= Op.DISCARD] for rows in passes]) // 1_000_000
    count = min(len(due), len(run.issue_ms))
    issued = run.issue_ms[:count] - run.issue_ms[0]
    return np.asarray(issued - (due[:count] - due[0]), dtype=np.int64)
