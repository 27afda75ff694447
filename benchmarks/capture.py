"""What capture costs the workload, beside other ways to trace, all in turn in one run.

    python benchmarks/capture.py [--rounds 7] [--seconds 2] [--json]

The workload is fio randread 4 KiB on a loop device over tmpfs, once as fast as it goes and once at
half that rate. Each round runs all variants in random order, each between two runs under a
program that only counts; "kept" is a variant's IOPS over the mean of those two, as the median over
the rounds with its 95 % interval (bootstrap). Absolute rates depend on what else the machine does.
"CPU us" is all CPU time that the machine spent an I/O, whoever spent it: where all cores are busy,
what a tracer uses is what the workload lacks. Needs root.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.bench.stats import estimate
from harness.capture import stream
from harness.capture.options import TraceOptions
from harness.capture.probe import SYSTEM_PYTHON, LocalProbe
from harness.capture.session import Capture
from harness.capture.stream import FrameReader
from harness.device.loop import LoopDevice

MEMORY = Path("/dev/shm")
DEVICE_BYTES = 1 << 30
PEERS = Path(__file__).with_name("capture_peers.py")

GOAL_LOADER_US = 0.25
GOAL_KEPT = 0.95
GOAL_MEMORY_MIB = 256
_CLONE_NEWNS = 0x20000


@dataclass
class Round:
    """One variant in one round. ``events`` is None where the tool does not say."""

    ios: int
    seconds: float
    kept: float = 1.0
    busy_us: float = 0.0
    p99_us: float = 0.0
    events: int | None = None
    cpu_s: float | None = None
    said: str = ""
    extra: dict[str, float] = field(default_factory=dict)

    @property
    def iops(self) -> float:
        """Workload I/Os per second."""
        return self.ios / self.seconds


class Watch:
    """What a variant reports once its ``with`` block is left."""

    events: int | None = None
    cpu_s: float | None = None
    said: str = ""

    def __init__(self) -> None:
        self.extra: dict[str, float] = {}


Variant = Callable[[LoopDevice], Any]


@contextmanager
def nothing(loop: LoopDevice) -> Iterator[Watch]:
    """The workload alone."""
    yield Watch()


def _peer(kind: str) -> Variant:
    @contextmanager
    def run(loop: LoopDevice) -> Iterator[Watch]:
        watch = Watch()
        numbers = os.stat(loop.path).st_rdev
        process = subprocess.Popen(
            [SYSTEM_PYTHON, PEERS, kind, f"{os.major(numbers)}:{os.minor(numbers)}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        before = _cpu_s(process.pid)
        yield watch
        watch.cpu_s = _cpu_s(process.pid) - before
        said, _ = process.communicate("\n")
        watch.events = int(said)

    return run


@contextmanager
def loader_only(loop: LoopDevice) -> Iterator[Watch]:
    """The probe and its loader, whose records nobody pairs: what a host pays that is traced."""
    watch = Watch()
    probe = LocalProbe(TraceOptions((loop.path,)))
    frames = FrameReader(probe.stdout.fileno()).frames()
    next(kind for kind, _ in frames if kind == stream.HELLO)
    end: dict[str, Any] = {}

    def drain() -> None:
        for kind, payload in frames:
            if kind == stream.END:
                end.update(json.loads(payload))

    thread = threading.Thread(target=drain)
    thread.start()
    yield watch
    probe.stop()
    thread.join()
    probe.close()
    watch.events, watch.cpu_s = end["forwarded"], end["cpu_s"]


@contextmanager
def capture(loop: LoopDevice) -> Iterator[Watch]:
    """All of it: probe, loader, pairing and Parquet."""
    watch = Watch()
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        with Capture(loop.path, Path(folder) / "t.parquet") as session:
            started_s = _cpu_s(session.recorder_pid)
            yield watch
            assert isinstance(session.probe, LocalProbe)
            watch.extra["memory_mib"] = _peak_mib(session.recorder_pid, session.probe.pid)
            recorder_s = _cpu_s(session.recorder_pid) - started_s
        result = session.result
        assert result is not None
        cpu_s = result.details["cpu_s"]
        watch.events, watch.said = result.events, result.summary
        watch.cpu_s = cpu_s["loader"] + recorder_s
        watch.extra.update(
            loader_us=1e6 * cpu_s["loader"] / result.events,
            pairing_us=1e6 * cpu_s["pairing"] / result.events,
            parquet_us_a_row=1e6 * cpu_s["writing"] / result.requests,
            lost=result.lost,
            completions_lost=result.completions_lost,
        )


@contextmanager
def bpftrace(loop: LoopDevice) -> Iterator[Watch]:
    """printf for each event, into a file."""
    watch = Watch()
    numbers = os.stat(loop.path).st_rdev
    device = os.major(numbers) << 20 | os.minor(numbers)
    program = "".join(
        f"tracepoint:block:block_rq_{name} /args->dev == {device}/ "
        f'{{ printf("{name[0]} %llu %llu %u\\n", nsecs, args->sector, args->nr_sector); }}\n'
        for name in ("issue", "complete")
    )
    with (
        tempfile.TemporaryFile(dir=MEMORY) as out,
        tempfile.TemporaryFile("w+", dir=MEMORY) as errors,
    ):
        process = subprocess.Popen(["bpftrace", "-e", program], stdout=out, stderr=errors)
        _until_said(out, b"Attaching")
        time.sleep(1.0)
        before = _cpu_s(process.pid)
        yield watch
        watch.cpu_s = _cpu_s(process.pid) - before
        process.terminate()
        process.wait()
        out.seek(0)
        watch.events = sum(line[:2] in (b"i ", b"c ") for line in out)
        errors.seek(0)
        lost = re.findall(r"[Ll]ost (\d+)", errors.read())
        watch.said = f"lost {sum(map(int, lost))}" if lost else "says nothing of losses"


@contextmanager
def perf(loop: LoopDevice) -> Iterator[Watch]:
    """perf record, counted by perf script afterwards."""
    watch = Watch()
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        data = f"{folder}/perf.data"
        process = subprocess.Popen(
            ["perf", "record", "-a", "-m", "4096", "-o", data, "-e", "block:block_rq_issue",
             "-e", "block:block_rq_complete"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(1.5)
        before = _cpu_s(process.pid)
        yield watch
        watch.cpu_s = _cpu_s(process.pid) - before
        process.terminate()
        _, errors = process.communicate()
        numbers = os.stat(loop.path).st_rdev
        script = subprocess.run(
            ["perf", "script", "-i", data, "-F", "event,trace"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        mine = f" {os.major(numbers)},{os.minor(numbers)} "
        watch.events = sum(mine in line for line in script.stdout.splitlines())
        lost = re.findall(r"lost (\d+)", errors + script.stderr)
        watch.said = f"lost {sum(map(int, lost))}" if lost else "says nothing of losses"


def program_ns(loop: LoopDevice, seconds: float) -> dict[str, float]:
    """What the kernel says each BPF program takes an event, those that only count included.

    Its own clock reading is in each figure.
    """
    switch = Path("/proc/sys/kernel/bpf_stats_enabled")
    before = switch.read_text()
    numbers = os.stat(loop.path).st_rdev
    peer = subprocess.Popen(
        [SYSTEM_PYTHON, PEERS, "count", f"{os.major(numbers)}:{os.minor(numbers)}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert peer.stdout is not None
    peer.stdout.readline()
    found = {}
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        try:
            switch.write_text("1")
            with Capture(loop.path, Path(folder) / "t.parquet") as session:
                fio(loop.path, seconds)
                assert isinstance(session.probe, LocalProbe)
                for name, pid in (("counting", peer.pid), ("probe", session.probe.pid)):
                    found[name] = _mean_run_ns(pid)
        finally:
            switch.write_text(before)
            peer.communicate("\n")
    return found


def _mean_run_ns(pid: int) -> float:
    """Mean run time over the BPF programs that a process holds open."""
    runs: dict[str, tuple[int, int]] = {}
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        said = dict(line.split(":\t", 1) for line in path.read_text().splitlines() if ":\t" in line)
        if "run_cnt" in said:
            runs[said["prog_id"]] = (int(said["run_time_ns"]), int(said["run_cnt"]))
    total_ns, count = map(sum, zip(*runs.values(), strict=True))
    return total_ns / count


def _until_said(file: Any, word: bytes) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        file.seek(0)
        if word in file.read():
            return
        time.sleep(0.1)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mib(*pids: int) -> float:
    def one(pid: int) -> int:
        match = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return int(match[1]) if match else 0

    return sum(map(one, pids)) / 1024


@dataclass(frozen=True)
class Ran:
    """One run of fio: I/Os, its latency, and the CPU time of all cores for each I/O."""

    ios: int
    seconds: float
    p99_us: float
    busy_us: float

    @property
    def iops(self) -> float:
        """I/Os per second."""
        return self.ios / self.seconds


def fio(path: str, seconds: float, rate: int | None = None) -> Ran:
    """Run the workload, at ``rate`` I/Os a second if given."""
    before = _busy_s()
    done = subprocess.run(
        ["nice", "-n", "-10", "fio", "--name=bench", f"--filename={path}", "--rw=randread",
         "--bs=4k", "--direct=1",
         "--ioengine=io_uring", "--iodepth=32", "--time_based", f"--runtime={seconds}",
         "--output-format=json", *([f"--rate_iops={rate}"] if rate else [])],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    busy_s = _busy_s() - before
    read = json.loads(done.stdout)["jobs"][0]["read"]
    ios = int(read["total_ios"])
    p99_us = read["clat_ns"]["percentile"]["99.000000"] / 1000
    return Ran(ios, read["runtime"] / 1000, p99_us, 1e6 * busy_s / ios)


def _busy_s() -> float:
    """CPU time that all cores have spent at work since the start."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, softirq = map(int, fields[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def variants() -> dict[str, tuple[Variant, bool]]:
    """The variants that this machine can run, by name, and whether at half the rate."""
    chosen: dict[str, tuple[Variant, bool]] = {
        "nothing": (nothing, False),
        "loader alone": (loader_only, False),
        "harness capture": (capture, False),
        "capture at half the rate": (capture, True),
        "bcc ring buffer, callback": (_peer("callback"), False),
    }
    for name, tool, variant in (
        ("bpftrace printf", "bpftrace", bpftrace),
        ("perf record", "perf", perf),
    ):
        if shutil.which(tool):
            chosen[name] = (variant, False)
        else:
            print(f"{tool} is not installed: left out", file=sys.stderr)
    return chosen


