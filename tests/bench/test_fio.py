"""fio is believed only where the kernel's counters agree, and every fault has its message."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.bench.fio import Fio, find_fio, parse_job, parse_version, read_output, run_fio
from harness.bench.fiojobs import SENTINEL_BYTES, iolog_v2, reference_job, replay_plan
from harness.core.errors import MachineError, MeasurementError, UsageError
from harness.device.info import read_stat
from harness.device.loop import LoopDevice

MIB = 1 << 20


@pytest.fixture(scope="module")
def fio() -> Fio:
    try:
        return find_fio()
    except MachineError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopDevice]:
    with LoopDevice(64 * MIB, tmp_path_factory.mktemp("loop")) as loop:
        with open(loop.path, "wb") as file:
            for _ in range(64):
                file.write(os.urandom(MIB))
        yield loop


def plan(count: int, length: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    offsets = (np.arange(count, dtype=np.uint64) * np.uint64(stride)) % np.uint64(60 * MIB)
    return offsets, np.full(count, length, dtype=np.uint64)


@pytest.mark.root
@pytest.mark.parametrize(("depth", "length"), [(1, MIB), (8, MIB), (32, 65536)])
def test_a_plan_is_read_as_a_whole(fio: Fio, device: LoopDevice, depth: int, length: int) -> None:
    offsets, lengths = plan(400, length, 3 * length)
    before = read_stat(device.name).read_sectors
    result = replay_plan(fio, device.path, offsets, lengths, queue_depth=depth)
    sentinels = (depth if depth > 1 else 0) * SENTINEL_BYTES
    moved = (read_stat(device.name).read_sectors - before) * 512
    assert result.counted_bytes <= moved <= 400 * length + sentinels
    # All but what is in flight at the end was counted, sentinels included.
    assert 400 * length - (depth - 1) * length <= result.counted_bytes
    assert result.counted_bytes <= 400 * length + sentinels
    assert result.commands == 400 + (depth if depth > 1 else 0)
    assert result.gbps == pytest.approx(result.counted_bytes / result.seconds / 1e9)
    assert result.engine == f"fio/{fio.log_engine()}"


@pytest.mark.root
def test_a_plan_beyond_the_device_is_refused(fio: Fio, device: LoopDevice) -> None:
    offsets, lengths = np.array([64 * MIB], np.uint64), np.array([4096], np.uint64)
    with pytest.raises(UsageError, match="beyond the device's 67108864"):
        replay_plan(fio, device.path, offsets, lengths, queue_depth=1)


@pytest.mark.root
@pytest.mark.parametrize(("offset", "length"), [(100, 4096), (0, 100), (0, 0)])
def test_unaligned_and_empty_commands_are_refused(
    fio: Fio, device: LoopDevice, offset: int, length: int
) -> None:
    with pytest.raises(UsageError, match="empty or unaligned"):
        replay_plan(
            fio, device.path, np.array([offset], np.uint64), np.array([length], np.uint64),
            queue_depth=1,
        )  # fmt: skip


@pytest.mark.root
def test_reads_that_others_make_meanwhile_are_noticed(
    fio: Fio, device: LoopDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets, lengths = plan(64, MIB, MIB)
    real = run_fio

    def with_stranger(*args, **kwargs):  # type: ignore[no-untyped-def]
        outcome = real(*args, **kwargs)
        handle = os.open(device.path, os.O_RDONLY | os.O_DIRECT)
        try:
            import mmap

            page = mmap.mmap(-1, MIB)
            for number in range(4):
                os.preadv(handle, [page], number * MIB)
        finally:
            os.close(handle)
        return outcome

    monkeypatch.setattr("harness.bench.fiojobs.run_fio", with_stranger)
    with pytest.raises(MeasurementError, match="somebody else"):
        replay_plan(fio, device.path, offsets, lengths, queue_depth=4)


@pytest.mark.root
def test_a_read_error_of_the_device_is_an_error(fio: Fio, tmp_path: Path) -> None:
    with LoopDevice(16 * MIB, tmp_path) as loop:
        os.ftruncate(loop.backing_fd, 4 * MIB)  # reads beyond now fail in the device
        offsets, lengths = np.array([8 * MIB], np.uint64), np.array([MIB], np.uint64)
        with pytest.raises(MeasurementError, match="fio"):
            replay_plan(fio, loop.path, offsets, lengths, queue_depth=1)


@pytest.mark.root
@pytest.mark.parametrize("rw", ["read", "randread"])
def test_reference_jobs_are_counted_by_the_kernel_too(
    fio: Fio, device: LoopDevice, rw: str
) -> None:
    before = read_stat(device.name).read_sectors
    result = reference_job(
        fio, device.path, rw=rw, block_bytes=MIB, queue_depth=4, region=(0, 32 * MIB),
        seconds=0.2, threads=2,
    )  # fmt: skip
    moved = (read_stat(device.name).read_sectors - before) * 512
    assert result.counted_bytes == moved == result.commands * MIB
    assert result.seconds == pytest.approx(0.2, abs=0.15)
    assert result.latency_us is not None and result.latency_us["p50"] > 0


@pytest.mark.root
def test_bytes_that_only_fio_saw_are_an_error(
    fio: Fio, device: LoopDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.bench import fiojobs

    real = fiojobs.parse_job

    def invented(*args, **kwargs):  # type: ignore[no-untyped-def]
        result = real(*args, **kwargs)
        return replace(result, counted_bytes=result.counted_bytes * 2)

    monkeypatch.setattr(fiojobs, "parse_job", invented)
    with pytest.raises(MeasurementError, match="did not happen"):
        reference_job(
            fio, device.path, rw="read", block_bytes=MIB, queue_depth=1, region=(0, MIB),
            seconds=0.05,
        )  # fmt: skip


@pytest.mark.root
def test_a_region_too_small_for_the_threads_is_refused(fio: Fio, device: LoopDevice) -> None:
    with pytest.raises(UsageError, match="do not fit"):
        reference_job(
            fio, device.path, rw="read", block_bytes=MIB, queue_depth=1, region=(0, MIB),
            seconds=0.05, threads=2,
        )  # fmt: skip


def test_the_log_has_the_reads_in_order_and_then_the_sentinels() -> None:
    offsets, lengths = np.array([8192, 0], np.uint64), np.array([4096, 512], np.uint64)
    assert iolog_v2("/dev/x", offsets, lengths, 2).splitlines() == [
        "fio version 2 iolog", "/dev/x add", "/dev/x open",
        "/dev/x read 8192 4096", "/dev/x read 0 512",
        "/dev/x read 8192 4096", "/dev/x read 8192 4096",
        "/dev/x close",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "version", "engine"),
    [
        ("fio-3.33", (3, 33), "io_uring"),
        ("fio-3.40-12-gabcdef", (3, 40), "io_uring"),
        ("fio-3.41", (3, 41), "libaio"),
    ],
)
def test_versions_choose_an_engine_without_a_known_fault(
    text: str, version: tuple[int, ...], engine: str
) -> None:
    found = parse_version("fio", text)
    assert (found.version, found.log_engine()) == (version, engine)


@pytest.mark.parametrize("text", ["fio-3.27", "fio-2.21", "", "bash: fio: not found"])
def test_old_or_strange_versions_are_refused(text: str) -> None:
    with pytest.raises(MachineError):
        parse_version("fio", text)


def test_a_missing_fio_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError) as caught:
        find_fio()
    assert caught.value.fix == "apt-get install fio"


def fake(folder: Path, script: str) -> Fio:
    path = folder / "fake-fio"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return Fio(str(path), "fio-3.33", (3, 33))


def test_fio_killed_mid_run(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="SIGKILL"):
        run_fio(fake(tmp_path, "kill -9 $$"), [], tmp_path, 10)


def test_fio_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="fio failed: it broke"):
        run_fio(fake(tmp_path, "echo it broke; exit 1"), [], tmp_path, 10)


def test_fio_that_hangs_is_ended(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="did not end within"):
        run_fio(fake(tmp_path, f"echo $$ > {tmp_path}/pid; sleep 60"), [], tmp_path, 0.5)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGCONT)


def test_a_result_that_is_cut_off(tmp_path: Path) -> None:
    whole = json.dumps({"jobs": [{"error": 0}]})
    path = tmp_path / "out.json"
    path.write_text("note: something fio wanted to say\n" + whole)
    assert read_output(path) == {"error": 0}
    path.write_text(whole[:-4])
    with pytest.raises(MeasurementError, match="cut off"):
        read_output(path)
    with pytest.raises(MeasurementError, match="cut off"):
        read_output(tmp_path / "missing.json")


def job(**changes: object) -> dict[str, object]:
    side = {
        "short_ios": 0, "drop_ios": 0, "runtime": 500, "io_bytes": 1000, "total_ios": 3,
        "clat_ns": {"max": 9000, "percentile": {"50.000000": 2000, "99.000000": 8000}},
    }  # fmt: skip
    side.update(changes)
    return {"error": 0, "usr_cpu": 10.0, "sys_cpu": 30.0, "job_runtime": 500, "read": side}


def test_a_job_record_becomes_a_result() -> None:
    result = parse_job(job(), "read", "io_uring")
    assert (result.counted_bytes, result.commands, result.seconds) == (1000, 3, 0.5)
    assert result.cpu_seconds == pytest.approx(0.2)
    assert result.latency_us == {"p50": 2.0, "p99": 8.0, "max": 9.0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"short_ios": 1}, "short or dropped"),
        ({"io_bytes": 0}, "moved no bytes"),
        ({"runtime": 0}, "moved no bytes"),
    ],
)
def test_success_that_moved_nothing_is_no_success(changes: dict[str, object], words: str) -> None:
    with pytest.raises(MeasurementError, match=words):
        parse_job(job(**changes), "read", "io_uring")


def test_a_device_error_is_named() -> None:
    with pytest.raises(MeasurementError, match="Input/output error"):
        parse_job({**job(), "error": 5}, "read", "io_uring")
