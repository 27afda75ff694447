"""Is the replayer on time? Against fio, a bare timer and the device's own floor, in one run.

    python benchmarks/replay.py [--only PART]... [--seconds 20] [--rounds 3] [--trace FILE] [--json]

The device is a loop device over tmpfs. Absolute times depend on what else the machine does; every
figure is printed beside what it is to be compared with, measured in the same run. ``--trace``
replays a block trace (any format that can be converted) besides. ``--only`` measures some of the
parts. A loop device's work is done by worker threads of the kernel, which on a busy machine wait
for a processor like anybody: ``--workers-first`` spares them that, for both engines alike. Needs
root.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias
from unittest.mock import patch

import numpy as np
from numba.core import types
from numba.core.typing.templates import signature
from numpy.typing import NDArray

from harness.core.ops import Op
from harness.device.guard import Target, open_guarded
from harness.device.loop import LoopDevice
from harness.replay.floor import LagFloor
from harness.replay.jit import kernel
from harness.replay.native import BILLION, CLOCK_MONOTONIC, now_ns
from harness.replay.options import ReplayOptions
from harness.replay.run import replay
from harness.replay.witness import compare
from harness.trace.convert import convert
from harness.trace.parquet import TraceWriter, open_trace
from harness.trace.schema import TraceMeta

MEMORY = Path("/dev/shm")
DEVICE_BYTES = 4 << 30
MS = 1_000_000
GOAL_LAG_NS = MS
GOAL_TIMER = 2.0
GOAL_FIO = 100.0
GOAL_FLOOR = 1.5
GOAL_DISTANCE = 0.05

Part: TypeAlias = "Callable[[argparse.Namespace, Path], Iterator[Line]]"


@dataclass
class Line:
    """One figure and what it is compared with; ``met`` is None where there is no goal."""

    case: str
    figure: str
    value: float
    unit: str
    beside: dict[str, float] = field(default_factory=dict)
    met: bool | None = None

    def __str__(self) -> str:
        others = ", ".join(f"{name} {value:.4g}" for name, value in self.beside.items())
        sign = {True: "met", False: "MISSED", None: ""}[self.met]
        shown = f"{self.value:.4g} {self.unit}"
        return f"{self.case:16} {self.figure:24} {shown:>16}  {others:64} {sign}"


_clock_nanosleep: Any = types.ExternalFunction(
    "clock_nanosleep", signature(types.int32, *[types.int64] * 4)
)
TIMER_ABSTIME = 1


@kernel
def _tick(due: NDArray[np.int64], lag: NDArray[np.int64], scratch: NDArray[np.int64]) -> None:
    """A thread that does nothing but wake up on time."""
    start = now_ns(scratch)
    for i in range(len(due)):
        now = now_ns(scratch) - start
        if due[i] > now:
            scratch[0], scratch[1] = divmod(start + due[i], BILLION)
            _clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, scratch.ctypes.data, 0)
            now = now_ns(scratch) - start
        lag[i] = now - due[i]


def timer_lag_ns(due: NDArray[np.int64]) -> float:
    """p99 lag of a bare timer thread on the schedule ``due``, at the engine's priority."""
    lag, scratch = np.zeros(len(due), np.int64), np.zeros(8, np.int64)
    _tick(due[:1], lag, scratch)

    def work() -> None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        _tick(due, lag, scratch)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return float(np.percentile(lag, 99))


