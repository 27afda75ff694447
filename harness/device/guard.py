"""The one door to writing on a block device: everything that writes comes through here.

A device is opened for writing only when nobody can lose data by it: it is not mounted, not
swap, has no holders (LVM, RAID, dm-crypt), is open in no other process, carries no partition
table and no signature that libblkid knows, and was named twice by the caller. Loop devices
that this process made itself (``harness.device.loop``) are exempt from being named twice and
from the look at their content; nothing else is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from harness.core.errors import MachineError, UsageError
from harness.device.info import DeviceInfo, block_name, device_info, parent_disk, partitions
from harness.device.loop import own_loop_devices
from harness.device.users import holders, mounts, other_openers, swaps

# After a device appears, udev's helpers open it for a moment.
_TRANSIENT_OPENER_S = 2.0
_BLKID_NOTHING = 2
_PLACE = ("DEVNAME", "PART_ENTRY_")
"""What blkid says of an empty partition: where it lies, nothing of what is on it."""
_BLKFLSBUF = 0x1261


@dataclass(frozen=True)
class DeviceId:
    """What ``--destroy`` must repeat: the most specific identity that the device has."""

    kind: str
    value: str


@dataclass
class Target:
    """A block device that the guard let through. Use as a context manager.

    ``fd`` is opened with O_DIRECT, and O_RDWR and O_EXCL unless ``read_only``.
    """

    fd: int
    path: str
    size_bytes: int
    logical_block: int
    info: DeviceInfo
    read_only: bool

    @property
    def name(self) -> str:
        """Kernel name, such as ``nvme0n1``."""
        return self.info.name

    def close(self) -> None:
        """Close the descriptor; harmless when already closed."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Target:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def identify(path: str | Path) -> DeviceId:
    """The identity by which ``--destroy`` must name ``path``.

    Its serial number, else its WWID, else a loop device's backing path, else its size in bytes;
    a partition's ends in ``:NAME``, since all of a disk's share the rest.
    """
    return _identity(device_info(path))


def open_guarded(
    path: str | Path, *, destroy: str | None = None, own: bool = False, read_only: bool = False
) -> Target:
    """Open a block device for direct I/O, if nobody can lose data by it.

    Parameters
    ----------
    path
        The block device.
    destroy
        The device's identity (see ``identify``), which the user gives as ``--destroy ID``.
    own
        Insist that the device is a loop device made by this process.
    read_only
        Open for reading only; then content and users of the device do not matter.

    Raises
    ------
    UsageError
        The device must not be written to, and why.
    MachineError
        The machine cannot tell (not root, no blkid) or denies the opening.
    """
    name = block_name(path)
    real_path = f"/dev/{name}" if Path(f"/dev/{name}").exists() else str(path)
    is_own = real_path in own_loop_devices()
    if own and not is_own:
        raise UsageError(f"{path} was not made by this command")
    info = device_info(path)
    if info.size_bytes == 0:
        raise UsageError(f"{path} has no size: nothing is attached to it")
    if read_only:
        return _target(_open(path, os.O_RDONLY), info, read_only=True)
    _refuse_in_use(path, name)
    if not is_own:
        _refuse_unnamed(path, info, destroy)
    fd = _open(path, os.O_RDWR | os.O_EXCL)
    try:
        if not is_own:
            # Only now: from here on nobody can mount or claim the device under our hands.
            _refuse_other_openers(path, name)
            _refuse_content(path, name)
        _forget_cached_pages(fd)
        return _target(fd, info, read_only=False)
    except BaseException:
        os.close(fd)
        raise


def _target(fd: int, info: DeviceInfo, *, read_only: bool) -> Target:
    return Target(fd, info.path, info.size_bytes, info.logical_block, info, read_only)


