"""The ways to trace that ``capture`` compares: ours, and others, each around a workload."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.capture import stream
from harness.capture.options import TraceOptions
from harness.capture.probe import SYSTEM_PYTHON, LocalProbe
from harness.capture.session import Capture
from harness.capture.stream import FrameReader
from harness.device.loop import LoopDevice

MEMORY = Path("/dev/shm")
PEERS = Path(__file__).with_name("capture_peers.py")
_CLONE_NEWNS = 0x20000


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


def start_peer(kind: str, loop: LoopDevice) -> subprocess.Popen[str]:
    """A program of ``capture_peers`` on the device, tracing; a line on its stdin ends it."""
    numbers = os.stat(loop.path).st_rdev
    process = subprocess.Popen(
        [SYSTEM_PYTHON, PEERS, kind, f"{os.major(numbers)}:{os.minor(numbers)}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    return process


def peer(kind: str) -> Variant:
    """One of ``capture_peers``, which says how many events it saw."""

    @contextmanager
    def run(loop: LoopDevice) -> Iterator[Watch]:
        watch = Watch()
        process = start_peer(kind, loop)
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
            deferred_mib=result.details["deferred"]["peak_bytes"] / (1 << 20),
            after_s=result.details["deferred"]["seconds_after_end"],
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


def mount_tracing() -> None:
    """tracefs and debugfs for the other tools, in a mount namespace of this process."""
    if ctypes.CDLL(None).unshare(_CLONE_NEWNS):
        return
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for kind, place in (("tracefs", "/sys/kernel/tracing"), ("debugfs", "/sys/kernel/debug")):
        subprocess.run(["mount", "-t", kind, kind, place], capture_output=True, check=False)


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
