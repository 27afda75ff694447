"""Whether the recorder's memory stays the same over an hour: as many events as an hour brings.

    python benchmarks/capture_memory.py [--events 50000000] [--json]

50 million events are an hour at 7,000 requests a second. The recorder is fed them as fast as it
takes them, through a pipe as the loader feeds it, and joins its segments at the end. Its memory is
read several times a second. The loader and its ring do not grow; ``capture.py`` prints them too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

import numpy as np

from harness.capture import stream
from harness.capture.records import SLOT_DTYPE, Kind
from harness.capture.session import ALLOCATOR
from harness.trace.parquet import open_trace

BLOCK_EVENTS = 1 << 18
CHUNK_BYTES = 1 << 20
GAP_NS = 72_000
DEPTH = 64
GOAL_MIB = 256 - 32  # the ring has its share

HELLO = {
    "kernel": "none", "host": "none", "notes": [], "by_issuer": False, "mode": "raw",
    "clock": {"realtime_ns": 0, "monotonic_ns": 0},
    "meaning": {
        "ops": {"0": "R", "1": "W"}, "status": "blk",
        "flags": dict.fromkeys(("sync", "meta", "fua", "preflush", "readahead", "background"), 20),
    },
    "devices": [
        {
            "name": "none", "path": "none", "dev": 0, "bio_based": False, "hidden_paths": [],
            "first_sector": None, "sectors": None, "logical_block": 512, "facts": {"name": "none"},
            "before_ns": 0, "after_ns": 0, "stat": None, "inflight": [0, 0], "iostats": True,
            "counters": {"before": {}, "after": {}},
        }
    ],
}  # fmt: skip


def block(rng: np.random.Generator) -> np.ndarray:
    """Requests of random places, ``DEPTH`` in flight, each ending ``DEPTH`` requests later."""
    half = BLOCK_EVENTS // 2
    events = np.zeros(BLOCK_EVENTS, SLOT_DTYPE)
    sector = rng.integers(0, 1 << 31, half).astype(np.uint64) * np.uint64(8)
    operation = rng.integers(0, 2, half).astype(np.uint32)
    ended = (np.arange(half) - DEPTH) % half
    for at, kind, request in ((0, Kind.ISSUE, np.arange(half)), (1, Kind.COMPLETE, ended)):
        mine = events[at::2]
        tag = (request % (2 * DEPTH)).astype(np.uint64)
        mine["key"] = np.uint64(0xFFFF888000000000) + np.uint64(256) * tag
        mine["kind_sector"] = np.uint64(int(kind) << 56) | sector[request]
        mine["cmd_flags"] = operation[request]
        mine["bytes"] = 4096
    events["pid"][0::2] = rng.integers(100, 108, half)
    return events


def feed(pipe: IO[bytes], events: int) -> None:
    """Send about so many events, time going on from block to block, then the end of the stream."""
    made = block(np.random.default_rng(1))
    jitter = np.random.default_rng(2).integers(0, GAP_NS // 2, BLOCK_EVENTS)
    _send(pipe, stream.HELLO, json.dumps(HELLO).encode())
    for number in range(-(-events // BLOCK_EVENTS)):
        made["ts_ns"] = (number * BLOCK_EVENTS + np.arange(BLOCK_EVENTS)) * GAP_NS + jitter
        data = made.tobytes()
        for first in range(0, len(data), CHUNK_BYTES):
            _send(pipe, stream.DATA, data[first : first + CHUNK_BYTES])
    pipe.close()


def _send(pipe: IO[bytes], kind: int, payload: bytes) -> None:
    pipe.write(struct.pack("<4sIQ", b"KVCF", kind, len(payload)) + payload)


def measure(events: int) -> dict[str, Any]:
    """Memory in MiB over the recording and its end, and what the recorder said."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "t.parquet"
        words = [sys.executable, "-m", "harness.capture.record_main", "--out", str(out)]
        environment = {**os.environ, **ALLOCATOR}
        recorder = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert recorder.stdin is not None and recorder.stdout is not None
        feeder = threading.Thread(target=feed, args=(recorder.stdin, events))
        started = time.monotonic()
        feeder.start()
        samples: list[float] = []
        fed_samples = 0
        peak = 0.0
        while recorder.poll() is None:
            now, highest = memory_mib(recorder.pid)
            samples.append(now)
            peak = max(peak, highest)
            fed_samples = len(samples) if feeder.is_alive() else fed_samples
            time.sleep(0.2)
        said = json.loads(recorder.stdout.read().splitlines()[-1])["result"]
        took_s = time.monotonic() - started
        rows = open_trace(out).rows
        bytes_a_row = out.stat().st_size / rows
    fed = samples[:fed_samples]
    tenth = max(1, len(fed) // 10)
    return {
        "events": said["events"], "requests": rows, "took_s": took_s,
        "hours_of_trace": said["events"] * GAP_NS / 3.6e12,
        "second_tenth_mib": max(fed[tenth : 2 * tenth]), "last_tenth_mib": max(fed[-tenth:]),
        "joining_mib": max(samples[fed_samples:], default=0.0), "peak_mib": peak,
        "pairing_us_an_event": 1e6 * said["cpu_s"]["pairing"] / said["events"],
        "writing_us_a_row": 1e6 * said["cpu_s"]["writing"] / rows, "bytes_a_row": bytes_a_row,
    }  # fmt: skip


def memory_mib(pid: int) -> tuple[float, float]:
    """Resident memory of a process, now and at most so far; 0 once it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0, 0.0
    found = dict(re.findall(r"(VmRSS|VmHWM):\s*(\d+) kB", text))
    return int(found.get("VmRSS", 0)) / 1024, int(found.get("VmHWM", 0)) / 1024


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=50_000_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.events)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    print(
        f"{found['events']:,} events, {found['hours_of_trace']:.2f} h of trace, recorded and "
        f"joined in {found['took_s']:.0f} s, {found['bytes_a_row']:.1f} bytes a row\n"
        f"memory: second tenth {found['second_tenth_mib']:.0f} MiB, last tenth "
        f"{found['last_tenth_mib']:.0f} MiB, joining {found['joining_mib']:.0f} MiB, "
        f"peak {found['peak_mib']:.0f} MiB\n"
        f"pairing {found['pairing_us_an_event']:.3f} us an event, writing "
        f"{found['writing_us_a_row']:.3f} us a row"
    )
    met = found["peak_mib"] <= GOAL_MIB
    print(f"{'met    ' if met else 'NOT met'}  peak <= {GOAL_MIB} MiB (256 with the ring)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
