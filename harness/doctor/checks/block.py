"""Block devices and how I/O reaches them: io_uring, loop, NVMe."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import tempfile
from pathlib import Path

from harness.core.errors import HarnessError
from harness.doctor.model import Check, Outcome
from harness.doctor.shell import find_tool, install, read_text

# The same number on every architecture: io_uring is younger than their common table.
_NR_IO_URING_SETUP = 425
_PARAMS_BYTES = 120
_LOOP_BYTES = 1 << 20


def _io_uring() -> Outcome:
    parameters = (ctypes.c_uint8 * _PARAMS_BYTES)()
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(_NR_IO_URING_SETUP, 8, ctypes.byref(parameters))
    if fd >= 0:
        os.close(fd)
        return Outcome(True, "a ring of 8 entries could be set up")
    code = ctypes.get_errno()
    fix = None
    if code == errno.EPERM:
        fix = "sysctl -w kernel.io_uring_disabled=0, or allow io_uring in the container's profile"
    return Outcome(False, f"io_uring_setup: {os.strerror(code)}", fix=fix)


def _loop() -> Outcome:
    from harness.device.loop import LoopDevice

    if not os.path.exists("/dev/loop-control"):
        return Outcome(False, "no /dev/loop-control", fix="modprobe loop (as root)")
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            LoopDevice(_LOOP_BYTES, Path(folder), direct_io=False) as loop,
        ):
            return Outcome(True, f"a device of 1 MiB could be made ({loop.path})")
    except HarnessError as error:
        return Outcome(False, str(error), fix=error.fix)


def _nvme() -> Outcome:
    found = [_describe(path) for path in sorted(Path("/sys/block").glob("nvme*n*"))]
    return Outcome(bool(found), "; ".join(found) or "no NVMe namespace")


def _describe(path: Path) -> str:
    sectors = int(read_text(str(path / "size")) or 0)
    model = read_text(str(path / "device" / "model")) or "unknown model"
    return f"/dev/{path.name}: {model}, {sectors * 512 / 1e9:.0f} GB"


def _blkid() -> Outcome:
    path = find_tool("blkid")
    return Outcome(path is not None, path or "not found")


CHECKS = (
    Check(
        "io_uring",
        why="requests are issued and reaped in bulk, so that a replay is on time",
        fix=f"use a kernel with CONFIG_IO_URING (this is {platform.release()})",
        needed_by=("run", "emit", "replay", "bench"),
        probe=_io_uring,
        required=True,
    ),
    Check(
        "loop",
        why="without a spare drive everything runs on a loop device of its own",
        fix="run the same command with sudo, on a kernel with CONFIG_BLK_DEV_LOOP",
        needed_by=("run",),
        probe=_loop,
        required=True,
    ),
    Check(
        "blkid",
        why="the guard looks for partition tables and file systems before a device is written to",
        fix=install("util-linux"),
        needed_by=("run", "emit", "replay", "bench"),
        probe=_blkid,
        required=True,
    ),
    Check(
        "nvme",
        why="bandwidth and wear of a real drive are measured on one",
        fix="attach an NVMe drive that may be overwritten; a loop device serves meanwhile",
        needed_by=("capture", "replay", "bench"),
        probe=_nvme,
    ),
)