def _open(path: str | Path, mode: int) -> int:
    try:
        return os.open(path, mode | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise UsageError(f"{path} is in use: another program holds it exclusively") from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise MachineError(
                f"no permission to open {path}", fix="run as root (block devices need it)"
            ) from error
        raise MachineError(f"cannot open {path}: {error.strerror}") from error


def _forget_cached_pages(fd: int) -> None:
    """Drop what buffered readers (blkid, udev) left in the page cache.

    A direct write over cached pages cannot be submitted without blocking, and would lose its place.
    """
    try:
        fcntl.ioctl(fd, _BLKFLSBUF)
    except OSError as error:
        raise MachineError(f"cannot drop the device's page cache: {error.strerror}") from error


def _identity(info: DeviceInfo) -> DeviceId:
    part = f":{info.name}" if parent_disk(info.name) != info.name else ""  # its disk has others
    for kind, value in (
        ("serial number", info.serial),
        ("WWID", info.wwid),
        ("backing file", info.backing_path),
    ):
        if value:
            return DeviceId(f"{kind} and partition" if part else kind, value + part)
    return DeviceId("size in bytes", str(info.size_bytes))


def _refuse_unnamed(path: str | Path, info: DeviceInfo, destroy: str | None) -> None:
    identity = _identity(info)
    if destroy is None:
        raise UsageError(
            f"everything on {path} would be destroyed, so it must be named twice",
            fix=f"if that is wanted, repeat its {identity.kind}: --destroy '{identity.value}'",
        )
    if destroy.strip() != identity.value:
        raise UsageError(
            f"--destroy {destroy!r} is not {path}: its {identity.kind} is {identity.value!r}"
        )


def _refuse_in_use(path: str | Path, name: str) -> None:
    family = (name, *partitions(name))
    for member in family:
        for place in mounts(member):
            raise UsageError(f"{path} is mounted: /dev/{member} on {place}")
        if member in swaps():
            raise UsageError(f"{path} is swap space: /dev/{member}")
        for holder in holders(member):
            raise UsageError(f"{path} is part of another device: {holder} holds /dev/{member}")
    if len(family) > 1:
        raise UsageError(f"{path} has partitions: {', '.join(family[1:])}")
    disk = parent_disk(name)
    if disk != name and (mounts(disk) or holders(disk)):
        raise UsageError(f"{path} lies on {disk}, which is in use as a whole")


def _refuse_other_openers(path: str | Path, name: str) -> None:
    if os.geteuid() != 0:
        raise MachineError(
            f"cannot tell whether another process has {path} open",
            fix="run as root (other processes' descriptors are visible to root alone)",
        )
    deadline = time.monotonic() + _TRANSIENT_OPENER_S
    names = {name, parent_disk(name)}  # who has the whole disk open may write to all of it
    while openers := sorted({opener for each in names for opener in other_openers(each)}):
        if time.monotonic() > deadline:
            raise UsageError(f"{path} is open in another process: {', '.join(openers)}")
        time.sleep(0.05)


def _refuse_content(path: str | Path, name: str) -> None:
    """Refuse whatever libblkid recognises, or cannot decide about."""
    blkid = shutil.which("blkid", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if blkid is None:
        raise MachineError(
            f"cannot tell what is on {path}: blkid is missing", fix="apt-get install util-linux"
        )
    result = subprocess.run(
        [blkid, "--probe", "--output", "export", f"/dev/{name}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    if result.returncode == _BLKID_NOTHING and not result.stdout.strip():
        return
    found = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
    if "PTTYPE" in found:
        raise UsageError(f"{path} carries a partition table ({found['PTTYPE']})", fix=_wipe(path))
    if "TYPE" in found:
        raise UsageError(f"{path} carries a signature ({found['TYPE']})", fix=_wipe(path))
    if result.returncode == 0 and found and all(key.startswith(_PLACE) for key in found):
        return
    reason = result.stderr.strip() or f"blkid ended with {result.returncode}"
    raise UsageError(f"cannot tell what is on {path}: {reason}", fix=_wipe(path))


def _wipe(path: str | Path) -> str:
    return f"if nothing on it is needed: wipefs --all {path}"
