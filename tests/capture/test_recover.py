"""What a killed recorder leaves becomes one trace, each request once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from harness.capture import stream
from harness.capture.recorder import Recorder
from harness.capture.records import SLOT_DTYPE
from harness.capture.recover import recover
from harness.capture.session import Capture
from harness.core.errors import MeasurementError, UsageError
from harness.device.loop import LoopDevice
from harness.trace import segments
from harness.trace.parquet import open_trace
from tests.capture.test_backlog import pair
from tests.capture.test_probe import write_direct
from tests.capture.test_recorder import HELLO

_SECOND = 1_000_000_000


class Killed(Exception):
    """Stands for the end of the recorder."""


def harness_trace_recover(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", "trace", "recover", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def put_raw(folder: Path, number: int, *payloads: bytes) -> None:
    """A raw file with these DATA frames."""
    folder.mkdir(exist_ok=True)
    frames = [(stream.HELLO, json.dumps(HELLO).encode())]
    frames += [(stream.DATA, payload) for payload in payloads]
    content = b"".join(stream.head(kind, len(data)) + data for kind, data in frames)
    segments.raw_name(folder, number).write_bytes(content)


def test_files_are_read_as_one_stream(tmp_path: Path) -> None:
    first, second, third = (pair(8 * n, n * _SECOND) for n in (1, 2, 3))
    folder = tmp_path / "t.parquet.parts"
    put_raw(folder, 0, first[0] + first[1], second[0])
    put_raw(folder, 1, second[1] + third[0], third[1])
    trace = recover(folder, tmp_path / "t.parquet")
    table = trace.table()
    assert table["lba"].to_pylist() == [8, 16, 24]
    assert table["ts_ns"].to_pylist() == [0, _SECOND, 2 * _SECOND]
    assert table["latency_ns"].to_pylist() == [5, 5, 5]
    assert trace.meta.verdict == "UNKNOWN"
    assert len(segments.raw(folder)) == 2


def test_records_that_are_rows_already_do_not_count_again(tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    pairs = [b"".join(pair(8 * n, n * _SECOND)) for n in (1, 2, 3)]
    recorder = Recorder(HELLO, out, "work", bios=False, segment_s=60.0)
    with pytest.raises(Killed), recorder:
        recorder.take(stream.DATA, np.frombuffer(pairs[0] + pairs[1], SLOT_DTYPE))
        recorder.take(stream.QUIET, None)
        raise Killed
    folder = segments.parts_folder(out)
    assert open_trace(folder).rows == 2
    put_raw(folder, 4, pairs[1], pairs[2])
    trace = recover(folder, out)
    assert trace.table()["ts_ns"].to_pylist() == [0, _SECOND, 2 * _SECOND]
    assert (trace.meta.verdict, trace.meta.command) == ("UNKNOWN", "work")
    assert "trace recover" not in " ".join(trace.meta.notes)


def test_an_empty_folder_holds_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no finished segment and no records"):
        recover(tmp_path, tmp_path / "t.parquet")


def test_a_file_that_is_no_stream_is_refused(tmp_path: Path) -> None:
    segments.raw_name(tmp_path, 0).write_bytes(b"")
    with pytest.raises(MeasurementError, match="does not begin as the probe's stream does"):
        recover(tmp_path, tmp_path / "t.parquet")


@pytest.mark.root
def test_what_waited_when_the_recorder_was_killed_is_saved(
    loop: LoopDevice, tmp_path: Path
) -> None:
    out, saved = tmp_path / "t.parquet", tmp_path / "saved.parquet"
    with pytest.raises(MeasurementError, match="recorder died"), Capture(loop.path, out) as capture:
        write_direct(loop.path, *range(20))
        deadline_s = time.monotonic() + 20
        while not segments.raw(segments.parts_folder(out)):
            write_direct(loop.path, 1)
            assert time.monotonic() < deadline_s
        time.sleep(0.1)
        os.kill(capture.recorder_pid, signal.SIGKILL)
    done = harness_trace_recover(f"{out}.parts", str(saved), "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    trace = open_trace(saved)
    assert said["rows"] == trace.rows > 0
    assert trace.meta.verdict == said["verdict"] == "UNKNOWN"
    assert set(trace.table()["op"].to_pylist()) == {"W"}
    again = harness_trace_recover(f"{out}.parts", str(saved))
    assert again.returncode == 2 and "exists" in again.stderr
    nothing = harness_trace_recover(str(tmp_path / "none.parts"), str(tmp_path / "x.parquet"))
    assert nothing.returncode == 2 and "no folder" in nothing.stderr
