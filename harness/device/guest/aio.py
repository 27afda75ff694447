"""Linux AIO by system call: every submission reaches the block layer before the call returns.

io_uring hands a request that would have to wait to a kernel worker, where it loses its place;
``io_submit`` waits instead, so that the order of calls is the order of commands. Layout of the
structures: linux/aio_abi.h; system call numbers: x86-64.
"""

from __future__ import annotations

import ctypes
import os
import platform

import numpy as np

from harness.core.errors import MachineError

IOCB_DTYPE = np.dtype(
    [
        ("data", "<u8"),
        ("key", "<u4"),
        ("rw_flags", "<u4"),
        ("opcode", "<u2"),
        ("priority", "<i2"),
        ("fd", "<u4"),
        ("buffer", "<u8"),
        ("length", "<u8"),
        ("offset", "<i8"),
        ("reserved", "<u8"),
        ("flags", "<u4"),
        ("event_fd", "<u4"),
    ]
)
"""``struct iocb``; ``data`` comes back with the completion."""

EVENT_DTYPE = np.dtype([("data", "<u8"), ("iocb", "<u8"), ("result", "<i8"), ("result2", "<i8")])
"""``struct io_event``; ``result`` is bytes moved, or minus errno."""

PREAD, PWRITE = 0, 1
_IO_SETUP, _IO_DESTROY, _IO_GETEVENTS, _IO_SUBMIT = 206, 207, 208, 209
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class Aio:
    """A context for ``depth`` requests in flight. MachineError where the kernel has none."""

    def __init__(self, depth: int) -> None:
        if platform.machine() != "x86_64":
            raise MachineError(f"op lists are sent on x86-64, this is {platform.machine()}")
        self._context = ctypes.c_ulong(0)
        self._events = np.empty(depth, EVENT_DTYPE)
        _call(_IO_SETUP, ctypes.c_uint(depth), ctypes.byref(self._context))

    def submit(self, iocb_address: int) -> None:
        """Submit the one ``struct iocb`` at this address; it must stay there until done."""
        pointer = ctypes.c_void_p(iocb_address)
        _call(_IO_SUBMIT, self._context, ctypes.c_long(1), ctypes.byref(pointer))

    def reap(self, at_least: int) -> np.ndarray:
        """Completions (EVENT_DTYPE), after waiting for ``at_least`` of them."""
        address = ctypes.c_void_p(self._events.ctypes.data)
        room = ctypes.c_long(len(self._events))
        got = _call(_IO_GETEVENTS, self._context, ctypes.c_long(at_least), room, address, None)
        return self._events[:got]

    def close(self) -> None:
        """Wait for what is in flight and give the context back."""
        _call(_IO_DESTROY, self._context)


def _call(number: int, *args: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *args)
    if result < 0:
        code = ctypes.get_errno()
        raise MachineError(f"asynchronous I/O: {os.strerror(code)}")
    return result
