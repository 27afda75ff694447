"""Frames that wait on disk: their order, their files, and what lets them go."""

from __future__ import annotations

import json
import os
import queue
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.capture import backlog, stream
from harness.capture.backlog import Backlog
from harness.capture.records import SLOT_DTYPE, Kind
from harness.capture.recover import recover
from harness.capture.stream import Frame
from harness.core.errors import UsageError
from harness.trace import segments
from harness.trace.parquet import Trace, open_trace
from harness.trace.segments import raw
from tests.capture.test_faults import until
from tests.capture.test_recorder import HELLO

FIRST: Frame = (stream.HELLO, json.dumps(HELLO).encode())


class Source:
    """Frames by hand, and a machine that is busy as told."""

    def __init__(self) -> None:
        self._frames: queue.Queue[Frame | Exception | None] = queue.Queue()
        self.busy = False
        self.taken = 0

    def put(self, *payloads: bytes) -> None:
        """More DATA."""
        for payload in payloads:
            self._frames.put((stream.DATA, payload))

    def mark(self, ts_ns: int) -> None:
        """A MARK."""
        self._frames.put((stream.MARK, struct.pack("<q", ts_ns)))

    def end(self, error: Exception | None = None) -> None:
        """No more."""
        self._frames.put(error)

    def frames(self) -> Iterator[Frame]:
        """What was put."""
        while frame := self._frames.get():
            if isinstance(frame, Exception):
                raise frame
            yield frame
            self.taken += 1


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def trickle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the first frame goes while the machine is busy."""
    monkeypatch.setattr(backlog, "_QUIET_S", 0.2)
    monkeypatch.setattr(backlog, "_TRICKLE_BYTES_PER_S", 1)


@pytest.fixture
def waiting(source: Source, tmp_path: Path, trickle: None) -> Backlog:
    return Backlog(source.frames(), tmp_path, FIRST, lambda: source.busy)


def hold(source: Source, frames: Iterator[Frame], *payloads: bytes) -> None:
    """Put frames while the machine is busy, of which the first trickles through."""
    source.busy = True
    source.put(b"trickle", *payloads)
    assert next(frames)[1] == b"trickle"
    until(lambda: source.taken == 1 + len(payloads))
    assert next(frames)[0] == stream.HELD


def test_where_there_is_time_nothing_goes_to_disk(
    source: Source, waiting: Backlog, tmp_path: Path
) -> None:
    frames = waiting.frames()
    source.put(b"a", b"b")
    assert [next(frames)[1] for _ in range(2)] == [b"a", b"b"]
    assert next(frames)[0] == stream.QUIET
    assert (raw(tmp_path), waiting.peak_bytes) == ([], 0)


def test_what_is_held_back_comes_in_order_when_there_is_time(
    source: Source, waiting: Backlog, tmp_path: Path
) -> None:
    frames = waiting.frames()
    hold(source, frames, b"a", b"bb")
    assert len(raw(tmp_path)) == 1
    source.busy = False
    source.put(b"c")
    assert [next(frames)[1] for _ in range(3)] == [b"a", b"bb", b"c"]
    assert raw(tmp_path) == []
    assert waiting.peak_bytes >= 3


def test_the_end_lets_all_go(source: Source, waiting: Backlog, tmp_path: Path) -> None:
    frames = waiting.frames()
    hold(source, frames, b"a", b"b")
    source.end()
    assert [payload for kind, payload in frames if kind == stream.DATA] == [b"a", b"b"]
    assert raw(tmp_path) == []
    assert waiting.seconds_after_end > 0


def test_a_large_backlog_does_not_wait_for_time(
    source: Source, waiting: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = waiting.frames()
    hold(source, frames, b"a" * 10)
    monkeypatch.setattr(backlog, "BACKLOG_BYTES", 9)
    assert next(frames)[1] == b"a" * 10


def test_a_backlog_that_grows_faster_than_it_is_read_is_bounded(
    source: Source, waiting: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "BACKLOG_BYTES", 20)
    source.busy = True
    source.put(*[b"a" * 15] * 6)
    until(lambda: source.taken == 3)  # 45 bytes wait
    time.sleep(0.2)
    assert source.taken == 3
    frames = waiting.frames()
    source.busy = False
    assert [next(frames)[1] for _ in range(6)] == [b"a" * 15] * 6


def test_files_go_one_by_one(
    source: Source, waiting: Backlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "_FILE_BYTES", len(FIRST[1]) + 100)
    frames = waiting.frames()
    hold(source, frames, *[bytes([n]) * 60 for n in range(6)])
    before = len(raw(tmp_path))
    assert before > 1
    source.busy = False
    assert [next(frames)[1][0] for _ in range(4)] == [0, 1, 2, 3]
    assert len(raw(tmp_path)) < before


@pytest.mark.parametrize("busy", [False, True])
def test_an_error_comes_after_what_came_before_it(
    source: Source, waiting: Backlog, busy: bool
) -> None:
    source.busy = busy
    source.put(b"a", b"b")
    source.end(OSError(28, "No space left on device"))
    got: list[bytes | bytearray] = []
    with pytest.raises(OSError, match="No space left"):
        got.extend(payload for kind, payload in waiting.frames() if kind == stream.DATA)
    assert got == [b"a", b"b"]


def test_a_mark_that_follows_nothing_on_disk_needs_no_file(
    source: Source, waiting: Backlog, tmp_path: Path
) -> None:
    frames = waiting.frames()
    source.busy = True
    source.put(b"trickle")
    assert next(frames)[1] == b"trickle"
    source.mark(1)
    assert next(frames)[0] == stream.MARK
    assert raw(tmp_path) == []


def test_what_a_killed_recorder_leaves_on_disk_becomes_a_trace(
    source: Source, waiting: Backlog, tmp_path: Path
) -> None:
    issue, end = pair(8, 1)
    hold(source, waiting.frames(), issue, end)
    trace = recovered(tmp_path)
    assert (trace.rows, trace.meta.verdict) == (1, "UNKNOWN")


@pytest.mark.usefixtures("trickle")
def test_of_several_rings_all_is_left_also_inside_a_round(source: Source, tmp_path: Path) -> None:
    hello = (stream.HELLO, json.dumps({**HELLO, "rings": 2}).encode())
    waiting = Backlog(source.frames(), tmp_path, hello, lambda: source.busy)
    first, second, third = (pair(8 * n, 10 * n) for n in (1, 2, 3))
    frames = waiting.frames()
    hold(source, frames, first[1] + second[1], first[0] + second[0])
    source.mark(40)
    source.put(third[1], third[0])
    until(lambda: source.taken == 6)
    trace = recovered(tmp_path)
    assert trace.table()["latency_ns"].to_pylist() == [5, 5, 5]
    assert not any("issue was not seen" in note for note in trace.meta.notes)


def pair(sector: int, ts_ns: int) -> tuple[bytes, bytes]:
    """The records of a request's issue and of its completion."""
    events = np.zeros(2, SLOT_DTYPE)
    events["kind_sector"] = [int(Kind.ISSUE) << 56 | sector, int(Kind.COMPLETE) << 56 | sector]
    events["bytes"], events["ts_ns"], events["key"] = 4096, [ts_ns, ts_ns + 5], 64 * sector
    return events[:1].tobytes(), events[1:].tobytes()


def recovered(folder: Path) -> Trace:
    """What is said of the trace of the only file on disk, without the frame that held no record."""
    (left,) = raw(folder)
    head = stream.head(stream.DATA, 7) + b"trickle"
    left.write_bytes(left.read_bytes().replace(head, b""))
    return recover(folder, folder / "t.parquet")


def test_readers_say_what_is_not_in_an_unfinished_trace(tmp_path: Path) -> None:
    folder = segments.parts_folder(tmp_path / "t.parquet")
    os.mkdir(folder)
    segments.raw_name(folder, 0).touch()
    with pytest.raises(UsageError, match="no finished segment") as error:
        open_trace(tmp_path / "t.parquet")
    assert "harness trace recover" in str(error.value.fix)
