"""Loop devices that vanish with the process that made them, also after kill -9.

The device is configured in one step (LOOP_CONFIGURE, Linux 5.8) with autoclear, its backing file
has no name any more by the time anyone can see the device, and the only descriptor that keeps it
alive is ours: when the process dies, however it dies, the kernel detaches the device and frees
the space.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import tempfile
from pathlib import Path
from types import TracebackType
from weakref import WeakValueDictionary

from harness.core.errors import MachineError, UsageError
from harness.core.signals import uninterrupted
from harness.core.units import format_size

_LOOP_CTL_GET_FREE = 0x4C82
_LOOP_CONFIGURE = 0x4C0A
_LOOP_GET_STATUS64 = 0x4C05
_BLKPG, _BLKPG_DEL_PARTITION = 0x1269, 2
_LO_FLAGS_AUTOCLEAR = 4
_LO_FLAGS_DIRECT_IO = 16
_CLAIM_ATTEMPTS = 64


class _LoopInfo(ctypes.Structure):
    """``struct loop_info64`` of linux/loop.h."""

    _fields_ = (
        ("device", ctypes.c_uint64),
        ("inode", ctypes.c_uint64),
        ("rdevice", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("sizelimit", ctypes.c_uint64),
        ("number", ctypes.c_uint32),
        ("encrypt_type", ctypes.c_uint32),
        ("encrypt_key_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("file_name", ctypes.c_char * 64),
        ("crypt_name", ctypes.c_char * 64),
        ("encrypt_key", ctypes.c_char * 32),
        ("init", ctypes.c_uint64 * 2),
    )


class _LoopConfig(ctypes.Structure):
    """``struct loop_config`` of linux/loop.h."""

    _fields_ = (
        ("fd", ctypes.c_uint32),
        ("block_size", ctypes.c_uint32),
        ("info", _LoopInfo),
        ("reserved", ctypes.c_uint64 * 8),
    )


class _Partition(ctypes.Structure):
    """``struct blkpg_partition`` of linux/blkpg.h."""

    _fields_ = (
        ("start", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("number", ctypes.c_int),
        ("names", ctypes.c_char * 128),
    )


class _PartitionOrder(ctypes.Structure):
    """``struct blkpg_ioctl_arg`` of linux/blkpg.h."""

    _fields_ = (
        ("op", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("size", ctypes.c_int),
        ("data", ctypes.c_void_p),
    )


_own: WeakValueDictionary[str, LoopDevice] = WeakValueDictionary()


class LoopDevice:
    """A loop device over a sparse, nameless file. Use as a context manager.

    Parameters
    ----------
    size_bytes
        Size of the device, a multiple of ``logical_block``.
    directory
        Folder whose file system holds the data; nothing is left in it.
    direct_io
        Ask that the device bypass the page cache; ``direct_io`` of the object says whether the
        file system could.
    logical_block
        Logical block size in bytes.

    Raises
    ------
    MachineError
        Not root, no loop driver, or no free device.
    UsageError
        A size that is not a multiple of the block, or a folder that cannot hold the file.
    """

    def __init__(
        self,
        size_bytes: int,
        directory: str | Path,
        *,
        direct_io: bool = True,
        logical_block: int = 512,
    ) -> None:
        if size_bytes <= 0 or size_bytes % logical_block:
            raise UsageError(
                f"size of a loop device must be a positive multiple of {logical_block}: "
                f"{size_bytes}"
            )
        self.size_bytes = size_bytes
        self.logical_block = logical_block
        self._fd = -1
        self.name = self.path = ""
        with uninterrupted():
            self.backing_fd = _nameless_file(Path(directory), size_bytes)
            try:
                flags = _LO_FLAGS_AUTOCLEAR | (_LO_FLAGS_DIRECT_IO if direct_io else 0)
                self._fd, number = _claim(self.backing_fd, logical_block, flags)
            except BaseException:
                os.close(self.backing_fd)
                raise
        self.name = f"loop{number}"
        self.path = f"/dev/{self.name}"
        self.direct_io = bool(_status(self._fd).flags & _LO_FLAGS_DIRECT_IO)
        _own[self.path] = self

    def close(self) -> None:
        """Give the device up; the kernel detaches it once the last user has closed it."""
        if self._fd >= 0:
            _own.pop(self.path, None)
            fds, self._fd = (self._fd, self.backing_fd), -1
            for fd in fds:
                os.close(fd)

    def __del__(self) -> None:
        """Whoever loses the object, by an interruption say, must not keep the device."""
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    def is_ours_still(self) -> bool:
        """Whether the device of that name still has our file behind it."""
        if self._fd < 0:
            return False
        try:
            return _status(self._fd).inode == os.fstat(self.backing_fd).st_ino
        except OSError:
            return False

    def __enter__(self) -> LoopDevice:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def own_loop_devices() -> frozenset[str]:
    """Paths of the loop devices that this process made and still holds."""
    return frozenset(path for path, device in list(_own.items()) if device.is_ours_still())


def _nameless_file(directory: Path, size_bytes: int) -> int:
    """A sparse file without a name, open for direct I/O where the file system knows that."""
    try:
        handle, name = tempfile.mkstemp(prefix=".harness-loop-", dir=directory)
    except OSError as error:
        raise UsageError(f"cannot make a file in {directory}: {error.strerror}") from error
    os.close(handle)
    try:
        try:
            fd = os.open(name, os.O_RDWR | os.O_DIRECT)
        except OSError:
            fd = os.open(name, os.O_RDWR)
    finally:
        os.unlink(name)
    try:
        os.ftruncate(fd, size_bytes)
    except OSError as error:
        os.close(fd)
        raise UsageError(
            f"{directory} cannot hold a file of {format_size(size_bytes)}: {error.strerror}"
        ) from error
    return fd


def _claim(backing_fd: int, logical_block: int, flags: int) -> tuple[int, int]:
    """Configure a free loop device; its descriptor and number."""
    config = _LoopConfig(fd=backing_fd, block_size=logical_block)
    config.info.flags = flags
    for _ in range(_CLAIM_ATTEMPTS):
        number = _free_number()
        try:
            fd = os.open(f"/dev/loop{number}", os.O_RDWR)
        except OSError as error:
            raise _refused(error) from error
        try:
            fcntl.ioctl(fd, _LOOP_CONFIGURE, config)
        except OSError as error:
            os.close(fd)
            # Between asking for a free number and taking it, another process may have been faster.
            if error.errno == errno.EBUSY:
                continue
            raise _refused(error) from error
        _drop_leftovers(fd, number)
        return fd, number
    raise MachineError("no free loop device: others take them faster than we can")


def _drop_leftovers(fd: int, number: int) -> None:
    """Forget partitions that an earlier user of the device told the kernel of and left behind.

    Ours has none, but as long as the kernel lists them nobody may write to the device.
    """
    name = f"loop{number}"
    for entry in Path(f"/sys/class/block/{name}").glob(f"{name}p*"):
        partition = _Partition(number=int(entry.name.removeprefix(f"{name}p")))
        order = _PartitionOrder(
            op=_BLKPG_DEL_PARTITION,
            size=ctypes.sizeof(partition),
            data=ctypes.addressof(partition),
        )
        fcntl.ioctl(fd, _BLKPG, order)


def _free_number() -> int:
    try:
        control = os.open("/dev/loop-control", os.O_RDWR)
    except OSError as error:
        raise _refused(error) from error
    try:
        return fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
    except OSError as error:
        raise _refused(error) from error
    finally:
        os.close(control)


def _refused(error: OSError) -> MachineError:
    fix = {
        errno.ENOENT: "load the driver: modprobe loop",
        errno.ENODEV: "load the driver: modprobe loop",
        errno.ENXIO: "load the driver: modprobe loop",
        errno.EACCES: "run as root (making a loop device needs it)",
        errno.EPERM: "run as root (making a loop device needs it)",
    }.get(error.errno or 0)
    return MachineError(f"cannot make a loop device: {error.strerror}", fix=fix)


def _status(fd: int) -> _LoopInfo:
    info = _LoopInfo()
    fcntl.ioctl(fd, _LOOP_GET_STATUS64, info)
    return info
