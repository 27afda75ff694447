"""Forward the probe's ring buffer in bulk until told to stop. Standard library only.

Started by loader.py through exec, so that the compiler's memory is gone while this runs. The ring
(ring.h) is mapped: its positions read-write, its records read-only. A record is ready when it has
the lap of its place; x86-64 keeps loads in order, which the loader has checked.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import select
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import bpfsys  # noqa: E402
import frames  # noqa: E402
import sysblock  # noqa: E402

_CHUNK_BYTES = 1 << 20
# The ring is looked at this often, or as often as it would fill at two million records a second.
_IDLE_S = 0.02
_FASTEST_PER_S = 2_000_000
_PIPE_BYTES = 1 << 20
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


class Ring:
    """The ring of 64-byte records, mapped into this process."""

    def __init__(self, fd: int, positions_fd: int, records: int) -> None:
        self._size = records * frames.RECORD_BYTES
        data = mmap.mmap(fd, self._size, mmap.MAP_SHARED, mmap.PROT_READ)
        self._data = memoryview(data)
        writable = mmap.PROT_READ | mmap.PROT_WRITE
        positions = mmap.mmap(positions_fd, mmap.PAGESIZE, mmap.MAP_SHARED, writable)
        self._positions = memoryview(positions).cast("Q")  # reserved, consumed

    def ready(self) -> memoryview:
        """The finished records at the front, at most a chunk, as a view into the ring."""
        lap, start = divmod(self.forwarded * frames.RECORD_BYTES, self._size)
        waiting = (self.recorded - self.forwarded) * frames.RECORD_BYTES
        slots = self._data[start : start + min(waiting, _CHUNK_BYTES)]
        # A lap's lowest byte tells it from the lap before.
        laps = slots[:: frames.RECORD_BYTES].tobytes()
        finished = len(laps) - len(laps.lstrip(bytes([(lap + 1) & 0xFF])))
        return slots[: finished * frames.RECORD_BYTES]

    def release(self, size: int) -> None:
        """Give the first ``size`` bytes back to the probe."""
        self._positions[1] += size // frames.RECORD_BYTES

    @property
    def at_start(self) -> bool:
        """Whether a lap begins here: what is ready may go on there."""
        return self.forwarded * frames.RECORD_BYTES % self._size == 0

    @property
    def recorded(self) -> int:
        """Records that the probe has put in so far."""
        return self._positions[0]

    @property
    def forwarded(self) -> int:
        """Records that were given back."""
        return self._positions[1]


class Pump:
    """The life of a recording after the probe is attached."""

    def __init__(self, state: dict) -> None:
        self._state = state
        maps, records = state["maps"], state["ring_records"]
        self._ring = Ring(maps["ring"], maps["positions"], records)
        self._counters_fd = maps["counters"]
        self._sender = frames.Sender(sys.stdout.fileno(), compress=state["compress"])
        self._stopping = False
        self._idle_s = min(_IDLE_S, records / _FASTEST_PER_S)
        with contextlib.suppress(OSError):  # not a pipe
            fcntl.fcntl(sys.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
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
            if not self._forward():
                self._wait()
        self._sender.message(frames.STOP, {"devices": self._snapshots()})
        self._detach(_ISSUES)
        deadline = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline and self._in_flight():
            if not self._forward():
                time.sleep(0.001)
        self._detach(None)
        while self._forward():
            pass
        self._sender.message(frames.END, self._end())

    def _detach(self, functions: tuple[str, ...] | None) -> None:
        """Close the links of ``functions`` (all if None)."""
        for link in self._state["links"][:]:
            if functions is None or link[0] in functions:
                os.close(link[1])
                self._state["links"].remove(link)

    def _forward(self) -> bool:
        """Send what is ready; False if that was little enough to rest."""
        slots = self._ring.ready()
        if not slots:
            return False
        self._sender.data(slots)
        self._ring.release(len(slots))
        return len(slots) == _CHUNK_BYTES or self._ring.at_start

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
            "recorded": self._ring.recorded,
            "forwarded": self._ring.forwarded,
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
