"""The probe on this kernel: what it records, filters, and loses."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from harness.capture.options import TraceOptions
from harness.capture.recorder import bios_path
from harness.capture.session import Capture
from harness.core.errors import HarnessError, UsageError
from harness.core.ops import SECTOR_BYTES
from harness.device.loop import LoopDevice
from harness.trace.columns import latencies
from harness.trace.merge import MergedTrace
from harness.trace.parquet import open_trace
from harness.trace.schema import FLAG_SYNC
from tests.capture.conftest import Tracer, fio

pytestmark = pytest.mark.root

BLOCK = 4096


def write_direct(path: str, *blocks: int, size: int = BLOCK) -> None:
    """Write at block numbers, one request after the other."""
    buffer = mmap.mmap(-1, size)
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    try:
        for block in blocks:
            os.pwritev(fd, [buffer], block * BLOCK)
    finally:
        os.close(fd)


def test_every_request_is_recorded_as_it_was_made(loop: LoopDevice, trace_while: Tracer) -> None:
    result = trace_while(
        TraceOptions((loop.path,)), lambda: write_direct(loop.path, 5, 3, 9, size=2 * BLOCK)
    )
    assert (result.verdict, result.requests, result.lost) == ("LOSSLESS", 3, 0)
    trace = open_trace(result.trace)
    table = trace.table()
    assert table["lba"].to_pylist() == [40, 24, 72]
    assert table["bytes"].to_pylist() == [8192] * 3
    assert table["op"].to_pylist() == ["W"] * 3
    assert table["pages"].to_pylist() == [2] * 3
    assert table["queue_depth"].to_pylist() == [1] * 3
    assert table["pid"].to_pylist() == [os.getpid()] * 3
    assert table["error"].to_pylist() == [0] * 3
    assert all(flags & FLAG_SYNC for flags in table["flags"].to_pylist())
    numbers = os.stat(loop.path).st_rdev
    assert set(table["dev"].to_pylist()) == {os.major(numbers) << 20 | os.minor(numbers)}
    ts_ns, latency_ns = table["ts_ns"].to_numpy(), latencies(table["latency_ns"])
    assert ts_ns[0] == 0 and (latency_ns > 0).all()
    assert (ts_ns[1:] >= ts_ns[:-1] + latency_ns[:-1]).all()  # one after the other
    assert trace.meta.verdict == "LOSSLESS"
    assert trace.meta.device is not None
    assert trace.meta.device.size_bytes == loop.size_bytes


def test_a_busy_device_is_recorded_without_a_gap(loop: LoopDevice, trace_while: Tracer) -> None:
    done: dict[str, int] = {}
    result = trace_while(
        TraceOptions((loop.path,)),
        lambda: done.update(
            fio(loop.path, "--rw=randrw", "--bs=4k", "--iodepth=16", "--number_ios=20000",
                "--fsync=64", "--size=64m", "--loops=10")
        ),
    )  # fmt: skip
    operations = result.details["operations"]
    assert result.verdict == "LOSSLESS", result.details
    assert operations["R"]["requests"] == done["read"]
    assert operations["W"]["requests"] == done["write"]
    assert operations["F"]["requests"] > 0
    counts = result.details["witness"][loop.name]["counts"]
    assert counts["read_sectors"]["kernel"] == done["read"] * BLOCK // SECTOR_BYTES
    depth = open_trace(result.trace).table(["queue_depth"])["queue_depth"].to_numpy()
    assert 8 < depth.max() <= 20 + result.completions_lost  # 16, and flushes
    assert result.details["without_latency"] == result.completions_lost


@pytest.mark.parametrize("btf", [True, False])
def test_what_several_cpus_do_at_once_is_recorded_in_order(
    loop: LoopDevice, tmp_path: Path, btf: bool
) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        pytest.skip("one CPU here, and so one ring")
    with Capture(TraceOptions((loop.path,), btf=btf), tmp_path / "t.parquet") as capture:
        # Each job on its part, so that without BTF no two requests look the same.
        fio(loop.path, "--rw=randrw", "--bs=4k", "--iodepth=4", "--size=16m",
            "--offset_increment=16m", "--time_based", "--runtime=1", "--numjobs=4",
            f"--cpus_allowed={cpus[0]},{cpus[1]}", "--cpus_allowed_policy=split")  # fmt: skip
    assert capture.hello["rings"] > 1
    result = capture.result
    assert result is not None and result.verdict == "LOSSLESS", result and result.details
    pairing = result.details["pairing"]
    # An issue behind its completion would leave the latter without a request, and a time that
    # had to be moved would be one that came after younger ones had been written.
    assert (pairing["unpaired_completions"], pairing["moved"]) == (0, 0)
    assert result.details["without_latency"] == result.completions_lost
    table = open_trace(result.trace).table(["ts_ns", "latency_ns", "comm"])
    ts_ns = table["ts_ns"].to_numpy()
    assert (ts_ns[1:] >= ts_ns[:-1]).all()
    assert "fio" in set(table["comm"].to_pylist())


def test_without_btf_the_same_requests_are_seen(loop: LoopDevice, trace_while: Tracer) -> None:
    done: dict[str, int] = {}
    result = trace_while(
        TraceOptions((loop.path,), btf=False),
        lambda: done.update(
            fio(loop.path, "--rw=randrw", "--bs=4k", "--iodepth=8", "--size=16m", "--fsync=100")
        ),
    )
    assert result.verdict == "LOSSLESS", result.details
    operations = result.details["operations"]
    assert operations["R"]["requests"] == done["read"]
    assert operations["W"]["requests"] == done["write"]
    assert any("no BTF" in note for note in result.details["notes"])
    assert "no BTF" in " ".join(open_trace(result.trace).meta.notes)


def test_a_ring_too_small_loses_and_says_how_much(loop: LoopDevice, trace_while: Tracer) -> None:
    done: dict[str, int] = {}
    result = trace_while(
        TraceOptions((loop.path,), ring_mib=0.004),
        lambda: done.update(
            fio(loop.path, "--rw=randread", "--bs=4k", "--iodepth=32", "--size=64m")
        ),
    )
    assert result.verdict == "LOSSY" and result.lost > 0
    assert result.requests + result.lost == done["read"]
    assert sum(result.details["ring_full_per_cpu"]["lost_issues"]) == result.lost


def test_a_failed_request_has_its_error(loop: LoopDevice, trace_while: Tracer) -> None:
    os.ftruncate(loop.backing_fd, 32 << 20)

    def read_beyond() -> None:
        fd = os.open(loop.path, os.O_RDONLY | os.O_DIRECT)
        try:
            with pytest.raises(OSError):
                os.preadv(fd, [mmap.mmap(-1, BLOCK)], 48 << 20)
        finally:
            os.close(fd)

    result = trace_while(TraceOptions((loop.path,)), read_beyond)
    assert open_trace(result.trace).table(["error"])["error"].to_pylist() == [-5]


def test_discards_and_zeroes_have_names(loop: LoopDevice, trace_while: Tracer) -> None:
    def discard() -> None:
        for words in (["--offset", "1048576"], ["--zeroout", "--offset", "4194304"]):
            subprocess.run(["blkdiscard", *words, "--length", "1048576", loop.path], check=True)

    result = trace_while(TraceOptions((loop.path,)), discard)
    operations = result.details["operations"]
    assert operations["D"] == {"requests": 1, "bytes": 1 << 20}
    assert operations["Z"]["bytes"] == 1 << 20
    assert result.verdict == "LOSSLESS", result.details["witness"]


def test_bios_show_what_was_asked_before_splitting(loop: LoopDevice, trace_while: Tracer) -> None:
    result = trace_while(
        TraceOptions((loop.path,), bios=True),
        lambda: write_direct(loop.path, 0, 2048, size=4 << 20),
    )
    table = open_trace(bios_path(result.trace)).table()
    assert sum(table["bytes"].to_pylist()) == result.details["operations"]["W"]["bytes"] == 8 << 20
    assert result.details["bios"]["requests"] < result.requests
    assert set(table["source"].to_pylist()) == {"bio"}
    assert table["latency_ns"].null_count == len(table)
    assert result.details["devices"][loop.name]["splits"] > 0


def test_only_wanted_operations_are_recorded(loop: LoopDevice, trace_while: Tracer) -> None:
    result = trace_while(
        TraceOptions((loop.path,), operations="W"),
        lambda: fio(loop.path, "--rw=randrw", "--bs=4k", "--size=8m", "--iodepth=4"),
    )
    assert set(result.details["operations"]) == {"W"}
    assert result.details["devices"][loop.name]["rejected_R_requests"] > 0
    assert result.verdict == "LOSSLESS", result.details["witness"]


def test_a_process_is_followed_with_its_children(loop: LoopDevice, trace_while: Tracer) -> None:
    script = (
        "import os,mmap,subprocess,sys,time\n"
        "sys.stdin.readline()\n"
        f"write=['dd','if=/dev/zero','of={loop.path}','bs=4k','count=3','oflag=direct']\n"
        "subprocess.run(write, stderr=subprocess.DEVNULL)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as other:

        def work() -> None:
            write_direct(loop.path, 100, 101)  # ours: not wanted
            other.communicate(b"\n")

        result = trace_while(TraceOptions((loop.path,), pids=(other.pid,)), work)
    table = open_trace(result.trace).table(["lba", "comm"])
    assert table["lba"].to_pylist() == [0, 8, 16]
    assert set(table["comm"].to_pylist()) == {"dd"}
    assert result.details["devices"][loop.name]["rejected_W_requests"] == 2
    assert result.verdict == "LOSSLESS", result.details["witness"]
    assert any("not attributed" in note for note in result.details["notes"])


# Its first thread ends, the second one writes when it is told to.
_TWO_THREADS = """
import ctypes, os, mmap, sys, threading
def write():
    sys.stdin.readline()
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT)
    os.pwritev(fd, [mmap.mmap(-1, 4096)], 5 * 4096)
    os._exit(0)
