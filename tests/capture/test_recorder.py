"""The recorder process, fed by hand."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from harness.capture.records import SLOT_DTYPE, Kind
from harness.capture.session import ALLOCATOR
from harness.trace.parquet import open_trace
from tests.capture.test_faults import until


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    small, large = (_peak_memory_mib(tmp_path / f"{n}.parquet", n) for n in (1, 4))
    assert large < small + 24
    assert large < 200  # the ring and the loader have their share of the 256 MiB


def _peak_memory_mib(out: Path, million_events: int) -> float:
    """Of a recorder that is fed so many events, in blocks of a million."""
    events = np.zeros(1 << 20, SLOT_DTYPE)
    half = len(events) // 2
    request = np.arange(len(events), dtype=np.uint64) // np.uint64(2) % np.uint64(512)
    events["key"] = np.uint64(0xFFFF888000000000) + np.uint64(64) * request
    events["kind_sector"][0::2] = int(Kind.ISSUE) << 56 | np.arange(half) * 8
    events["kind_sector"][1::2] = int(Kind.COMPLETE) << 56 | np.arange(half) * 8
    events["bytes"] = 4096
    words = [sys.executable, "-m", "harness.capture.record_main", "--out", str(out)]
    environment = {**os.environ, **ALLOCATOR}
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment
    ) as recorder:
        assert recorder.stdin is not None
        _send(recorder.stdin, 1, json.dumps(HELLO).encode())
        for block in range(million_events):
            events["ts_ns"] = (block * len(events) + np.arange(len(events))) * 4000
            data = events.tobytes()
            for first in range(0, len(data), 1 << 20):
                _send(recorder.stdin, 2, data[first : first + (1 << 20)])
        recorder.stdin.flush()
        until(lambda: _waits_for_input(recorder.pid), 60)
        status = Path(f"/proc/{recorder.pid}/status").read_text()
        recorder.stdin.close()
    assert open_trace(out).rows == million_events * half
    return int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) / 1024


def _send(pipe: Any, kind: int, payload: bytes) -> None:
    pipe.write(struct.pack("<4sIQ", b"KVCF", kind, len(payload)) + payload)


def _waits_for_input(pid: int) -> bool:
    """Whether a process has slept for a while, with nothing left to read."""
    before = Path(f"/proc/{pid}/schedstat").read_text().split()[0]
    time.sleep(0.3)
    after = Path(f"/proc/{pid}/schedstat").read_text().split()[0]
    return int(after) - int(before) < 10_000_000


HELLO = {
    "kernel": "6.1", "host": "here", "notes": [], "by_issuer": False, "mode": "raw",
    "rings": 1,
    "clock": {"realtime_ns": 0, "monotonic_ns": 0},
    "meaning": {
        "ops": {"0": "R"}, "status": "blk",
        "flags": dict.fromkeys(("sync", "meta", "fua", "preflush", "readahead", "background"), 20),
    },
    "devices": [
        {
            "name": "none", "path": "/dev/none", "dev": 0, "bio_based": False, "hidden_paths": [],
            "first_sector": None, "sectors": None, "logical_block": 512, "facts": {"name": "none"},
            "before_ns": 0, "after_ns": 0, "stat": None, "inflight": [0, 0], "iostats": True,
            "counters": {"before": {}, "after": {}},
        }
    ],
}  # fmt: skip


def _record(tmp_path: Path, stream: bytes) -> tuple[int, list[dict[str, Any]]]:
    words = [sys.executable, "-m", "harness.capture.record_main", "--out", tmp_path / "t.parquet"]
    done = subprocess.run(words, input=stream, capture_output=True, timeout=60)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def _frame(kind: int, payload: bytes) -> bytes:
    return struct.pack("<4sIQ", b"KVCF", kind, len(payload)) + payload


def test_the_loaders_error_is_passed_on(tmp_path: Path) -> None:
    content = json.dumps({"message": "no bcc", "fix": "install it", "code": 3}).encode()
    code, (said,) = _record(tmp_path, _frame(5, content))
    assert (code, said["error"], said["fix"]) == (3, "no bcc", "install it")


def test_a_stream_that_ends_before_it_begins_is_an_error(tmp_path: Path) -> None:
    code, (said,) = _record(tmp_path, b"")
    assert code == 1 and "before it was attached" in said["error"]


def test_something_else_than_a_stream_is_an_error(tmp_path: Path) -> None:
    code, (said,) = _record(tmp_path, b"#!/bin/sh\necho hello world\n")
    assert code == 1 and "not a stream of the probe" in said["error"]


def test_a_stream_cut_inside_a_frame_keeps_the_whole_frames(tmp_path: Path) -> None:
    events = np.zeros(2, SLOT_DTYPE)
    events["kind_sector"] = [int(Kind.ISSUE) << 56 | 8, int(Kind.COMPLETE) << 56 | 8]
    events["bytes"], events["ts_ns"] = 4096, [1, 2]
    whole = _frame(1, json.dumps(HELLO).encode()) + _frame(2, events.tobytes())
    code, (_, last) = _record(tmp_path, whole + _frame(2, events.tobytes())[:-5])
    assert code == 0
    assert (last["result"]["requests"], last["result"]["verdict"]) == (1, "UNKNOWN")
    assert last["result"]["complete"] is False


def test_a_completion_waits_for_its_issue_from_another_ring(tmp_path: Path) -> None:
    events = np.zeros(2, SLOT_DTYPE)
    events["kind_sector"] = [int(Kind.ISSUE) << 56 | 8, int(Kind.COMPLETE) << 56 | 8]
    events["bytes"], events["ts_ns"] = 4096, [1, 2]
    words = [sys.executable, "-m", "harness.capture.record_main", "--out", tmp_path / "t.parquet"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as recorder:
        assert recorder.stdin is not None and recorder.stdout is not None
        _send(recorder.stdin, 1, json.dumps({**HELLO, "rings": 2}).encode())
        _send(recorder.stdin, 2, events[1:].tobytes())
        recorder.stdin.flush()
        recorder.stdout.readline()  # it is at work
        time.sleep(1.0)  # longer than records are gathered
        _send(recorder.stdin, 2, events[:1].tobytes())
        _send(recorder.stdin, 7, struct.pack("<q", 3))
        recorder.stdin.close()
        result = json.loads(recorder.stdout.readline())["result"]
    assert (result["requests"], result["without_latency"]) == (1, 0)
    assert result["pairing"]["unpaired_completions"] == 0


def test_loader_and_recorder_speak_of_the_same_frames() -> None:
    import frames

    from harness.capture import stream

    names = ("HELLO", "DATA", "STOP", "END", "ERROR", "DATA_DEFLATE", "MARK")
    assert [getattr(frames, n) for n in names] == [getattr(stream, n) for n in names]
    assert SLOT_DTYPE.itemsize == frames.RECORD_BYTES