def measure(rounds: int, seconds: float) -> tuple[dict[str, list[Round]], dict[str, float]]:
    """Every variant in each round, between two runs under counting alone; ``program_ns``."""
    order = random.Random(1)
    chosen = variants()
    results: dict[str, list[Round]] = {name: [] for name in chosen}
    with LoopDevice(DEVICE_BYTES, MEMORY, direct_io=False) as loop:
        fill = ["dd", "if=/dev/zero", f"of={loop.path}", "bs=1M", "oflag=direct"]
        subprocess.run(fill, capture_output=True, check=False)  # ends with "no space left"
        programs = program_ns(loop, seconds)
        before = _counted(loop, seconds, None)
        for number in range(rounds):
            for name in order.sample(list(chosen), len(chosen)):
                variant, rate = chosen[name]
                limit = int(before.iops / 2) if rate else None
                if limit:
                    before = _counted(loop, seconds, limit)
                with variant(loop) as watch:
                    ran = fio(loop.path, seconds, limit)
                after = _counted(loop, seconds, limit)
                kept = 2 * ran.iops / (before.iops + after.iops)
                results[name].append(
                    Round(ran.ios, ran.seconds, kept, ran.busy_us, ran.p99_us, watch.events,
                          watch.cpu_s, watch.said,
                          {**watch.extra, "counted_p99_us": (before.p99_us + after.p99_us) / 2,
                           "counted_busy_us": (before.busy_us + after.busy_us) / 2})
                )  # fmt: skip
                before = _counted(loop, seconds, None) if limit else after
                print(f"round {number + 1}: {name}: {kept:.3f}", file=sys.stderr)
    return results, programs