def write_trace(path: Path, due: NDArray[np.int64], offset: NDArray[np.int64], size: int) -> Path:
    """Reads of ``size`` bytes at ``offset``, at ``due`` ns."""
    with TraceWriter(path, TraceMeta(source="benchmark"), durable=False) as writer:
        for start in range(0, len(due), 1 << 20):
            part = slice(start, start + (1 << 20))
            writer.write(
                {
                    "ts_ns": due[part],
                    "op": np.full(len(due[part]), Op.READ, np.uint8),
                    "lba": (offset[part] // 512).astype(np.uint64),
                    "bytes": np.full(len(due[part]), size, np.uint64),
                }
            )
    return path


def poisson(folder: Path, rate: int, seconds: float) -> Path:
    """Random 4 KiB reads, ``rate`` a second, at random times."""
    random = np.random.default_rng(rate)
    count = int(rate * seconds)
    due = np.cumsum(random.exponential(1e9 / rate, count)).astype(np.int64)
    offset = random.integers(0, DEVICE_BYTES // 4096, count) * 4096
    return write_trace(folder / f"poisson-{rate}.parquet", due - due[0], offset, 4096)


def bursts(folder: Path, count: int, apart_ns: int = 2000) -> Path:
    """``count`` bursts, 200 ms apart, of 500 contiguous 64 KiB reads ``apart_ns`` apart."""
    burst, place = np.divmod(np.arange(count * 500), 500)
    first = np.random.default_rng(3).integers(0, DEVICE_BYTES // 65536 - 500, count)
    offset = (first[burst] + place) * 65536
    due = burst * 200 * MS + place * apart_ns
    return write_trace(folder / f"bursts-{apart_ns}.parquet", due, offset, 65536)


def schedule(path: Path) -> NDArray[np.int64]:
    """The recorded issue times, ns."""
    return np.asarray(open_trace(path).table(["ts_ns"])["ts_ns"].to_numpy())


class _KeptFloor(LagFloor):
    """Keeps the service times that a replay found."""

    kept: ClassVar[list[NDArray[np.int64]]] = []

    def add(
        self, due: NDArray[np.int64], service: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The times that follow, as ever."""
        self.kept.append(service)
        return super().add(due, service)


def service_times(path: Path, target: Target, **options: Any) -> NDArray[np.int64]:
    """How long each request of a replay kept the device busy, ns."""
    _KeptFloor.kept.clear()
    with patch("harness.replay.collect.LagFloor", _KeptFloor):
        replay(path, target, **options)
    return np.concatenate(_KeptFloor.kept)


def timed(path: Path, target: Target, service: NDArray[np.int64] | None = None) -> Iterator[Line]:
    """One schedule: ours, a bare timer's, fio's, and the floor of the device.

    ``service``, if lag is to be judged by that floor: what each request takes as fast as they go.
    """
    case, due = path.stem, schedule(path)
    replayed = replay(path, target)
    ours, engine = replayed.fidelity, replayed.details["engine"]
    timer = timer_lag_ns(due)
    fio = replay(path, target, ReplayOptions(engine="fio")).fidelity
    lag, fio_lag = ours["lag_ns"]["p99"], fio["lag_ns"]["p99"]
    forced = ours["lag_floor_ns"]["p99"] / 1e6
    beside = {"bare timer": timer / 1e6, "fio": fio_lag / 1e6, "floor of this run": forced}
    met = lag <= GOAL_LAG_NS or lag <= GOAL_TIMER * timer
    if service is not None:
        if len(service) != len(due):
            raise SystemExit(f"{len(service)} commands for {len(due)} requests: no floor")
        floor = LagFloor(engine["depth"])
        floor.add(due, service)
        floor_p99 = floor.lag.quantile(0.99) or 0
        beside["floor"] = floor_p99 / 1e6
        met = lag <= max(GOAL_FLOOR * floor_p99, GOAL_LAG_NS)
    yield Line(case, "p99 lag", lag / 1e6, "ms", beside, met)
    yield Line(case, "fio's lag over ours", fio_lag / max(lag, 1), "x", {},
               None if service is not None else fio_lag >= GOAL_FIO * lag)  # fmt: skip
    drift, fio_drift = ours["end_drift_ns"], fio["end_drift_ns"]
    beyond = abs(drift) - ours["end_lag_floor_ns"]
    yield Line(case, "end drift", drift / 1e6, "ms",
               {"fio": fio_drift / 1e6, "unavoidable": ours["end_lag_floor_ns"] / 1e6},
               beyond <= MS)  # fmt: skip
    yield Line(case, "order kept", ours["order_kept"] * 100, "%", {}, ours["order_kept"] == 1)
    # Judged in ``recording``: this schedule has gaps shorter than a submission takes.
    shorter = float(np.mean(np.diff(due) < engine["lone_call_ns"]))
    yield Line(case, "distance of gaps", ours["gaps_ks"], "KS",
               {"unavoidable": ours["gaps_ks_unavoidable"], "one call, us":
                engine["lone_call_ns"] / 1000, "share of gaps below": shorter})  # fmt: skip


def flat_out(path: Path, target: Target, depth: int, rounds: int) -> Iterator[Line]:
    """Ours and fio's rate in turn."""
    rates: dict[str, list[float]] = {"uring": [], "fio": []}
    for _ in range(rounds):
        for engine, found in rates.items():
            options = ReplayOptions(mode="flat-out", depth=depth, engine=engine)
            result = replay(path, target, options)
            found.append(result.requests / result.fidelity["duration_s"])
    ours, fio = (statistics.median(rates[name]) for name in ("uring", "fio"))
    ratio = statistics.median(a / b for a, b in zip(rates["uring"], rates["fio"], strict=True))
    yield Line(f"flat out, {depth}", "rate over fio's", ratio, "x",
               {"ours, IOPS": ours, "fio, IOPS": fio}, ratio >= 1)  # fmt: skip


def recording(path: Path, folder: Path, target: Target) -> Iterator[Line]:
    """A recording of real I/O on this very device, replayed: do the shapes agree?"""
    from harness.capture.session import Capture

    recorded, seen = folder / "recorded.parquet", folder / "seen.parquet"
    with Capture(target.path, recorded):
        replay(path, target)
    with Capture(target.path, seen):
        result = replay(recorded, target)
    fidelity = result.fidelity
    started_ns = result.details["engine"]["started_ns"]
    witness = compare(recorded, seen, ReplayOptions(), target.size_bytes, started_ns)
    depth = fidelity["depth"]
    yield _distance("depth", witness["depth_ks"], depth["ks"], depth["ks_unavoidable"])
    ours, forced = fidelity["gaps_ks"], fidelity["gaps_ks_unavoidable"]
    yield _distance("gaps", witness["gaps_ks"], ours, forced)
    yield Line("recording", "order seen by the probe", witness["order_kept"] * 100, "%",
               {"unmatched": witness["unmatched"]}, witness["order_kept"] == 1)  # fmt: skip
    yield Line("recording", "p99 lag", fidelity["lag_ns"]["p99"] / 1e6, "ms",
               {"seen by the probe": witness["lag_ns"]["p99"] / 1e6})  # fmt: skip


def _distance(name: str, seen: float, ours: float, forced: float) -> Line:
    """Of the recording's shape; no goal where the device itself was further from it."""
    beside = {"by our clock": ours, "unavoidable": forced}
    met = seen <= GOAL_DISTANCE if forced <= GOAL_DISTANCE else None
    return Line("recording", f"distance of {name}", seen, "KS", beside, met)


def peak_memory(folder: Path, rows: int) -> float:
    """Largest resident memory (MiB) of ``harness replay`` for a trace of ``rows``, flat out."""
    path = write_trace(
        folder / "long.parquet", np.arange(rows), np.arange(rows) % 4096 * 4096, 4096
    )
    words = ["replay", str(path), "--loop", "16MiB", "--loop-dir", str(MEMORY)]
    words += ["--mode", "flat-out", "--results", str(folder / "results"), "--json"]
    child = subprocess.Popen([sys.executable, "-m", "harness", *words], stdout=subprocess.DEVNULL)
    # Not wait4's ru_maxrss: that counts what this process held when it forked.
    status, peak = Path(f"/proc/{child.pid}/status"), 0.0
    while child.poll() is None:
        found = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        peak = float(found[0].split()[1]) / 1024 if found else peak
        time.sleep(0.05)
    if child.returncode:
        raise SystemExit(f"harness replay failed: {child.returncode}")
    path.unlink()
    return peak


def memory(folder: Path, rows: int) -> Iterator[Line]:
    """A trace eight times as long must not take more memory."""
    short, long = peak_memory(folder, rows // 8), peak_memory(folder, rows)
    yield Line(f"{rows:,} rows", "peak memory", long, "MiB",
               {f"{rows // 8:,} rows": short}, long <= 1.1 * short + 16)  # fmt: skip


def foreign(source: Path, folder: Path) -> Iterator[Line]:
    """A real trace, timed, on a device in memory that is just large enough."""
    path = folder / "foreign.parquet"
    convert(source, path)
    table = open_trace(path).table(["lba", "bytes"])
    end = int((table["lba"].to_numpy() * 512 + table["bytes"].to_numpy()).max())
    with _device(-(-end // (1 << 20)) << 20) as target:
        replay(path, target, mode="flat-out")  # until then the file below has no memory
        result = replay(path, target)
    fidelity = result.fidelity
    yield Line(source.name, "p99 lag", fidelity["lag_ns"]["p99"] / 1e6, "ms",
               {"unavoidable": fidelity["lag_floor_ns"]["p99"] / 1e6,
                "requests": result.requests, "end drift, ms": fidelity["end_drift_ns"] / 1e6},
               fidelity["verdict"] == "FAITHFUL")  # fmt: skip
    yield Line(source.name, "distance of gaps", fidelity["gaps_ks"], "KS",
               {"unavoidable": fidelity["gaps_ks_unavoidable"]})  # fmt: skip
    for reason in fidelity["reasons"]:
        print(f"{source.name}: {fidelity['verdict']}: {reason}", file=sys.stderr)


@contextmanager
def _device(size_bytes: int) -> Iterator[Target]:
    with LoopDevice(size_bytes, MEMORY) as loop, open_guarded(loop.path, own=True) as target:
        yield target


def _timed_part(rate: int, longest_s: float = math.inf, *, with_floor: bool = False) -> Part:
    def part(arguments: argparse.Namespace, folder: Path) -> Iterator[Line]:
        path = poisson(folder, rate, min(arguments.seconds, longest_s))
        with _device(DEVICE_BYTES) as target:
            service = service_times(path, target, mode="flat-out")
            yield from timed(path, target, service if with_floor else None)

    return part


def _bursts_part(arguments: argparse.Namespace, folder: Path) -> Iterator[Line]:
    count = max(int(arguments.seconds * 5), 1)
    path, at_once = bursts(folder, count), bursts(folder, count, apart_ns=0)
    with _device(DEVICE_BYTES) as target:
        # Flat out with the same pauses: what wakes up from each is slower than what never slept.
        yield from timed(path, target, service_times(at_once, target))


def _flat_out_part(arguments: argparse.Namespace, folder: Path) -> Iterator[Line]:
    path = poisson(folder, 40_000, arguments.seconds)
    with _device(DEVICE_BYTES) as target:
        for depth in (32, 120):
            yield from flat_out(path, target, depth, arguments.rounds)


def _recording_part(arguments: argparse.Namespace, folder: Path) -> Iterator[Line]:
    with _device(DEVICE_BYTES) as target:
        yield from recording(poisson(folder, 5_000, min(arguments.seconds, 10)), folder, target)


def _memory_part(arguments: argparse.Namespace, folder: Path) -> Iterator[Line]:
    yield from memory(folder, arguments.rows)


def _trace_part(arguments: argparse.Namespace, folder: Path) -> Iterator[Line]:
    if arguments.trace:
        yield from foreign(arguments.trace, folder)


PARTS: dict[str, Part] = {
    "10k": _timed_part(10_000),
    "40k": _timed_part(40_000),
    "80k": _timed_part(80_000, 7.5, with_floor=True),
    "bursts": _bursts_part,
    "flat-out": _flat_out_part,
    "recording": _recording_part,
    "memory": _memory_part,
    "trace": _trace_part,
}


@contextmanager
def _workers_first() -> Iterator[None]:
    """Real-time priority for the kernel's unbound workers meanwhile, also for new ones."""
    over = threading.Event()

    def set_all(policy: int, priority: int) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "comm").read_text().startswith("kworker/u"):
                    os.sched_setscheduler(int(process.name), policy, os.sched_param(priority))

    def keep() -> None:
        while not over.wait(0.25):
            set_all(os.SCHED_FIFO, 1)

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        set_all(os.SCHED_OTHER, 0)


def lines(arguments: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """All parts, or those that were asked for."""
    for name in arguments.only or PARTS:
        yield from PARTS[name](arguments, folder)


def main() -> None:
    """Run all cases, print each line as it comes; exit 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", action="append", choices=PARTS, help="a part to measure")
    parser.add_argument("--workers-first", action="store_true", help="as on an idle machine")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of the schedules")
    parser.add_argument("--rounds", type=int, default=3, help="of the flat-out comparison")
    parser.add_argument("--rows", type=int, default=8_000_000, help="of the memory test")
    parser.add_argument("--trace", type=Path, help="a trace to replay timed besides")
    parser.add_argument("--json", action="store_true", help="print JSON at the end")
    arguments = parser.parse_args()
    found = []
    load = os.getloadavg()[0]
    begun = time.monotonic()
    first = _workers_first() if arguments.workers_first else nullcontext()
    with tempfile.TemporaryDirectory(prefix="replay-", dir=MEMORY) as name, first:
        for line in lines(arguments, Path(name)):
            print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)
            found.append(line)
    facts: dict[str, Any] = {
        "load_before": load,
        "load_after": os.getloadavg()[0],
        "seconds": time.monotonic() - begun,
    }
    if arguments.json:
        print(json.dumps({**facts, "lines": [asdict(line) for line in found]}, indent=2))
    else:
        print(f"load average {load:.1f} before, {facts['load_after']:.1f} after")
    raise SystemExit(any(line.met is False for line in found))


if __name__ == "__main__":
    main()
