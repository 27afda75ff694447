"""Records that wait on disk while the traced work needs the CPU.

Pairing and Parquet can wait, the probe's rings cannot: a thread takes frames as they come. While
the machine has CPU time to spare they are passed on at once. Otherwise they go to files
``NNNNNN.raw``, which are read back when there is time, when the backlog is large, or at the end;
until then, while few wait, in a trickle that is enough for a slow device. Each file is a stream of
its own, HELLO first, which ``recover`` makes a trace of where the recorder was killed. A mark goes
along with the records before it; where these are gone it needs no file.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.capture import stream
from harness.capture.stream import Frame
from harness.trace.segments import raw_name

_FILE_BYTES = 64 << 20
_MEMORY_BYTES = 8 << 20
BACKLOG_BYTES = 1 << 30
_TRICKLE_BYTES_PER_S = 1 << 20
_TRICKLE_BYTES = 4 << 20
_QUIET_S = 1.0
_POLL_S = 0.1


class _RawFile:
    """A file of frames, removed once all that were written have been read."""

    def __init__(self, path: Path, hello: Frame) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        self.size = 0
        self.unread = 0
        self._append(hello)

    def _append(self, frame: Frame) -> None:
        kind, payload = frame
        for part in (stream.head(kind, len(payload)), payload):
            left = memoryview(part)
            while left:
                written = os.write(self._fd, left)
                left, self.size = left[written:], self.size + written

    def write(self, frame: Frame) -> int:
        """Append a frame; where its payload begins."""
        self._append(frame)
        self.unread += 1
        return self.size - len(frame[1])

    def read(self, offset: int, size: int) -> bytes:
        """The payload of a frame that was not read before."""
        payload = os.pread(self._fd, size, offset)
        self.unread -= 1
        if not self.unread:
            os.close(self._fd)
            self._path.unlink()
        return payload


@dataclass(frozen=True)
class _Waiting:
    """A frame on its way: its payload, or where that lies."""

    kind: int
    size: int
    payload: bytearray | bytes = b""
    file: _RawFile | None = None
    offset: int = 0


class Backlog:
    """Frames of a stream, held back while ``busy()``; ``folder`` takes the files.

    ``hello`` is the frame that came before them. Errors of the stream and of the disk are raised
    by ``frames``, after what came before them.
    """

    def __init__(
        self, frames: Iterator[Frame], folder: Path, hello: Frame, busy: Callable[[], bool]
    ) -> None:
        self._incoming = frames
        self._folder = folder
        self._hello = hello
        self._busy = busy
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._file: _RawFile | None = None
        self._files = 0
        self._memory_bytes = self._disk_bytes = 0
        self._trickle_s = 0.0
        self._error: Exception | None = None
        self._ended_s: float | None = None
        self.peak_bytes = 0
        """The most that waited on disk."""
        threading.Thread(target=self._take_in, daemon=True).start()

    @property
    def seconds_after_end(self) -> float:
        """Time since the last frame came."""
        return time.monotonic() - (self._ended_s or time.monotonic())

    def _take_in(self) -> None:
        try:
            for kind, payload in self._incoming:
                if kind == stream.QUIET:
                    self._busy()  # so that it speaks of the last second when frames come again
                    continue
                with self._changed:
                    self._put(kind, payload)
                    if len(self._waiting) == 1 or not self._disk_bytes:
                        self._changed.notify()  # else it looks by itself, now and then
        except Exception as error:
            self._error = error
        with self._changed:
            self._ended_s = time.monotonic()
            self._changed.notify()

    def _put(self, kind: int, payload: bytearray | bytes) -> None:
        size = len(payload)
        # As without a backlog: the pipe fills up, then the rings, which count what they lose.
        self._changed.wait_for(lambda: self._disk_bytes <= 2 * BACKLOG_BYTES)
        if not self._disk_bytes and (kind == stream.MARK or self._has_time()):
            self._waiting.append(_Waiting(kind, size, payload))
            self._memory_bytes += size
            return
        if self._file is None or not self._file.unread or self._file.size >= _FILE_BYTES:
            self._file = _RawFile(raw_name(self._folder, self._files), self._hello)
            self._files += 1
        offset = self._file.write((kind, payload))
        self._waiting.append(_Waiting(kind, size, file=self._file, offset=offset))
        self._disk_bytes += size
        self.peak_bytes = max(self.peak_bytes, self._disk_bytes)

    def _has_time(self) -> bool:
        return self._memory_bytes < _MEMORY_BYTES and not self._busy()

    def frames(self) -> Iterator[Frame]:
        """(kind, payload) as they came; (HELD, b"") or (QUIET, b"") once a second if none may go.

        HELD while some wait for the machine to have time.
        """
        while True:
            if self.waits(_QUIET_S):
                yield (stream.HELD if self._waiting else stream.QUIET), b""
                continue
            with self._changed:
                if not self._waiting:
                    break
                frame = self._next()
            yield frame
        if self._error is not None:
            raise self._error

    def _next(self) -> Frame:
        one = self._waiting.popleft()
        if one.file is None:
            self._memory_bytes -= one.size
            return one.kind, one.payload
        self._disk_bytes -= one.size
        self._changed.notify()
        self._trickle_s = time.monotonic() + one.size / _TRICKLE_BYTES_PER_S
        return one.kind, one.file.read(one.offset, one.size)

    def waits(self, seconds: float) -> bool:
        """Whether nothing may go for ``seconds``."""
        deadline_s = time.monotonic() + seconds
        with self._changed:
            while not self._may_go():
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return True
                self._changed.wait(min(left_s, _POLL_S) if self._waiting else left_s)
        return False

    def _may_go(self) -> bool:
        if self._ended_s is not None:
            return True
        if not self._waiting:
            return False
        return (
            self._waiting[0].file is None
            or self._disk_bytes > BACKLOG_BYTES
            or (self._disk_bytes < _TRICKLE_BYTES and time.monotonic() > self._trickle_s)
            or not self._busy()
        )