threading.Thread(target=write).start()
ctypes.CDLL(None).syscall(60, 0)
"""


def test_a_process_is_followed_until_its_last_thread_ends(
    loop: LoopDevice, trace_while: Tracer
) -> None:
    words = [sys.executable, "-c", _TWO_THREADS, loop.path]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as other:
        status = Path(f"/proc/{other.pid}/stat")

        def work() -> None:
            deadline = time.monotonic() + 20
            while status.read_text().rpartition(")")[2].split()[0] != "Z":
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert len(list(Path(f"/proc/{other.pid}/task").iterdir())) > 1
            other.communicate(b"\n")

        result = trace_while(TraceOptions((loop.path,), pids=(other.pid,)), work)
    assert open_trace(result.trace).table(["lba"])["lba"].to_pylist() == [40]
    assert result.verdict == "LOSSLESS", result.details["witness"]


@contextmanager
def cgroup() -> Iterator[Path]:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    place = next((fields[1] for fields in mounts if fields[2] == "cgroup2"), None)
    if place is None:
        pytest.skip("no cgroup v2 is mounted")
    folder = Path(place) / f"harness-test-{os.getpid()}"
    folder.mkdir()
    (folder / "below").mkdir()
    try:
        yield folder
    finally:
        (folder / "below").rmdir()
        folder.rmdir()


def test_a_cgroup_is_followed_with_those_below(loop: LoopDevice, trace_while: Tracer) -> None:
    def inside(folder: Path, block: int) -> None:
        def join() -> None:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

        subprocess.run(
            ["dd", "if=/dev/zero", f"of={loop.path}", "bs=4k", "count=1", f"seek={block}",
             "oflag=direct"],
            preexec_fn=join, check=True, capture_output=True,
        )  # fmt: skip

    with cgroup() as folder:

        def work() -> None:
            inside(folder, 1)
            write_direct(loop.path, 2)
            inside(folder / "below", 3)

        result = trace_while(TraceOptions((loop.path,), cgroup=f"/{folder.name}"), work)
    assert open_trace(result.trace).table(["lba"])["lba"].to_pylist() == [8, 24]


def test_a_partition_is_its_part_of_the_disk(loop: LoopDevice, trace_while: Tracer) -> None:
    if shutil.which("addpart") is None:
        pytest.skip("addpart is missing (util-linux)")
    part = f"{loop.path}p1"
    subprocess.run(["addpart", loop.path, "1", "2048", "40960"], check=True)
    try:
        deadline = time.monotonic() + 5
        while not os.path.exists(part) and time.monotonic() < deadline:
            time.sleep(0.05)

        def work() -> None:
            write_direct(part, 0)
            write_direct(loop.path, 16000)  # behind the partition

        result = trace_while(TraceOptions((part,)), work)
    finally:
        subprocess.run(["delpart", loop.path, "1"], check=True)
    assert open_trace(result.trace).table(["lba"])["lba"].to_pylist() == [2048]
    assert any("is a partition" in note for note in result.details["notes"])
    assert result.verdict == "LOSSLESS", result.details["witness"]


@contextmanager
def zram() -> Iterator[str]:
    free = Path("/sys/block/zram0")
    if not free.exists() or (free / "disksize").read_text().strip() != "0":
        pytest.skip("no free zram device")
    (free / "disksize").write_text("16M")
    (free / "queue/iostats").write_text("1")
    try:
        yield "/dev/zram0"
    finally:
        (free / "reset").write_text("1")


def test_a_device_without_requests_is_traced_by_its_bios(trace_while: Tracer) -> None:
    with zram() as path:
        result = trace_while(TraceOptions((path,)), lambda: write_direct(path, 1, 2, 3))
    table = open_trace(result.trace).table()
    assert table["lba"].to_pylist() == [8, 16, 24]
    assert set(table["source"].to_pylist()) == {"bio"}
    assert (latencies(table["latency_ns"]) > 0).all()
    assert result.lost == 0


def test_two_captures_at_once_do_not_disturb_each_other(
    loop: LoopDevice, tmp_path: Path, trace_while: Tracer
) -> None:
    with Capture(loop.path, tmp_path / "outer.parquet") as outer:
        write_direct(loop.path, 1)
        inner = trace_while(TraceOptions((loop.path,)), lambda: write_direct(loop.path, 2, 3))
        write_direct(loop.path, 4)
    assert outer.result is not None
    assert (outer.result.verdict, outer.result.requests) == ("LOSSLESS", 4)
    assert (inner.verdict, inner.requests) == ("LOSSLESS", 2)


def test_captures_of_one_host_merge_on_its_clock(
    loop: LoopDevice, tmp_path: Path, trace_while: Tracer
) -> None:
    """The later capture began first, and saw its first request last."""
    with LoopDevice(16 << 20, tmp_path) as other:
        early, late = tmp_path / "early.parquet", tmp_path / "late.parquet"
        with Capture(other.path, late):
            with Capture(loop.path, early):
                write_direct(loop.path, 1)
            begun_s = time.clock_gettime(time.CLOCK_MONOTONIC), time.time()
            write_direct(other.path, 2)
    traces = [open_trace(early), open_trace(late)]
    merged = MergedTrace(traces)
    rows = [row for batch in merged.batches(["lba", "ts_ns"]) for row in batch.to_pylist()]
    metas = [trace.meta for trace in traces]
    zeros = [meta.clock_zero_ns for meta in metas]
    assert zeros[0] is not None and zeros[1] is not None
    assert rows == [{"lba": 8, "ts_ns": 0}, {"lba": 16, "ts_ns": zeros[1] - zeros[0]}]
    assert 0 <= zeros[1] / 1e9 - begun_s[0] < 5
    started = datetime.fromisoformat(metas[1].started or "")
    assert abs(started.timestamp() - begun_s[1]) < 5


def test_a_time_namespace_changes_nothing(loop: LoopDevice, tmp_path: Path) -> None:
    """The probe stamps with the kernel's clock, whatever the namespace makes of it."""
    inside = ["unshare", "--time", "--monotonic", "86400"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no time namespaces here")
    out = tmp_path / "t.parquet"
    write = ["dd", "if=/dev/zero", f"of={loop.path}", "bs=4k", "count=3", "oflag=direct"]
    before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    words = ["capture", "--device", loop.path, "--out", str(out), "--", *write]
    subprocess.run([*inside, sys.executable, "-m", "harness", *words], check=True)
    meta = open_trace(out).meta
    assert (meta.verdict, open_trace(out).rows) == ("LOSSLESS", 3)
    assert meta.clock_zero_ns is not None and 0 < meta.clock_zero_ns - before_ns < 60 * 10**9


def test_two_devices_in_one_trace(loop: LoopDevice, tmp_path: Path, trace_while: Tracer) -> None:
    with LoopDevice(16 << 20, tmp_path) as other:

        def work() -> None:
            write_direct(loop.path, 1)
            write_direct(other.path, 2)

        result = trace_while(TraceOptions((loop.path, other.path)), work)
    table = open_trace(result.trace).table(["lba", "dev"])
    assert table["lba"].to_pylist() == [8, 16]
    assert len(set(table["dev"].to_pylist())) == 2
    assert set(result.details["witness"]) == {loop.name, other.name}
    assert result.verdict == "LOSSLESS"


@pytest.mark.parametrize(
    ("device", "said"),
    [("/dev/no-such-device", "No such file"), ("/etc/hostname", "not a block device")],
)
def test_what_is_no_device_is_one_clear_error(tmp_path: Path, device: str, said: str) -> None:
    with pytest.raises(HarnessError, match=said) as error, Capture(device, tmp_path / "t.parquet"):
        pass
    assert error.value.exit_code == UsageError.exit_code
    assert not list(tmp_path.iterdir())


def test_a_dead_process_cannot_be_followed(loop: LoopDevice, tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    options = TraceOptions((loop.path,), pids=(gone.pid,))
    with pytest.raises(HarnessError, match="no process"), Capture(options, tmp_path / "t.parquet"):
        pass
