"""kvikio's reading interface without a GPU: ``pread`` gives a future, ``get`` the bytes read.

kvikio cannot take host buffers where there is no CUDA driver, so this stands beside it: O_DIRECT
reads by threads (``preadv`` releases the interpreter lock), cut into tasks as kvikio cuts them.
``transport`` says what ran: ``posix-direct`` or ``posix-buffered``.
"""

from __future__ import annotations

import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import MeasurementError, UsageError
from harness.core.ops import PAGE_BYTES

HostBuffer = bytearray | memoryview | NDArray[np.uint8]

TASK_BYTES = 4 << 20
"""kvikio's own default."""


class ReadFuture:
    """Like kvikio's ``IOFuture``."""

    def __init__(self, parts: list[Future[int]]) -> None:
        self._parts = parts

    def get(self) -> int:
        """Wait; bytes that were read. MeasurementError for an I/O error."""
        return sum(part.result() for part in self._parts)

    def done(self) -> bool:
        """Whether ``get`` would return at once."""
        return all(part.done() for part in self._parts)


class HostReader:
    """Reads a file or block device into host memory. Use as a context manager.

    Parameters
    ----------
    path
        File or block device.
    direct
        Bypass the page cache. Reads that are not page-aligned go through an aligned copy.
    threads
        Reads at once.
    task_bytes
        A longer read is cut into tasks of this size.
    """

    def __init__(
        self, path: str | Path, *, direct: bool = True, threads: int = 1,
        task_bytes: int = TASK_BYTES,
    ) -> None:  # fmt: skip
        if task_bytes < 1 or task_bytes % PAGE_BYTES:
            raise UsageError(f"task size must be a positive multiple of {PAGE_BYTES}: {task_bytes}")
        self.transport: Literal["posix-direct", "posix-buffered"] = (
            "posix-direct" if direct else "posix-buffered"
        )
        self.task_bytes = task_bytes
        try:
            self._fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0) | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(f"cannot open {path}: {error.strerror}") from error
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="host-reader")

    def pread(self, buf: HostBuffer, size: int | None = None, file_offset: int = 0) -> ReadFuture:
        """Start reading ``size`` bytes (the buffer's size by default) from ``file_offset``."""
        view = memoryview(buf).cast("B")  # type: ignore[arg-type]
        wanted = len(view) if size is None else size
        if not 0 <= wanted <= len(view):
            raise UsageError(f"{wanted} bytes do not fit a buffer of {len(view)}")
        return ReadFuture(
            [
                self._pool.submit(
                    self._task, view[at : min(at + self.task_bytes, wanted)], file_offset + at
                )
                for at in range(0, wanted, self.task_bytes)
            ]
        )

    def read(self, buf: HostBuffer, size: int | None = None, file_offset: int = 0) -> int:
        """``pread`` and wait."""
        return self.pread(buf, size, file_offset).get()

    def drop_cache(self) -> None:
        """Forget what the page cache holds of the file, so that buffered reads reach the device."""
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Wait for reads in flight and close the file."""
        self._pool.shutdown()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> HostReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _task(self, view: memoryview, offset: int) -> int:
        try:
            if self.transport == "posix-direct" and not _aligned(view, offset):
                return self._through_copy(view, offset)
            return self._fill(view, offset)
        except OSError as error:
            raise MeasurementError(f"read at {offset} failed: {error.strerror}") from error

    def _fill(self, view: memoryview, offset: int) -> int:
        done = 0
        while done < len(view):
            got = os.preadv(self._fd, [view[done:]], offset + done)
            done += got
            if got == 0 or (self.transport == "posix-direct" and got % PAGE_BYTES):
                break  # the end of the file
        return done

    def _through_copy(self, view: memoryview, offset: int) -> int:
        low = offset // PAGE_BYTES * PAGE_BYTES
        high = -(-(offset + len(view)) // PAGE_BYTES) * PAGE_BYTES
        with mmap.mmap(-1, high - low) as page:
            got = os.preadv(self._fd, [page], low)
            usable = max(0, min(got - (offset - low), len(view)))
            view[:usable] = page[offset - low : offset - low + usable]
        return usable


def _aligned(view: memoryview, offset: int) -> bool:
    import ctypes

    address = ctypes.addressof(ctypes.c_char.from_buffer(view)) if len(view) else 0
    return not (address | offset | len(view)) % PAGE_BYTES
