"""The stream from a loader to its reader: frames of a fixed head and a payload.

Little-endian head of 16 bytes: magic "KVCF", kind, payload length. HELLO comes first, then
DATA, MARK and at most one STOP, then END. A stream without END was cut off.
"""

from __future__ import annotations

import json
import os
import struct
import zlib

MAGIC = b"KVCF"
HEAD = struct.Struct("<4sIQ")
RECORD_BYTES = 64

HELLO = 1  # JSON: what is traced, how to decode it, the devices' counters at the start
DATA = 2  # struct record of RECORD_BYTES each, in the order of one of the rings
STOP = 3  # JSON: the devices' counters at the end; DATA sent earlier is older than them
END = 4  # JSON: the probe's own counters
ERROR = 5  # JSON: message, fix, exit code
DATA_DEFLATE = 6  # DATA, compressed
MARK = 7  # int64, a time as ts_ns: what is sent later has no older effect; only of several rings


class Sender:
    """Writes frames to a descriptor; data straight from the ring, without copying it."""

    def __init__(self, fd: int, *, compress: bool = False) -> None:
        self._fd = fd
        self._compress = compress

    def message(self, kind: int, content: dict) -> None:
        """Send a JSON frame."""
        self._send(kind, json.dumps(content).encode())

    def data(self, slots: memoryview) -> None:
        """Send a DATA frame; ``slots`` may be reused when this returns."""
        if self._compress:
            self._send(DATA_DEFLATE, zlib.compress(slots, 1))
        else:
            self._send(DATA, slots)

    def mark(self, ts_ns: int) -> None:
        """Send a MARK frame."""
        self._send(MARK, struct.pack("<q", ts_ns))

    def _send(self, kind: int, payload: bytes | memoryview) -> None:
        parts = [memoryview(HEAD.pack(MAGIC, kind, len(payload))), memoryview(payload)]
        while parts:
            sent = os.writev(self._fd, parts)
            while parts and sent >= len(parts[0]):
                sent -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][sent:]
