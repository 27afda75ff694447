"""What a capture does when something breaks: nothing is lost silently, nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.capture import probe as probe_module
from harness.capture.options import TraceOptions
from harness.capture.probe import SYSTEM_PYTHON
from harness.capture.session import Capture
from harness.cli.app import main
from harness.core.assets import asset_dir
from harness.core.errors import HarnessError, MachineError, MeasurementError
from harness.device.loop import LoopDevice
from harness.trace.parquet import open_trace
from tests.capture.conftest import Tracer, fio
from tests.capture.test_probe import write_direct

pytestmark = pytest.mark.root


def harness(*words: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "harness", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def until(condition: Any, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def test_a_killed_probe_leaves_the_trace_and_no_claim(loop: LoopDevice, tmp_path: Path) -> None:
    with Capture(loop.path, tmp_path / "t.parquet") as capture:
        write_direct(loop.path, 1, 2)
        time.sleep(0.3)
        assert isinstance(capture.probe, probe_module.LocalProbe)
        os.kill(capture.probe.pid, signal.SIGKILL)
        write_direct(loop.path, 3)
    assert capture.result is not None
    assert (capture.result.verdict, capture.result.requests) == ("UNKNOWN", 2)
    assert capture.result.details["complete"] is False
    assert open_trace(capture.result.trace).rows == 2


def test_a_killed_recorder_leaves_finished_segments(loop: LoopDevice, tmp_path: Path) -> None:
    options = TraceOptions((loop.path,), segment_s=0.1)
    out = tmp_path / "t.parquet"
    with (
        pytest.raises(MeasurementError, match="recorder died"),
        Capture(options, out) as capture,
    ):
        for block in range(20):
            write_direct(loop.path, block)
            time.sleep(0.1)
        os.kill(capture.recorder_pid, signal.SIGKILL)
    assert not out.exists()
    trace = open_trace(out)
    assert 0 < trace.rows <= 20
    assert "did not end cleanly" in " ".join(trace.meta.notes)


def test_a_killed_command_line_leaves_a_whole_trace(loop: LoopDevice, tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    words = ["capture", "--device", loop.path, "--out", str(out), "--seconds", "60"]
    with harness(*words) as process:
        until(lambda: (tmp_path / "t.parquet.parts").exists() and len(children(process.pid)) == 2)
        time.sleep(0.5)
        write_direct(loop.path, 1, 2, 3)
        process.kill()
    until(out.exists)
    assert open_trace(out).rows == 3
    assert open_trace(out).meta.verdict == "LOSSLESS"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_ends_cleanly(
    loop: LoopDevice, tmp_path: Path, number: signal.Signals
) -> None:
    flag = tmp_path / "running"
    script = f"touch {flag}; dd if=/dev/zero of={loop.path} bs=4k count=2 oflag=direct; sleep 60"
    words = ["capture", "--device", loop.path, "--results", str(tmp_path / "results")]
    with harness(*words, "--", "sh", "-c", script) as process:
        until(flag.exists)
        time.sleep(0.5)
        process.send_signal(number)
        process.wait(30)
    assert process.returncode == 130
    (folder,) = (tmp_path / "results").iterdir()
    assert folder.name.endswith(".partial")
    assert open_trace(folder / "trace.parquet").rows == 2
    assert json.loads((folder / "run.json").read_text())["state"] == "interrupted"


def test_what_has_no_other_end_ends_well_by_ctrl_c(loop: LoopDevice, tmp_path: Path) -> None:
    words = ["capture", "--device", loop.path, "--json", "--results", str(tmp_path / "results")]
    with harness(*words) as process:
        until(lambda: list((tmp_path).glob("results/*/trace.parquet.parts")))
        time.sleep(0.5)
        write_direct(loop.path, 7)
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    details = json.loads(said)
    assert (details["verdict"], details["requests"]) == ("LOSSLESS", 1)
    assert Path(details["trace"]).is_file()


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_one_message_and_no_trace(loop: LoopDevice, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "128k") as folder:
        out = folder / "t.parquet"
        with pytest.raises(HarnessError, match="No space left") as error, Capture(loop.path, out):
            fio(loop.path, "--rw=randread", "--bs=4k", "--size=64m", "--iodepth=8")
        assert error.value.exit_code == MachineError.exit_code
        assert not out.exists()


def test_a_device_that_goes_away_is_not_vouched_for(tmp_path: Path, trace_while: Tracer) -> None:
    control = Path("/sys/class/zram-control")
    if not control.exists():
        pytest.skip("no zram device can be added and removed")
    number = (control / "hot_add").read_text().strip()
    (Path(f"/sys/block/zram{number}") / "disksize").write_text("16M")

    def work() -> None:
        write_direct(f"/dev/zram{number}", 1, 2)
        (Path(f"/sys/block/zram{number}") / "reset").write_text("1")
        (control / "hot_remove").write_text(number)

    result = trace_while(TraceOptions((f"/dev/zram{number}",)), work)
    assert (result.verdict, result.requests) == ("UNKNOWN", 2)
    assert any("gone" in note for note in result.details["notes"])


def test_without_root_and_sudo_the_fix_is_said(
    loop: LoopDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="needs root"):
        probe_module.LocalProbe(TraceOptions((loop.path,)))


def test_a_sudo_that_asks_for_a_password_is_refused(
    loop: LoopDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "sudo"
    fake.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with (
        pytest.raises(MachineError, match="a password is required"),
        Capture(loop.path, tmp_path / "t.parquet"),
    ):
        pass


def test_an_unprivileged_loader_says_what_it_lacks(loop: LoopDevice, tmp_path: Path) -> None:
    copy = Path("/dev/shm") / f"harness-test-{os.getpid()}"
    shutil.copytree(asset_dir("ebpf"), copy)
    try:
        copy.chmod(copy.stat().st_mode | stat.S_IROTH | stat.S_IXOTH)
        done = subprocess.run(
            [SYSTEM_PYTHON, copy / "loader.py", "--device", loop.path],
            user=65534, group=65534, capture_output=True, input=b"", timeout=60, cwd="/",
            env={"PATH": os.environ["PATH"], "XDG_CACHE_HOME": "/nonexistent"},
        )  # fmt: skip
    finally:
        shutil.rmtree(copy)
    assert done.returncode == MachineError.exit_code
    assert b"needs root" in done.stdout


def test_the_failure_of_the_command_is_the_failure_of_the_capture(
    loop: LoopDevice, tmp_path: Path
) -> None:
    words = ["capture", "--device", loop.path, "--json", "--out", str(tmp_path / "t.parquet")]
    with harness(*words, "--", "sh", "-c", "echo noise; exit 7") as process:
        said, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "exit status 7" in errors and "noise" in errors
    details = json.loads(said)
    assert details["command_status"] == 7
    assert details["verdict"] == "LOSSLESS"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--device", "/dev/none", "--", "true"], 2, "No such file"),
        (["--device", "LOOP", "--", "no-such-command"], 2, "no such command"),
        (["--device", "LOOP", "--ops", "RX", "--seconds", "1"], 2, "unknown operations"),
        (["--device", "LOOP", "--cgroup", "/tmp", "--seconds", "1"], 2, "not a cgroup v2"),
        (["--device", "LOOP", "--device", "LOOP", "--seconds", "1"], 2, "named twice"),
        (["--device", "LOOP", "--seconds", "1", "--", "true"], 2, "exclude each other"),
        (["--", "true"], 2, "no device"),
    ],
)
def test_bad_input_is_one_clear_error(
    loop: LoopDevice,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    said: str,
) -> None:
    given = [loop.path if word == "LOOP" else word for word in words]
    out = ["--out", str(tmp_path / "t.parquet")]
    monkeypatch.setattr(sys, "argv", ["harness", "capture", *out, *given])
    with pytest.raises(SystemExit) as ended:
        main()
    errors = capsys.readouterr().err
    assert ended.value.code == code, errors
    assert said in errors and "Traceback" not in errors
    assert not list(tmp_path.iterdir())


def test_a_run_folder_holds_trace_and_verdict(loop: LoopDevice, tmp_path: Path) -> None:
    words = ["capture", "--device", loop.path, "--results", str(tmp_path)]
    write = ["dd", "if=/dev/zero", f"of={loop.path}", "bs=4k", "count=2", "oflag=direct"]
    with harness(*words, "--", *write) as process:
        said, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "LOSSLESS" in said and "2 requests" in said
    (folder,) = tmp_path.iterdir()
    record = json.loads((folder / "run.json").read_text())
    details = json.loads((folder / "capture.json").read_text())
    assert record["capture"]["verdict"] == details["verdict"] == "LOSSLESS"
    assert details["trace"] == str(folder / "trace.parquet")
    assert open_trace(folder / "trace.parquet").meta.command == " ".join(write)


def test_the_embedded_store_is_traced_on_a_device_of_its_own(tmp_path: Path) -> None:
    words = ["capture", "--json", "--results", str(tmp_path)]
    with harness(*words) as process:
        said, errors = process.communicate(timeout=150)
    assert process.returncode == 0, errors
    details = json.loads(said)
    assert details["verdict"] == "LOSSLESS", details["witness"]
    assert details["operations"]["R"]["requests"] and details["operations"]["W"]["requests"]


def test_without_btf_tracefs_is_mounted_while_it_is_needed(loop: LoopDevice) -> None:
    loader = asset_dir("ebpf") / "loader.py"
    # In a mount namespace of its own, so that the machine's tracefs stays where it is.
    script = (
        "umount -l /sys/kernel/tracing 2>/dev/null; "
        f"{SYSTEM_PYTHON} {loader} --no-btf --device {loop.path} < /dev/null; "
        "echo; grep -c tracefs /proc/mounts || true"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, timeout=60, check=True
    )
    assert done.stdout.startswith(b"KVCF\x01"), done.stderr
    assert b'"mode": "tracepoint"' in done.stdout
