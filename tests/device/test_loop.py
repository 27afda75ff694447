"""Loop devices: direct, sized, nameless, and gone with their process."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.core.errors import UsageError
from harness.device.info import block_name, device_info, is_present, read_stat
from harness.device.loop import LoopDevice, own_loop_devices

MIB = 1 << 20


@pytest.mark.root
@pytest.mark.parametrize("logical_block", [512, 4096])
def test_a_device_is_as_asked_and_leaves_nothing(tmp_path: Path, logical_block: int) -> None:
    with LoopDevice(64 * MIB, tmp_path, logical_block=logical_block) as device:
        info = device_info(device.path)
        assert info.size_bytes == device.size_bytes == 64 * MIB
        assert info.logical_block == logical_block
        assert info.name == device.name
        assert device.direct_io
        assert list(tmp_path.iterdir()) == []
        assert device.path in own_loop_devices()
    assert device.path not in own_loop_devices()
    assert not is_present(device.name)


@pytest.mark.root
def test_data_survives_until_close() -> None:
    with LoopDevice(MIB, "/dev/shm") as device:
        before = read_stat(device.name)
        fd = os.open(device.path, os.O_RDWR)
        os.pwrite(fd, b"x" * 4096, 8192)
        os.fsync(fd)
        os.close(fd)
        assert os.pread(device.backing_fd, 2, 8192) == b"xx"
        assert read_stat(device.name).since(before).write_sectors == 8


@pytest.mark.root
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_device_vanishes_with_a_killed_process(how: signal.Signals) -> None:
    program = (
        "from harness.device.loop import LoopDevice\n"
        "d = LoopDevice(1 << 20, '/dev/shm'); print(d.name, flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    name = process.stdout.readline().decode().strip()
    assert is_present(name)
    process.send_signal(how)
    process.wait()
    deadline = time.monotonic() + 5
    while Path(f"/sys/block/{name}/loop").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/sys/block/{name}/loop").exists()


@pytest.mark.root
def test_many_devices_at_once_are_distinct() -> None:
    devices = [LoopDevice(MIB, "/dev/shm") for _ in range(12)]
    try:
        assert len({device.path for device in devices}) == 12
    finally:
        for device in devices:
            device.close()


@pytest.mark.parametrize("size_bytes", [0, -512, 1000])
def test_a_size_that_cannot_be_is_refused(size_bytes: int) -> None:
    with pytest.raises(UsageError, match="positive multiple of 512"):
        LoopDevice(size_bytes, "/dev/shm")


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot make a file in"):
        LoopDevice(MIB, tmp_path / "missing")


def test_a_size_that_the_file_system_cannot_hold_is_refused() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        with pytest.raises(UsageError, match="cannot hold a file of 2 MiB"):
            LoopDevice(2 * MIB, "/dev/shm")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_block_name_refuses_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError, match="a regular file"):
        block_name(file)
