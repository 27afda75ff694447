"""How fast a terabyte of flash is worn, and how far that is from what memory allows.

For each write size: a bare loop that reads and overwrites a table of the same size at the same
random places, and the model under two policies, each in two states of the drive:

* no GC: all is mapped and overwritten, and flash of twice the namespace leaves nothing to collect.
  Host pages a second; the goals are of this kind, for they come from loops without GC.
* GC: filled twice, then overwritten at random with 9.9 % spare: the worst that a drive meets. Host
  pages a second, and flash pages a second, which counts what GC moves: that is the same work.

In turns in one process, on one core, in CPU seconds. All tables are touched before, and a first
round is left out. The peer is MQSim: see ``wear_mqsim``.

Example: python benchmarks/wear.py --mqsim ~/MQSim/MQSim --json wear-speed.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import wear_mqsim

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
ROOMY = 2.0
"""Flash over namespace of the drive that needs no GC."""
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


def roomy(profile: DeviceProfile) -> DeviceProfile:
    """The same drive with so much flash that a round of writes collects nothing."""
    return profile.changed(blks_per_pl=round(ROOMY * profile.blks_per_pl))


def model_speed(
    profile: DeviceProfile, size: int, count: int, rounds: int, fills: int
) -> dict[str, Any]:
    """Host and flash pages a second, each round, and the WAF of the last."""
    ftl = Ftl(profile)
    ftl.state.pages.p2l[:] = 0  # the system gives memory when it is first written, and that costs
    precondition(ftl, fills, lambda: None)
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
    collected = ftl.counters().erased_lines > 0
    return {"host": host, "flash": flash, "waf": waf, "collected": collected}


def peak_bytes() -> int:
    """Most memory that this process held while a drive was filled and overwritten in extents."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    profile = load_profile("1tb-0.3dwpd")
    model_speed(profile, 1 << 20, profile.namespace_bytes >> 20, 1, fills=2)
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def measure(rounds: int, gibibytes: int) -> list[dict[str, Any]]:
    """All cells: size, policy, drive without and with GC."""
    rows = []
    for label, size in SIZES.items():
        base = load_profile("1tb-0.3dwpd")
        room = int(0.9 * (ROOMY - 1) * base.namespace_bytes) // (rounds + 1)
        count = max(1, min(min(gibibytes << 30, room) // size, 20_000_000))
        memory = bare_speed(base, size, count, rounds)
        for policy in POLICIES:
            profile = base.with_policy(policy)
            for state, drive, fills in (("no GC", roomy(profile), 1), ("GC", profile, 2)):
                found = model_speed(drive, size, count, rounds, fills)
                assert found["collected"] == (state == "GC")
                rows.append({"write": label, "policy": policy, "state": state,
                             "bare": memory, **found})  # fmt: skip
                show(rows[-1])
    return rows


def show(row: dict[str, Any]) -> None:
    """One line a cell; the verdict is over host pages where there is no GC, else over both."""
    host, flash, memory = (statistics.median(row[k]) / 1e6 for k in ("host", "flash", "bare"))
    goal = TARGETS[row["write"]] / 1e6
    verdicts = [f"host {'ok' if host >= goal else 'below'}"]
    if row["state"] == "GC":
        verdicts.append(f"flash {'ok' if flash >= goal else 'below'}")
    print(
        f"{row['write']:>8} {row['policy']:>10} {row['state']:>6}: host {host:7.1f} M pages/s, "
        f"flash {flash:7.1f} (WAF {row['waf']:5.2f}); bare loop {memory:6.1f}, flash is "
        f"{flash / memory:4.2f} of it; goal {goal:.0f}: {', '.join(verdicts)}",
        flush=True,
    )


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gib", type=int, default=256, help="written each round, at most")
    parser.add_argument(
        "--mqsim", default=os.environ.get("MQSIM"), help="MQSim's binary; default: $MQSIM"
    )
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.mqsim:
        peer = wear_mqsim.compare(Path(arguments.mqsim))
    else:
        peer = {"skipped": "no binary given"}
        print("MQSim: skipped: build github.com/CMU-SAFARI/MQSim (make) and give --mqsim or $MQSIM")
    peak = peak_bytes()
    verdict = "ok" if peak <= MEMORY_TARGET_BYTES else "above"
    print(f"peak memory of a drive filled and overwritten: {peak / 2**30:.2f} GiB, {verdict}")
    rows = measure(arguments.rounds, arguments.gib)
    if arguments.json:
        with open(arguments.json, "w") as file:
            found = {"host": host_facts(), "peak_bytes": peak, "mqsim": peer, "rows": rows}
            json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