def _counted(loop: LoopDevice, seconds: float, rate: int | None) -> Ran:
    with _peer("count")(loop):
        return fio(loop.path, seconds, rate)


def summarise(results: dict[str, list[Round]]) -> dict[str, Any]:
    """Medians over the rounds."""
    table = {}
    for name, rounds in results.items():
        kept = estimate([r.kept for r in rounds])
        row: dict[str, Any] = {
            "iops": statistics.median(r.iops for r in rounds),
            "kept": kept.median,
            "kept_interval": (kept.low, kept.high),
            "busy_us": statistics.median(r.busy_us for r in rounds),
            "p99_us": statistics.median(r.p99_us for r in rounds),
            "said": sorted({r.said for r in rounds if r.said}),
        }
        if all(r.events is not None for r in rounds):
            row["events_a_s"] = max((r.events or 0) / r.seconds for r in rounds)
            row["events_missing"] = [2 * r.ios - (r.events or 0) for r in rounds]
        if all(r.cpu_s is not None and r.events for r in rounds):
            row["cpu_us_an_event"] = statistics.median(
                1e6 * (r.cpu_s or 0) / (r.events or 1) for r in rounds
            )
        for key in rounds[0].extra:
            row[key] = statistics.median(r.extra[key] for r in rounds)
        table[name] = row
    return table


