"""io_uring without bindings: submissions and completions in bulk, as numpy arrays.

A submission queue entry is one 64-byte record of ``SQE_DTYPE``; whole batches are prepared by
array operations, copied into the ring and submitted by one system call. The ring's head and
tail are plain loads and stores, which on x86-64 are ordered as the protocol needs (stores are
not reordered with stores, loads not with loads); elsewhere ``Ring`` refuses.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
from collections.abc import Sequence
from enum import IntEnum
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import MachineError

SQE_DTYPE = np.dtype(
    [
        ("opcode", "u1"),
        ("flags", "u1"),
        ("ioprio", "<u2"),
        ("fd", "<i4"),
        ("off", "<u8"),
        ("addr", "<u8"),
        ("len", "<u4"),
        ("rw_flags", "<u4"),
        ("user_data", "<u8"),
        ("buf_index", "<u2"),
        ("personality", "<u2"),
        ("splice_fd", "<i4"),
        ("addr3", "<u8"),
        ("pad", "<u8"),
    ]
)
"""``struct io_uring_sqe``, 64 bytes. For URING_CMD the command is in the low half of ``off``."""

CQE_DTYPE = np.dtype([("user_data", "<u8"), ("res", "<i4"), ("flags", "<u4")])
"""``struct io_uring_cqe``: ``res`` is bytes moved, or minus errno."""


class Opcode(IntEnum):
    """``enum io_uring_op``: those that block devices need."""

    NOP = 0
    FSYNC = 3
    READ_FIXED = 4
    WRITE_FIXED = 5
    FALLOCATE = 17
    READ = 22
    WRITE = 23
    URING_CMD = 46


SQE_FIXED_FILE = 1
RWF_DSYNC = 2
RWF_NOWAIT = 8
BLOCK_URING_CMD_DISCARD = 0x1200
"""``_IO(0x12, 0)`` of linux/blkdev.h: an asynchronous discard (Linux 6.12)."""

SYS_IO_URING_SETUP, SYS_IO_URING_ENTER, SYS_IO_URING_REGISTER = 425, 426, 427
ENTER_GETEVENTS, ENTER_EXT_ARG = 1, 8
_REGISTER_BUFFERS, _REGISTER_FILES, _REGISTER_ENABLE_RINGS = 0, 2, 12
_SETUP_CQSIZE, _SETUP_CLAMP = 8, 16
_SETUP_DEFERRED = 1 << 6 | 1 << 12 | 1 << 13
"""Disabled at first, one issuer, deferred task work."""
_OFF_SQ_RING, _OFF_SQES = 0, 0x10000000
_FEAT_SINGLE_MMAP, _FEAT_EXT_ARG = 1, 1 << 8

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _words(names: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_uint32) for name in names.split()]


class _Offsets(ctypes.Structure):
    _fields_ = (
        *_words("head tail mask entries flags dropped array reserved"),
        ("user_addr", ctypes.c_uint64),
    )


class _CqOffsets(ctypes.Structure):
    _fields_ = (
        *_words("head tail mask entries overflow cqes flags reserved"),
        ("user_addr", ctypes.c_uint64),
    )


class _Params(ctypes.Structure):
    _fields_ = (
        ("sq_entries", ctypes.c_uint32),
        ("cq_entries", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("sq_thread_cpu", ctypes.c_uint32),
        ("sq_thread_idle", ctypes.c_uint32),
        ("features", ctypes.c_uint32),
        ("wq_fd", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 3),
        ("sq", _Offsets),
        ("cq", _CqOffsets),
    )


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_int64))


class _GetEventsArg(ctypes.Structure):
    """``struct io_uring_getevents_arg``: how long ``io_uring_enter`` waits."""

    _fields_ = (
        ("sigmask", ctypes.c_uint64),
        ("sigmask_size", ctypes.c_uint32),
        ("min_wait_us", ctypes.c_uint32),
        ("timespec", ctypes.c_uint64),
    )


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def empty_sqes(count: int) -> NDArray[Any]:
    """``count`` zeroed submission records."""
    return np.zeros(count, dtype=SQE_DTYPE)


class Ring:
    """One io_uring. Use as a context manager, from one thread.

    Parameters
    ----------
    entries
        How many requests may be in flight; a power of two is taken, at least this.
    files
        Descriptors to register; ``fd`` 0, 1, … with ``SQE_FIXED_FILE`` then means them.
    deferred
        For a thread that always asks for completions (ENTER_GETEVENTS) itself: they come only
        then, and do not interrupt it meanwhile. That thread must call ``enable`` first. Needs
        Linux 6.1; before, ``deferred`` of the object is False and the ring an ordinary one.

    Attributes
    ----------
    sqes : ndarray[SQE_DTYPE], shape (sq_entries,)
        The ring's own entries, entry i at slot ``tail & mask``. The array of indices is filled
        with the identity once, so a slot is its own index.
    cqes : ndarray[CQE_DTYPE], shape (cq_entries,)
    sq_head, sq_tail, cq_head, cq_tail, cq_overflow, sq_dropped : ndarray[uint32], shape (1,)
        Views of the shared words; compiled loops work on these.

    Raises
    ------
    MachineError
        Another machine architecture, a kernel without io_uring, or one that forbids it.
    """

    def __init__(self, entries: int, *, files: Sequence[int] = (), deferred: bool = False) -> None:
        if platform.machine() != "x86_64":
            raise MachineError(
                f"io_uring rings are driven with x86-64 memory ordering; this is a "
                f"{platform.machine()} machine",
                fix="use fio as the engine (--engine fio)",
            )
        params, self.deferred = _Params(), False
        self.fd = -1
        for extra in (_SETUP_DEFERRED, 0) if deferred else (0,):
            flags = _SETUP_CLAMP | _SETUP_CQSIZE | extra
            params = _Params(flags=flags, cq_entries=max(8, 4 * entries))
            self.fd = _setup(entries, params, optional=extra != 0)
            if self.fd >= 0:
                self.deferred = extra != 0
                break
        self.entries, self.cq_entries = params.sq_entries, params.cq_entries
        try:
            self._map(params)
            if files:
                register_files(self.fd, files)
        except BaseException:
            os.close(self.fd)
            self.fd = -1
            raise
        self._timeout = _Timespec()
        self._wait_arg = _GetEventsArg(timespec=ctypes.addressof(self._timeout))

    def _map(self, params: _Params) -> None:
        need = _FEAT_SINGLE_MMAP | _FEAT_EXT_ARG
        if params.features & need != need:
            raise MachineError("this kernel's io_uring is too old", fix="use Linux 5.11 or newer")
        sq_size = params.sq.array + 4 * params.sq_entries
        cq_size = params.cq.cqes + CQE_DTYPE.itemsize * params.cq_entries
        self._ring_map = mmap.mmap(
            self.fd, max(sq_size, cq_size), flags=mmap.MAP_SHARED, offset=_OFF_SQ_RING
        )
        self._sqe_map = mmap.mmap(
            self.fd, 64 * params.sq_entries, flags=mmap.MAP_SHARED, offset=_OFF_SQES
        )

        def word(offset: int, count: int = 1) -> NDArray[np.uint32]:
            return np.frombuffer(self._ring_map, np.uint32, count, offset)

        self.sq_head, self.sq_tail = word(params.sq.head), word(params.sq.tail)
        self.cq_head, self.cq_tail = word(params.cq.head), word(params.cq.tail)
        self.sq_dropped, self.cq_overflow = word(params.sq.dropped), word(params.cq.overflow)
        word(params.sq.array, params.sq_entries)[:] = np.arange(params.sq_entries, dtype=np.uint32)
        self.sqes: NDArray[Any] = np.frombuffer(self._sqe_map, SQE_DTYPE)
        self.cqes: NDArray[Any] = np.frombuffer(
            self._ring_map, CQE_DTYPE, params.cq_entries, params.cq.cqes
        )

    def submit(self, batch: NDArray[Any]) -> int:
        """Copy ``batch`` (SQE_DTYPE) into the ring and submit it; how many the kernel took.

        Fewer than given are taken when the ring is full or memory is short: submit the rest again.
        """
        tail = int(self.sq_tail[0])
        room = self.entries - ((tail - int(self.sq_head[0])) & 0xFFFFFFFF)
        count = min(room, len(batch))
        slots = (tail + np.arange(count)) & (self.entries - 1)
        self.sqes[slots] = batch[:count]
        self.sq_tail[0] = np.uint32((tail + count) & 0xFFFFFFFF)
        if count == 0:
            return 0
        taken = self._enter(count, 0, 0)
        if taken < count:
            # What the kernel did not take stays ours: withdraw it, the caller submits it again.
            self.sq_tail[0] = np.uint32((tail + taken) & 0xFFFFFFFF)
        return taken

    def reap(self, wait: int = 0, timeout_s: float | None = None) -> NDArray[Any]:
        """Completions (CQE_DTYPE) that are there, after waiting for at least ``wait`` of them.

        Fewer than ``wait`` come back when ``timeout_s`` passes first.
        """
        if self._ready() < wait or wait == 0:
            self._enter(0, wait, ENTER_GETEVENTS, timeout_s)
        head, count = int(self.cq_head[0]), self._ready()
        slots = (head + np.arange(count)) & (self.cq_entries - 1)
        done = self.cqes[slots]
        self.cq_head[0] = np.uint32((head + count) & 0xFFFFFFFF)
        return done

    def _ready(self) -> int:
        return (int(self.cq_tail[0]) - int(self.cq_head[0])) & 0xFFFFFFFF

    def _enter(self, count: int, wait: int, flags: int, timeout_s: float | None = None) -> int:
        arg, size = None, 0
        if timeout_s is not None:
            nanoseconds = int(timeout_s * 1e9)
            self._timeout.seconds, self._timeout.nanoseconds = divmod(nanoseconds, 10**9)
            arg, size = ctypes.byref(self._wait_arg), ctypes.sizeof(self._wait_arg)
            flags |= ENTER_EXT_ARG
        result: int = _libc.syscall(
            ctypes.c_long(SYS_IO_URING_ENTER), self.fd, count, wait, flags, arg,
            ctypes.c_size_t(size),
        )  # fmt: skip
        if result >= 0:
            return result
        code = ctypes.get_errno()
        if code in (errno.ETIME, errno.EINTR, errno.EAGAIN, errno.EBUSY):
            return 0
        raise MachineError(f"io_uring_enter: {os.strerror(code)}")

    def enable(self) -> None:
        """Make the calling thread the only one that uses a deferred ring."""
        if self.deferred:
            _register(self.fd, _REGISTER_ENABLE_RINGS, None, 0, "its thread")

    def register_buffers(self, spans: Sequence[tuple[int, int]]) -> None:
        """Pin memory (address, length) for READ_FIXED and WRITE_FIXED; ``buf_index`` in order."""
        iovecs = (_Iovec * len(spans))(*(_Iovec(*span) for span in spans))
        _register(self.fd, _REGISTER_BUFFERS, iovecs, len(spans), "buffers")

    def close(self) -> None:
        """Give the ring back. Requests still in flight are finished by the kernel."""
        if self.fd < 0:
            return
        os.close(self.fd)
        self.fd = -1
        for name in ("sq_head", "sq_tail", "cq_head", "cq_tail", "sq_dropped", "cq_overflow"):
            delattr(self, name)
        # Mappings end with their last view; one that a caller still holds must stay valid.
        del self.sqes, self.cqes, self._ring_map, self._sqe_map

    def __del__(self) -> None:
        """A ring that was lost, by an interruption say, does not stay open."""
        if getattr(self, "fd", -1) >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Ring:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def register_files(ring_fd: int, files: Sequence[int]) -> None:
    """Register descriptors with a ring, so that each request saves a look-up."""
    array = (ctypes.c_int32 * len(files))(*files)
    _register(ring_fd, _REGISTER_FILES, array, len(files), "files")


def _register(ring_fd: int, what: int, arg: Any, count: int, name: str) -> None:
    pointer = None if arg is None else ctypes.byref(arg)
    result = _libc.syscall(ctypes.c_long(SYS_IO_URING_REGISTER), ring_fd, what, pointer, count)
    if result < 0:
        code = ctypes.get_errno()
        fix = "run as root, or raise RLIMIT_MEMLOCK" if code == errno.ENOMEM else None
        raise MachineError(f"io_uring cannot register {name}: {os.strerror(code)}", fix=fix)


def _setup(entries: int, params: _Params, *, optional: bool = False) -> int:
    """Descriptor of a new ring; -1 if the kernel does not know its (``optional``) flags."""
    fd: int = _libc.syscall(
        ctypes.c_long(SYS_IO_URING_SETUP), ctypes.c_uint(entries), ctypes.byref(params)
    )
    if fd >= 0:
        os.set_inheritable(fd, False)
        return fd
    code = ctypes.get_errno()
    if optional and code == errno.EINVAL:
        return -1
    fix = {
        errno.ENOSYS: "use Linux 5.11 or newer, built with io_uring",
        errno.EPERM: "allow io_uring: sysctl kernel.io_uring_disabled=0",
    }.get(code)
    raise MachineError(f"io_uring is not available: {os.strerror(code)}", fix=fix)
