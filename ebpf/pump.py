"""Forward the records of the probe's rings in bulk until told to stop. Standard library only.

Started by loader.py through exec, so that the compiler's memory is gone while this runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import bpfsys  # noqa: E402
import frames  # noqa: E402
import rings  # noqa: E402
import sysblock  # noqa: E402

# A ring is looked at this often, or as often as it would fill at two million records a second.
# Each look wakes the reader up too, which takes the CPU from what is traced.
_IDLE_S = 0.1
_FASTEST_PER_S = 2_000_000
# What comes between two looks should fit into the pipe; the larger size takes a privilege.
_PIPE_BYTES = (8 << 20, 1 << 20)
# Rest before the kernel's counters are read: what is done by then is surely counted.
_SETTLE_S = 0.005
# In-flight requests are waited for this long once issues are no longer recorded.
_DRAIN_S = 0.25
_PROBE_COUNTERS = ("lost_issues", "lost_completions", "lost_other")
_DEVICE_COUNTERS = (
    "requeues", "request_merges", "bio_merges", "splits",
    *(f"rejected_{letter}_{what}" for letter in "RWDFZN" for what in ("requests", "sectors")),
)  # fmt: skip
_ISSUES = ("on_issue", "on_bio_queue")
_MISSED = {
    "on_issue": "issues", "on_complete": "completions",
    "on_bio_queue": "bio_issues", "on_bio_complete": "bio_completions",
}  # fmt: skip


class Pump:
    """The life of a recording after the probe is attached."""

    def __init__(self, state: dict) -> None:
        self._state = state
        maps, records, parts = state["maps"], state["ring_records"], state["rings"]
        self._rings = rings.map_rings(maps["ring"], maps["positions"], records, parts)
        self._counters_fd = maps["counters"]
        self._sender = frames.Sender(sys.stdout.fileno(), compress=state["compress"])
        self._forwarder = rings.Forwarder(self._rings, self._sender, sysblock.monotonic_ns)
        self._stopping = False
        self._idle_s = min(_IDLE_S, records / parts / _FASTEST_PER_S)
        for size in _PIPE_BYTES:
            with contextlib.suppress(OSError):  # not permitted, or not a pipe
                fcntl.fcntl(sys.stdout.fileno(), fcntl.F_SETPIPE_SZ, size)
                break
        usage = os.times()  # exec keeps what the compiler used
        self._cpu_before_s = usage.user + usage.system
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        self._stopping = True

    def run(self) -> None:
        """Forward until told to stop; BrokenPipeError when the reader has gone."""
        self._sender.message(frames.HELLO, self._hello())
        while not self._stopping:
            if not self._forwarder.forward():
                self._wait()
        self._sender.message(frames.STOP, {"devices": self._snapshots()})
        self._detach(_ISSUES)
        deadline = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline and self._in_flight():
            if not self._forwarder.forward():
                time.sleep(0.001)
        self._detach(None)
        while self._forwarder.forward():
            pass
        self._sender.message(frames.END, self._end())

    def _detach(self, functions: tuple[str, ...] | None) -> None:
        """Close the links of ``functions`` (all if None)."""
        for link in self._state["links"][:]:
            if functions is None or link[0] in functions:
                os.close(link[1])
                self._state["links"].remove(link)

    def _wait(self) -> None:
        if select.select([sys.stdin], [], [], self._idle_s)[0]:
            line = os.read(sys.stdin.fileno(), 64)
            self._stopping = not line or line.startswith(b"stop")

    def _in_flight(self) -> bool:
        devices = self._state["devices"]
        return any(sum(sysblock.snapshot(device)["inflight"]) for device in devices)

    def _snapshots(self) -> list[dict]:
        """The kernel's counters of each device, and our own just before and after those."""
        time.sleep(_SETTLE_S)
        snapshots = []
        for index, device in enumerate(self._state["devices"]):
            before = self._device_counters(index)
            snapshot = sysblock.snapshot(device)
            snapshot["counters"] = {"before": before, "after": self._device_counters(index)}
            snapshots.append(snapshot)
        return snapshots

    def _device_counters(self, index: int) -> dict[str, int]:
        first = len(_PROBE_COUNTERS) + index * len(_DEVICE_COUNTERS)
        return {
            name: sum(bpfsys.percpu_values(self._counters_fd, first + slot))
            for slot, name in enumerate(_DEVICE_COUNTERS)
        }

    def _hello(self) -> dict:
        uname = os.uname()
        real, mono = time.time_ns(), sysblock.monotonic_ns()
        return {
            "kernel": uname.release,
            "host": uname.nodename,
            "clock": {"realtime_ns": real, "monotonic_ns": mono},
            "mode": self._state["mode"],
            "meaning": self._state["meaning"],
            "notes": self._state["notes"],
            "by_issuer": self._state["by_issuer"],
            "rings": len(self._rings),
            "devices": [
                {**device, "facts": sysblock.facts(device["name"]), **snapshot}
                for device, snapshot in zip(self._state["devices"], self._snapshots(), strict=True)
            ],
        }

    def _missed(self) -> dict[str, int | None]:
        """Events whose program was still busy with another one on that CPU."""
        programs = self._state["programs"]
        return {
            name: bpfsys.recursion_misses(programs[function])
            for function, name in _MISSED.items()
            if function in programs
        }

    def _end(self) -> dict:
        per_cpu = {
            name: bpfsys.percpu_values(self._counters_fd, slot)
            for slot, name in enumerate(_PROBE_COUNTERS)
        }
        usage = os.times()
        return {
            "recorded": sum(ring.recorded for ring in self._rings),
            "forwarded": sum(ring.forwarded for ring in self._rings),
            "ring_full_per_cpu": per_cpu,
            "missed": self._missed(),
            "inflight": [sum(sysblock.snapshot(d)["inflight"]) for d in self._state["devices"]],
            "devices": [self._device_counters(i) for i in range(len(self._state["devices"]))],
            "cpu_s": usage.user + usage.system - self._cpu_before_s,
        }


def main() -> int:
    """Run the pump on the state in the first argument."""
    try:
        Pump(json.loads(sys.argv[1])).run()
    except BrokenPipeError:
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