def report(table: dict[str, Any], programs: dict[str, float]) -> None:
    """Print the table and how the goals were met."""
    print(
        f"{'':28}{'IOPS':>9}{'kept':>6} {'95 %':<13}{'CPU us':>7}{'(count':>7}{'p99 us':>8}"
        f"{'(count':>8}{'events/s':>10}{'us/event':>9}  missing events"
    )
    for name, row in table.items():
        events = f"{row['events_a_s']:,.0f}" if "events_a_s" in row else "-"
        cpu = f"{row['cpu_us_an_event']:.2f}" if "cpu_us_an_event" in row else "-"
        missing = f"{row['events_missing']} {'; '.join(row['said'])}" if events != "-" else "-"
        low, high = row["kept_interval"]
        print(
            f"{name:28}{row['iops']:>9,.0f}{row['kept']:>6.2f} {f'{low:.3f}-{high:.3f}':<13}"
            f"{row['busy_us']:>7.2f}{row['counted_busy_us']:>7.2f}{row['p99_us']:>8.0f}"
            f"{row['counted_p99_us']:>8.0f}{events:>10}{cpu:>9}  {missing}"
        )
    ours = table["harness capture"]
    print(
        f"\nharness capture: loader {ours['loader_us']:.3f} us an event, pairing "
        f"{ours['pairing_us']:.3f} us an event, Parquet {ours['parquet_us_a_row']:.3f} us a row; "
        f"in the kernel {programs['probe']:.0f} ns an event, counting {programs['counting']:.0f}"
    )
    goals = (
        ("no issue lost", ours["lost"] == 0 and ours["said"] == ["LOSSLESS"], ours["said"]),
        (f"loader <= {GOAL_LOADER_US} us an event", ours["loader_us"] <= GOAL_LOADER_US,
         f"{ours['loader_us']:.3f}"),
        *((f"IOPS kept >= {GOAL_KEPT} of counting, {name}", table[name]["kept"] >= GOAL_KEPT,
           f"{table[name]['kept']:.3f}")
          for name in ("harness capture", "loader alone", "capture at half the rate")),
        (f"memory <= {GOAL_MEMORY_MIB} MiB", ours["memory_mib"] <= GOAL_MEMORY_MIB,
         f"{ours['memory_mib']:.0f} MiB, ring included"),
    )  # fmt: skip
    for goal, met, figure in goals:
        print(f"{'met    ' if met else 'NOT met'}  {goal}: {figure}")


def mount_tracing() -> None:
    """tracefs and debugfs for the other tools, in a mount namespace of this process."""
    if ctypes.CDLL(None).unshare(_CLONE_NEWNS):
        return
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for kind, place in (("tracefs", "/sys/kernel/tracing"), ("debugfs", "/sys/kernel/debug")):
        subprocess.run(["mount", "-t", kind, kind, place], capture_output=True, check=False)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("needs root: loop device and probe", file=sys.stderr)
        return 3
    mount_tracing()
    results, programs = measure(arguments.rounds, arguments.seconds)
    table = summarise(results)
    if arguments.json:
        print(json.dumps({"variants": table, "program_ns": programs}, indent=2))
    else:
        report(table, programs)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
