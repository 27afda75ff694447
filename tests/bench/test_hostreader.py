"""The host reader behaves as kvikio's file does, and the double buffer never overtakes itself."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from harness.bench.doublebuffer import Layer, layers_of, restore
from harness.bench.hostreader import HostReader
from harness.bench.plans import Plan
from harness.core.errors import MeasurementError, UsageError
from harness.device.buffers import AlignedPool

KIB = 1024


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    # Not under a tmpfs, where O_DIRECT may be unknown.
    path = tmp_path_factory.mktemp("reader") / "data"
    content = os.urandom(1 << 20)
    path.write_bytes(content)
    return path, content


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("task", [4 * KIB, 64 * KIB, 1 << 20])
@pytest.mark.parametrize(("offset", "size"), [(0, 256 * KIB), (4 * KIB, 512 * KIB), (777, 12345)])
def test_reads_are_exact(
    data: tuple[Path, bytes], direct: bool, task: int, offset: int, size: int
) -> None:
    path, content = data
    buffer = AlignedPool(1, 1 << 20).memory[0]
    with HostReader(path, direct=direct, threads=4, task_bytes=task) as reader:
        future = reader.pread(buffer, size, offset)
        assert future.get() == size
        assert future.done()
    assert buffer[:size].tobytes() == content[offset : offset + size]
    assert reader.transport == ("posix-direct" if direct else "posix-buffered")


@pytest.mark.parametrize("direct", [True, False])
def test_unaligned_memory_and_the_end_of_the_file(data: tuple[Path, bytes], direct: bool) -> None:
    path, content = data
    buffer = bytearray(100_001)
    with HostReader(path, direct=direct) as reader:
        got = reader.read(memoryview(buffer)[1:], file_offset=len(content) - 5000)
    assert got == 5000
    assert bytes(buffer[1:5001]) == content[-5000:]


def test_an_io_error_is_named(data: tuple[Path, bytes]) -> None:
    path, _ = data
    reader = HostReader(path)
    os.close(reader._fd)
    try:
        with pytest.raises(MeasurementError, match="read at 0 failed: Bad file descriptor"):
            reader.read(bytearray(4096))
    finally:
        reader._fd = -1
        reader.close()


def test_misuse_is_refused(tmp_path: Path, data: tuple[Path, bytes]) -> None:
    with pytest.raises(UsageError, match="cannot open"):
        HostReader(tmp_path / "missing")
    with pytest.raises(UsageError, match="multiple of 4096"):
        HostReader(data[0], task_bytes=1000)
    with (
        HostReader(data[0]) as reader,
        pytest.raises(UsageError, match="8192 bytes do not fit a buffer of 4096"),
    ):
        reader.pread(bytearray(4096), 8192)


class Recorder:
    """A reader whose reads complete only when waited for; it notes the order of events."""

    def __init__(self, content: np.ndarray, short_at: int | None = None) -> None:
        self.content, self.short_at, self.events = content, short_at, []  # type: ignore[var-annotated]

    def pread(self, buf: np.ndarray, size: int | None = None, file_offset: int = 0) -> Recorder:
        assert size == len(buf)
        self.events.append(("ask", file_offset))
        return _Flight(self, buf, file_offset)  # type: ignore[return-value]


class _Flight:
    def __init__(self, owner: Recorder, buf: np.ndarray, offset: int) -> None:
        self._owner, self._buf, self._offset = owner, buf, offset

    def get(self) -> int:
        self._buf[:] = self._owner.content[self._offset : self._offset + len(self._buf)]
        return len(self._buf) - (self._offset == self._owner.short_at)


def test_a_layer_is_asked_for_only_after_the_one_before_the_last_was_scattered() -> None:
    content = np.random.default_rng(1).integers(0, 255, 1000, dtype=np.uint8)
    layers = [Layer(((100 * n, 30), (100 * n + 50, 20))) for n in range(5)]
    reader, landed = Recorder(content), {}

    def scatter(number: int, filled: np.ndarray) -> None:
        reader.events.append(("scatter", number))
        landed[number] = filled.copy()

    seconds = restore(reader, layers, [np.zeros(50, np.uint8) for _ in range(2)], scatter)
    assert seconds > 0
    for number in range(5):
        start = 100 * number
        expected = np.concatenate((content[start : start + 30], content[start + 50 : start + 70]))
        assert np.array_equal(landed[number], expected)
    at = {event: place for place, event in enumerate(reader.events)}
    for number in range(2, 5):
        assert at["scatter", number - 2] < at["ask", 100 * number]
    # Two layers are under way before the first is waited for.
    assert at["ask", 150] < at["scatter", 0]
    assert [e for e in reader.events if e[0] == "scatter"] == [("scatter", n) for n in range(5)]


def test_a_short_read_names_the_layer() -> None:
    content = np.zeros(1000, np.uint8)
    layers = [Layer(((100 * n, 50),)) for n in range(3)]
    with pytest.raises(MeasurementError, match="layer 1: 49 of 50 bytes"):
        restore(
            Recorder(content, short_at=100), layers, [np.zeros(50, np.uint8)] * 2,
            lambda number, filled: None,
        )  # fmt: skip


def test_a_plan_falls_into_its_layers() -> None:
    plan = Plan(
        np.array([0, 8192, 4096], np.uint64), np.array([4096, 4096, 512], np.uint64),
        np.array([0, 0, 1]), 8704,
    )  # fmt: skip
    assert layers_of(plan) == [Layer(((0, 4096), (8192, 4096))), Layer(((4096, 512),))]
    assert layers_of(plan)[0].size_bytes == 8192
