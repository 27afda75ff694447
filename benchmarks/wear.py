"""How fast a terabyte of flash is worn, and how far that is from what memory allows.

For each write size: a bare loop that reads and overwrites a table of the same size at the same
places, and the model under two policies, on a drive that was filled twice. Both are measured in
turns in one process, on one core, in CPU seconds. Pages a second of the host, and of the flash
(what GC moves included: it does the same work). A first round that touches the tables is left out.

Example: python benchmarks/wear.py --json wear-speed.json
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.host import host_facts
from harness.core.jit import kernels
from harness.core.ops import Op
from harness.core.profiles import DeviceProfile, load_profile
from harness.endurance.measure import precondition
from harness.ftl import Ftl
from harness.ftl.workloads import SplitMix64

SIZES = {"32 MiB": 32 << 20, "256 KiB": 256 << 10, "4 KiB": 4 << 10}
TARGETS = {"32 MiB": 150e6, "256 KiB": 75e6, "4 KiB": 10e6}
MEMORY_TARGET_BYTES = 2.5 * 2**30
POLICIES: tuple[Any, ...] = ("drive", "femu-late")
MQSIM_PAGES_PER_S = 0.044e6
PAGE = 4096

kernel = kernels("../benchmarks/wear.py")


@kernel
def bare(table: np.ndarray, start: np.ndarray, pages: int) -> int:
    """Read and overwrite ``pages`` words at each start: a gather and a scatter, no more."""
    seen = 0
    for i in range(len(start)):
        block = table[start[i] : start[i] + pages]
        for j in range(len(block)):
            seen += block[j]
            block[j] = i + j
    return seen


def timed(work: Callable[[], object]) -> float:
    """Seconds of CPU: the machine may be shared."""
    before = time.process_time()
    work()
    return time.process_time() - before


def starts(profile: DeviceProfile, size: int, count: int, seed: int) -> np.ndarray:
    """Random places of whole writes, in bytes."""
    picks = SplitMix64(seed).picks(count, profile.namespace_bytes // size)
    return np.asarray(picks * np.uint64(size))


def bare_speed(profile: DeviceProfile, size: int, count: int, rounds: int) -> list[float]:
    """Pages a second of the bare loop, each round."""
    table, pages = np.zeros(profile.namespace_pages, np.uint32), size // PAGE
    places = (starts(profile, size, count, 1) // np.uint64(PAGE)).astype(np.int64)
    bare(table, places, pages)
    return [count * pages / timed(partial(bare, table, places, pages)) for _ in range(rounds)]


def model_speed(
    profile: DeviceProfile, size: int, count: int, rounds: int, filled: bool
) -> dict[str, Any]:
    """Host and flash pages a second, each round, and the WAF of the last."""
    ftl = Ftl(profile)
    if filled:
        precondition(ftl, 2, lambda: None)
    host, flash, waf = [], [], 1.0
    length, op = np.full(count, size, np.uint64), np.full(count, Op.WRITE, np.uint8)
    for number in range(-1, rounds):
        places, before = starts(profile, size, count, 3 + number), ftl.counters()
        seconds = timed(partial(ftl.apply, places, length, op))
        if number < 0:
            continue
        after = ftl.counters()
        written = after.host_pages - before.host_pages
        moved = after.gc_pages - before.gc_pages
        host.append(written / seconds)
        flash.append((written + moved) / seconds)
        waf = (written + moved) / written
    return {"host": host, "flash": flash, "waf": waf}


def peak_bytes() -> int:
    """Most memory that this process held while a drive was filled and overwritten in extents."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    profile = load_profile("1tb-0.3dwpd")
    model_speed(profile, 1 << 20, profile.namespace_bytes >> 20, 1, filled=True)
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def measure(rounds: int, gibibytes: int) -> list[dict[str, Any]]:
    """All cells: size, policy, filled or new drive."""
    rows = []
    for label, size in SIZES.items():
        count = max(1, min((gibibytes << 30) // size, 20_000_000))
        base = load_profile("1tb-0.3dwpd")
        memory = bare_speed(base, size, count, rounds)
        for policy in POLICIES:
            profile = base.with_policy(policy)
            for filled in (False, True):
                found = model_speed(profile, size, count, rounds, filled)
                rows.append({"write": label, "policy": policy, "filled": filled,
                             "bare": memory, **found})  # fmt: skip
                show(rows[-1])
    return rows


def show(row: dict[str, Any]) -> None:
    """One line a cell."""
    host, flash, memory = (statistics.median(row[k]) for k in ("host", "flash", "bare"))
    state = "filled" if row["filled"] else "new"
    verdict = "ok" if flash >= TARGETS[row["write"]] else "below"
    print(
        f"{row['write']:>8} {row['policy']:>10} {state:>7}: host {host / 1e6:8.1f} M pages/s, "
        f"flash {flash / 1e6:8.1f} M pages/s (WAF {row['waf']:.2f}); bare {memory / 1e6:8.1f}, "
        f"{flash / memory:5.2f} of it; target {TARGETS[row['write']] / 1e6:.0f}: {verdict}; "
        f"{flash / MQSIM_PAGES_PER_S:,.0f} x MQSim's published speed",
        flush=True,
    )


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gib", type=int, default=512, help="written each round, at most")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    print(f"MQSim: {shutil.which('MQSim') or 'not on this machine; its published speed is used'}")
    peak = peak_bytes()
    verdict = "ok" if peak <= MEMORY_TARGET_BYTES else "above"
    print(f"peak memory of a drive filled and overwritten: {peak / 2**30:.2f} GiB, {verdict}")
    rows = measure(arguments.rounds, arguments.gib)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"host": host_facts(), "peak_bytes": peak, "rows": rows}, file, indent=2)


if __name__ == "__main__":
    main()
