"""What capture costs the workload, beside other ways to trace, all in turn in one run.

    python benchmarks/capture.py [--rounds 7] [--seconds 2] [--only VARIANT]... [--json]

The workload is fio randread 4 KiB on a loop device over tmpfs, once as fast as it goes and once at
half that rate. Each round runs all variants in random order, each between two runs under a
program that only counts; "kept" is a variant's IOPS over the mean of those two, as the median over
the rounds with its 95 % interval (bootstrap). ``--only`` leaves time for more rounds of what is to
be told from noise. Absolute rates depend on what else the machine does.
"CPU us" is all CPU time that the machine spent an I/O, whoever spent it: where all cores are busy,
what a tracer uses is what the workload lacks. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import capture_tracers

from harness.bench.stats import estimate
from harness.capture.probe import LocalProbe
from harness.capture.session import Capture
from harness.device.loop import LoopDevice

DEVICE_BYTES = 1 << 30

GOAL_LOADER_US = 0.25
GOAL_KEPT = 0.95
GOAL_MEMORY_MIB = 256


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


def program_ns(loop: LoopDevice, seconds: float) -> dict[str, float]:
    """What the kernel says each BPF program takes an event, those that only count included.

    Its own clock reading is in each figure.
    """
    switch = Path("/proc/sys/kernel/bpf_stats_enabled")
    before = switch.read_text()
    counting = capture_tracers.start_peer("count", loop)
    found = {}
    with tempfile.TemporaryDirectory(dir=capture_tracers.MEMORY) as folder:
        try:
            switch.write_text("1")
            with Capture(loop.path, Path(folder) / "t.parquet") as session:
                fio(loop.path, seconds)
                assert isinstance(session.probe, LocalProbe)
                for name, pid in (("counting", counting.pid), ("probe", session.probe.pid)):
                    found[name] = _mean_run_ns(pid)
        finally:
            switch.write_text(before)
            counting.communicate("\n")
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
         "--bs=4k", "--direct=1", "--ioengine=io_uring", "--iodepth=32", "--time_based",
         f"--runtime={round(1000 * seconds)}ms",
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


def variants() -> dict[str, tuple[capture_tracers.Variant, bool]]:
    """The variants that this machine can run, by name, and whether at half the rate."""
    chosen: dict[str, tuple[capture_tracers.Variant, bool]] = {
        "nothing": (capture_tracers.nothing, False),
        "loader alone": (capture_tracers.loader_only, False),
        "harness capture": (capture_tracers.capture, False),
        "capture at half the rate": (capture_tracers.capture, True),
        "bcc ring buffer, callback": (capture_tracers.peer("callback"), False),
    }
    for name, tool, variant in (
        ("bpftrace printf", "bpftrace", capture_tracers.bpftrace),
        ("perf record", "perf", capture_tracers.perf),
    ):
        if shutil.which(tool):
            chosen[name] = (variant, False)
        else:
            print(f"{tool} is not installed: left out", file=sys.stderr)
    return chosen


def measure(
    chosen: dict[str, tuple[capture_tracers.Variant, bool]], rounds: int, seconds: float
) -> tuple[dict[str, list[Round]], dict[str, float]]:
    """Every variant in each round, between two runs under counting alone; ``program_ns``."""
    order = random.Random(1)
    results: dict[str, list[Round]] = {name: [] for name in chosen}
    with LoopDevice(DEVICE_BYTES, capture_tracers.MEMORY, direct_io=False) as loop:
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
    with capture_tracers.peer("count")(loop):
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
    kept = [
        (f"IOPS kept >= {GOAL_KEPT} of counting, {name}", table[name]["kept"] >= GOAL_KEPT,
         f"{table[name]['kept']:.3f}")
        for name in ("harness capture", "loader alone", "capture at half the rate")
        if name in table
    ]  # fmt: skip
    if "harness capture" not in table:
        _judge(kept)
        return
    ours = table["harness capture"]
    print(
        f"\nharness capture: loader {ours['loader_us']:.3f} us an event, pairing "
        f"{ours['pairing_us']:.3f} us an event, Parquet {ours['parquet_us_a_row']:.3f} us a row; "
        f"in the kernel {programs['probe']:.0f} ns an event, counting {programs['counting']:.0f}; "
        f"{ours['deferred_mib']:.0f} MiB of records waited for CPU time, the trace was whole "
        f"{ours['after_s']:.1f} s after the end"
    )
    _judge([
        ("no issue lost", ours["lost"] == 0 and ours["said"] == ["LOSSLESS"], str(ours["said"])),
        (f"loader <= {GOAL_LOADER_US} us an event", ours["loader_us"] <= GOAL_LOADER_US,
         f"{ours['loader_us']:.3f}"),
        *kept,
        (f"memory <= {GOAL_MEMORY_MIB} MiB", ours["memory_mib"] <= GOAL_MEMORY_MIB,
         f"{ours['memory_mib']:.0f} MiB, ring included"),
    ])  # fmt: skip


def _judge(goals: list[tuple[str, bool, str]]) -> None:
    for goal, met, figure in goals:
        print(f"{'met    ' if met else 'NOT met'}  {goal}: {figure}")


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", action="append", metavar="VARIANT", help="may be repeated")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    chosen = variants()
    if unknown := set(arguments.only or ()) - set(chosen):
        parser.error(f"no variant {', '.join(sorted(unknown))}; there are {', '.join(chosen)}")
    chosen = {name: chosen[name] for name in arguments.only or chosen}
    if os.geteuid() != 0:
        print("needs root: loop device and probe", file=sys.stderr)
        return 3
    capture_tracers.mount_tracing()
    results, programs = measure(chosen, arguments.rounds, arguments.seconds)
    table = summarise(results)
    if arguments.json:
        print(json.dumps({"variants": table, "program_ns": programs}, indent=2))
    else:
        report(table, programs)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
