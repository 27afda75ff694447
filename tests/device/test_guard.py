"""The device guard: every way in which data could be lost is refused, with the reason."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.core.errors import MachineError, UsageError
from harness.device.guard import identify, open_guarded
from harness.device.loop import LoopDevice

MIB = 1 << 20


@contextmanager
def foreign_loop(image: Path, size_bytes: int = 32 * MIB) -> Iterator[str]:
    """A loop device that is not ours: made by losetup, over a file with a name."""
    if not image.exists():
        with image.open("wb") as file:
            file.truncate(size_bytes)
    command = ["losetup", "--find", "--show", str(image)]
    path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield path
    finally:
        subprocess.run(["losetup", "--detach", path], check=True)


def refusal(path: str | Path, destroy: str | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        open_guarded(path, destroy=destroy).close()
    return str(caught.value)


def partition_table() -> bytes:
    """A DOS partition table with one Linux partition of 8 MiB at 1 MiB."""
    entry = bytes([0, 0, 2, 0, 0x83, 0, 2, 0])
    entry += (2048).to_bytes(4, "little") + (16384).to_bytes(4, "little")
    return bytes(446) + entry + bytes(48) + b"\x55\xaa"


@pytest.mark.root
def test_a_clean_device_named_twice_is_opened_exclusively(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    with foreign_loop(image) as path:
        assert identify(path).value == str(image)
        with open_guarded(path, destroy=str(image)) as target:
            assert target.size_bytes == 32 * MIB
            assert target.logical_block == 512
            assert "in use" in refusal(path, destroy=str(image))
            with pytest.raises(OSError, match="busy"):
                os.open(path, os.O_RDWR | os.O_EXCL)
        open_guarded(path, destroy=str(image)).close()


@pytest.mark.root
def test_naming_the_device_once_or_wrongly_is_not_enough(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    with foreign_loop(image) as path:
        with pytest.raises(UsageError) as caught:
            open_guarded(path)
        assert caught.value.fix is not None
        assert f"--destroy '{image}'" in caught.value.fix
        assert "its backing file is" in refusal(path, destroy="S1234")
        assert "its backing file is" in refusal(path, destroy=path)


@pytest.mark.root
def test_a_file_system_is_refused_mounted_or_not(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    with foreign_loop(image) as path:
        subprocess.run(["mkfs.ext4", "-q", path], check=True)
        assert "signature (ext4)" in refusal(path, destroy=str(image))
        place = tmp_path / "mounted here"
        place.mkdir()
        subprocess.run(["mount", path, str(place)], check=True)
        try:
            assert f"mounted: {path} on {place}" in refusal(path, destroy=str(image))
        finally:
            subprocess.run(["umount", str(place)], check=True)


@pytest.mark.root
def test_swap_is_refused(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    with foreign_loop(image) as path:
        subprocess.run(["mkswap", path], check=True, capture_output=True)
        assert "signature (swap)" in refusal(path, destroy=str(image))


@pytest.mark.root
def test_partitions_are_refused_seen_by_the_kernel_or_not(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(partition_table() + bytes(32 * MIB - 512))
    with foreign_loop(image) as path:
        subprocess.run(["partx", "--add", path], check=True)
        try:
            assert f"has partitions: {Path(path).name}p1" in refusal(path, destroy=str(image))
        finally:
            subprocess.run(["partx", "--delete", path], check=True)
    with foreign_loop(image) as path:
        assert "partition table (dos)" in refusal(path, destroy=str(image))


@pytest.mark.root
def test_a_device_that_another_process_has_open_is_refused(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    program = "import sys, os; os.open(sys.argv[1], os.O_RDWR); print('open', flush=True); input()"
    with foreign_loop(image) as path:
        other = subprocess.Popen(
            [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"open\n"
            os.close(os.open(path, os.O_RDWR | os.O_EXCL))  # O_EXCL alone sees nothing
            assert f"({other.pid})" in refusal(path, destroy=str(image))
        finally:
            other.communicate(b"\n")
        open_guarded(path, destroy=str(image)).close()


@pytest.mark.root
def test_a_device_under_another_device_is_refused(tmp_path: Path) -> None:
    """No device mapper here, so the holder is what the kernel would show: a claim by O_EXCL."""
    image = tmp_path / "disk.img"
    with foreign_loop(image) as path:
        claim = os.open(path, os.O_RDWR | os.O_EXCL)
        try:
            assert "holds it exclusively" in refusal(path, destroy=str(image))
        finally:
            os.close(claim)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda p: p.write_bytes(bytes(4096)), "a regular file, not a block device"),
        (lambda p: p.mkdir(), "a directory, not a block device"),
        (lambda p: p.symlink_to("/dev/null"), "a character device, not a block device"),
        (lambda p: None, "no such device"),
    ],
)
def test_what_is_no_block_device_is_refused(tmp_path: Path, make: object, reason: str) -> None:
    path = tmp_path / "thing"
    assert callable(make)
    make(path)
    assert reason in refusal(path, destroy="4096")


@pytest.mark.root
def test_a_loop_device_with_nothing_behind_it_is_refused() -> None:
    with LoopDevice(MIB, "/dev/shm") as device:
        path = device.path
    assert "nothing is attached" in refusal(path, destroy="0")


@pytest.mark.root
def test_own_loop_devices_need_no_second_name_and_may_hold_anything() -> None:
    with LoopDevice(32 * MIB, "/dev/shm") as device:
        subprocess.run(["mkfs.ext4", "-q", device.path], check=True)
        with open_guarded(device.path, own=True) as target:
            assert target.size_bytes == 32 * MIB
            assert "in use" in refusal(device.path)
        open_guarded(device.path).close()


@pytest.mark.root
def test_a_mounted_own_loop_device_is_refused(tmp_path: Path) -> None:
    with LoopDevice(32 * MIB, "/dev/shm") as device:
        subprocess.run(["mkfs.ext4", "-q", device.path], check=True)
        subprocess.run(["mount", device.path, str(tmp_path)], check=True)
        try:
            assert "mounted" in refusal(device.path)
        finally:
            subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.root
def test_own_is_checked_not_believed(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    with foreign_loop(image) as path, pytest.raises(UsageError, match="not made by this command"):
        open_guarded(path, destroy=str(image), own=True)


@pytest.mark.root
def test_reading_needs_no_permission_to_destroy(tmp_path: Path) -> None:
    with foreign_loop(tmp_path / "disk.img") as path:
        subprocess.run(["mkfs.ext4", "-q", path], check=True)
        with open_guarded(path, read_only=True) as target, pytest.raises(OSError, match="Bad file"):
            os.pwrite(target.fd, bytes(4096), 0)


@pytest.mark.root
def test_without_blkid_nothing_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = tmp_path / "disk.img"
    with foreign_loop(image) as path:
        monkeypatch.setattr("shutil.which", lambda *_, **__: None)
        with pytest.raises(MachineError, match="blkid is missing"):
            open_guarded(path, destroy=str(image))


@pytest.mark.root
def test_pages_that_others_left_in_the_cache_are_dropped(tmp_path: Path) -> None:
    """A direct write over cached pages would block, and with NOWAIT it is refused."""
    image = tmp_path / "disk.img"
    with foreign_loop(image) as path:
        reader = os.open(path, os.O_RDONLY)
        os.pread(reader, 64 << 10, 0)
        os.close(reader)
        with open_guarded(path, destroy=str(image)) as target, mmap.mmap(-1, 64 << 10) as buffer:
            assert os.pwritev(target.fd, [buffer], 0, os.RWF_NOWAIT) == 64 << 10


@pytest.mark.root
def test_a_partition_is_guarded_by_its_disk_and_named_apart(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(partition_table() + bytes(32 * MIB - 512))
    with foreign_loop(image) as path:
        subprocess.run(["partx", "--add", path], check=True)
        part = f"{path}p1"
        name = f"{image}:{Path(part).name}"
        try:
            assert identify(part).value == name
            assert "is not" in refusal(part, destroy=str(image))
            holder = os.open(path, os.O_RDWR)
            try:
                open_guarded(part, destroy=name).close()  # our own descriptor is no stranger's
                other = subprocess.Popen(["sleep", "60"], pass_fds=[holder])
                try:
                    assert f"({other.pid})" in refusal(part, destroy=name)
                finally:
                    other.kill()
                    other.wait()
            finally:
                os.close(holder)
            open_guarded(part, destroy=name).close()
        finally:
            subprocess.run(["partx", "--delete", path], check=True)
