"""Read the loader's stream of frames from a descriptor."""

from __future__ import annotations

import json
import os
import select
import struct
import time
import zlib
from collections.abc import Iterator
from typing import Any, Protocol

from harness.capture.merge import Merge, Slots
from harness.core.errors import MeasurementError

_HEAD = struct.Struct("<4sIQ")
_TS_NS = struct.Struct("<q")
_MAGIC = b"KVCF"
_MAX_FRAME_BYTES = 1 << 26

QUIET = 0
"""Not a frame: nothing has come for a while."""
HELD = -1
"""Not a frame: what has come is held back."""
HELLO, DATA, STOP, END, ERROR, DATA_DEFLATE, MARK = 1, 2, 3, 4, 5, 6, 7

# Records are handed on once this much is ready, or this long after the first of it was.
_BATCH_BYTES = 2 << 20
_BATCH_S = 0.5
_QUIET_S = 1.0


def head(kind: int, size: int) -> bytes:
    """What comes before a payload of ``size`` bytes."""
    return _HEAD.pack(_MAGIC, kind, size)


Frame = tuple[int, bytearray | bytes]
"""Kind and payload."""


class FrameSource(Protocol):
    """Where frames come from."""

    def frames(self) -> Iterator[Frame]:
        """(kind, payload) until the end; while none may be had, one without payload a second."""

    def waits(self, seconds: float) -> bool:
        """Whether none may be had for ``seconds``."""


class FrameReader:
    """Frames of a stream on a descriptor; each is read once."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def _exactly(self, size: int) -> bytearray | None:
        buffer = bytearray(size)
        view, at = memoryview(buffer), 0
        while at < size:
            got = os.readv(self._fd, [view[at:]])
            if not got:
                return None
            at += got
        return buffer

    def frames(self) -> Iterator[Frame]:
        """(kind, payload) until the end of the stream; MeasurementError for anything else.

        While nothing comes, (QUIET, b"") once a second.
        """
        while True:
            if self.waits(_QUIET_S):
                yield QUIET, b""
                continue
            first = self._exactly(_HEAD.size)
            if first is None:
                return
            magic, kind, size = _HEAD.unpack(first)
            if magic != _MAGIC or size > _MAX_FRAME_BYTES:
                raise MeasurementError(f"not a stream of the probe: {bytes(first)!r}")
            payload = self._exactly(size)
            if payload is None:
                return
            yield kind, payload

    def waits(self, seconds: float) -> bool:
        """Whether nothing arrives for ``seconds``."""
        return not select.select([self._fd], [], [], seconds)[0]


def batches(reader: FrameSource, rings: int) -> Iterator[tuple[int, Any]]:
    """(kind, content): JSON, an array of SLOT_DTYPE for DATA, or None for QUIET and HELD.

    DATA frames are gathered into larger ones and, if they are of several ``rings``, merged.
    """
    merge, since_s = Merge(rings), 0.0
    for kind, payload in reader.frames():
        if kind in (DATA, DATA_DEFLATE, MARK):
            since_s = since_s if merge.ready_bytes else time.monotonic()
            _take_in(merge, kind, payload)
            if not merge.ready_bytes:
                continue
            left_s = since_s + _BATCH_S - time.monotonic()
            if merge.ready_bytes < _BATCH_BYTES and left_s > 0 and not reader.waits(left_s):
                continue
            yield from _records(merge.take())
            continue
        yield from _records(merge.rest() if kind == END else merge.take())
        yield kind, json.loads(bytes(payload)) if kind > 0 else None
    yield from _records(merge.rest())


def _records(slots: Slots) -> Iterator[tuple[int, Slots]]:
    if len(slots):
        yield DATA, slots


def _take_in(merge: Merge, kind: int, payload: bytearray | bytes) -> None:
    if kind == MARK:
        merge.mark(*_TS_NS.unpack(payload))
    else:
        merge.add(zlib.decompress(payload) if kind == DATA_DEFLATE else payload)
