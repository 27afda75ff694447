"""What the benchmark itself costs: its cells against bare fio, its best layout against the device.

Goals: a cell measured by the harness (a plan in a log, sentinels, checks) within 3 % of a plain
fio job of the same size and depth; a session-contiguous session read as a whole, in reads of 1 MiB
or more, at 0.97 or more of the device's best sequential read. A shared machine drifts: in every
round all variants run in random order and then in the reverse one, so that a drift within the round
hits all alike, and ratios are taken round by round. A folder in memory (/dev/shm) takes the disk's
noise away and shows the cost at its largest.

    python benchmarks/bench.py [--rounds 20] [--seconds 0.4] [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from harness.bench.cells import Bench, PlanCell, Runner
from harness.bench.drive import Engine
from harness.bench.fio import Fio, find_fio
from harness.bench.fiojobs import engine_words
from harness.bench.grid import Placement, Read
from harness.bench.placed import WRITE_BYTES, WRITE_DEPTH, Placed, Region, needed_bytes
from harness.bench.reference import ReferenceCell
from harness.bench.stats import Interval, ratio
from harness.device.buffers import PayloadPool
from harness.device.guard import Target, open_guarded
from harness.device.loop import LoopDevice

BLOCK = 1 << 20
DEPTH = 32
BLOCKS = (1 << 20, 4 << 20)
WHERE = Placement(
    store="session-contiguous", model="llama-3.1-8b-tp8", context_tokens=8192, turns=1,
    sessions=1, age=1.0,
)  # fmt: skip


def whole(read_bytes: int) -> Read:
    """A session at once, in reads of ``read_bytes``."""
    return Read(
        access="whole", queue_depth=DEPTH, transport="direct", background_writes=False,
        read_bytes=read_bytes, gap_bytes=64 << 10,
    )  # fmt: skip


def bare_fio(fio: Fio, target: Target, region: Region, seconds: float) -> float:
    """GB/s of a plain sequential fio job, started without the harness.

    By time: a job that wraps around by bytes drains its queue at every lap and is slower.
    """
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run(
            [fio.path, "--name=bare", "--thread", "--direct=1", *engine_words("io_uring"),
             f"--filename={target.path}", f"--iodepth={DEPTH}", f"--bs={BLOCK}", "--rw=read",
             f"--offset={region.base}", f"--size={region.size_bytes}", "--time_based=1",
             f"--runtime={int(seconds * 1e6)}us",
             "--output-format=json", f"--output={out.name}"],
            check=True, env={**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
        )  # fmt: skip
        read = json.loads(Path(out.name).read_text())["jobs"][0]["read"]
    return float(read["io_bytes"] / read["runtime"] / 1e6)


def sample_gbps(cell: Runner) -> float:
    """One sample of a cell."""
    return cell.sample().gbps


def verdict(name: str, value: Interval, goal: float) -> bool:
    """Print one ratio beside its goal; False if the whole interval misses it."""
    word = "met" if value.low >= goal else "MISSED" if value.high < goal else "not decided"
    print(
        f"{name:38} {value.median:.3f} [{value.low:.3f}, {value.high:.3f}] of {value.n} rounds, "
        f"goal >= {goal:.2f}: {word}"
    )
    return word != "MISSED"


def _fastest(samples: dict[str, list[float]], group: Sequence[Runner]) -> str:
    return max((one.id for one in group), key=lambda name: float(np.median(samples[name])))


def main() -> int:
    """Run the rounds; 0 if both goals are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a sample")
    parser.add_argument("--directory", default="results", help="where the loop file goes")
    given = parser.parse_args()
    fio, size = find_fio(), needed_bytes(WHERE)
    with LoopDevice(size, given.directory) as loop, ExitStack() as stack:
        os.posix_fallocate(loop.backing_fd, 0, size)
        target = stack.enter_context(open_guarded(loop.path, own=True))
        bench = Bench(target, fio, given.seconds, stack)
        placed = Placed(WHERE, Region(0, size), seed=1)
        pool = PayloadPool(WRITE_DEPTH, WRITE_BYTES, seed=1)
        with Engine(target.fd, WRITE_DEPTH, WRITE_BYTES, pool) as writer:
            placed.write(writer)
        cells = [PlanCell(bench, placed, whole(block)) for block in BLOCKS]
        # The session's own bytes are the region of the plain jobs: same place, same data.
        start = int(placed.sessions[0].offset.min())
        region = Region(start, placed.sessions[0].wanted_bytes)
        best = [ReferenceCell(bench, region, "sequential", "read", b, DEPTH) for b in BLOCKS]
        runners: list[Runner] = [*cells, *best]
        runs: dict[str, Callable[[], float]] = {
            "bare fio": partial(bare_fio, fio, target, region, given.seconds),
            **{one.id: partial(sample_gbps, one) for one in runners},
        }
        samples: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(given.rounds):
            there = [
                list(runs)[i] for i in np.random.default_rng([1, number]).permutation(len(runs))
            ]
            once = {name: runs[name]() for name in there}
            again = {name: runs[name]() for name in reversed(there)}
            for name in runs:
                # Equal bytes each time: the rate over both is the harmonic mean.
                samples[name].append(2 / (1 / once[name] + 1 / again[name]))
    for name, values in samples.items():
        print(f"{name:60} {np.median(values):.2f} GB/s")
    met = verdict("harness cell / bare fio", ratio(samples[cells[0].id], samples["bare fio"]), 0.97)
    first, second = (_fastest(samples, group) for group in (cells, best))
    print(f"fastest: {first} and {second}")
    met &= verdict(
        "session-contiguous / best sequential", ratio(samples[first], samples[second]), 0.97
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
