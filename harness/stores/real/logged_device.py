"""What the programs under LMCache's own Python share: its handle of the device, with a log.

Imports the standard library and numpy alone.
"""

from __future__ import annotations

import threading
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

READ, WRITE = 0, 1
FULL_ATTENTION, HEADERS, METADATA = 0, 2, 3
NO_SESSION = 0xFFFFFFFF
_LOG = ("issue_ns", "done_ns", "offset", "length", "op", "object_class", "stream", "key", "session",
        "turn")  # fmt: skip


@dataclass
class Place:
    """Who asked for what: the request in hand, and which request stored which key."""

    session: int = NO_SESSION
    turn: int = 0
    stored_by: dict[int, tuple[int, int]] = field(default_factory=dict)


class LoggedDevice:
    """LMCache's handle of the device, which also writes down each call and the key it moves.

    ``names`` are the keys by the identity that LMCache puts into a slot's header. Without them the
    identity is the key, and each payload read with the posix engine is compared by checksum with
    the one last written there.
    """

    def __init__(
        self,
        real: Any,
        data_start: int,
        slot_bytes: int,
        place: Place,
        names: dict[int, int] | None = None,
    ) -> None:
        self._real, self._start, self._slot = real, data_start, slot_bytes
        self._names, self._place = names, place
        self._sums: dict[int, int] = {}
        self.bytes_checked = self.wrong_payloads = 0
        self._lock = threading.Lock()
        self._key_at: dict[int, int] = {}
        self._threads: dict[int, int] = {}
        self._batches: dict[int, list[list[int]]] = {}
        self.rows: list[list[int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def pwrite_from_buffer(self, offset: int, buffer: Any, payload: int, total: int) -> Any:
        rows = [self._row(offset, total, WRITE, buffer)]
        if self._names is None:
            self._sums[offset] = zlib.crc32(memoryview(buffer)[:payload])
        try:
            return self._real.pwrite_from_buffer(offset, buffer, payload, total)
        finally:
            self._finish(rows)

    def pread_into(self, offset: int, buffer: Any, payload: int, total: int) -> Any:
        rows = [self._row(offset, total, READ, None)]
        try:
            done = self._real.pread_into(offset, buffer, payload, total)
        finally:
            self._finish(rows)
        if self._names is None:
            self.bytes_checked += payload
            self.wrong_payloads += self._sums[offset] != zlib.crc32(memoryview(buffer)[:payload])
        return done

    def batched_write(
        self, offsets: list[int], buffers: list[Any], totals: list[int], *rest: Any
    ) -> int:
        rows = [self._row(o, n, WRITE, b) for o, n, b in zip(offsets, totals, buffers, strict=True)]
        batch: int = self._real.batched_write(offsets, buffers, totals, *rest)
        self._batches[batch] = rows
        return batch

    def batched_read(self, offsets: list[int], buffers: list[Any], totals: list[int]) -> int:
        rows = [self._row(o, n, READ, None) for o, n in zip(offsets, totals, strict=True)]
        batch: int = self._real.batched_read(offsets, buffers, totals)
        self._batches[batch] = rows
        return batch

    def wait_iouring(self, batch: int) -> Any:
        try:
            return self._real.wait_iouring(batch)
        finally:
            self._finish(self._batches.pop(batch, []))

    def _row(self, offset: int, length: int, op: int, buffer: Any) -> list[int]:
        """A call that is about to be made, in the order of ``_LOG``."""
        key, kind = 0, METADATA
        session, turn = self._place.session, self._place.turn
        with self._lock:
            stream = self._threads.setdefault(threading.get_ident(), len(self._threads))
            if offset >= self._start:
                slot, inside = divmod(offset - self._start, self._slot)
                kind = HEADERS if inside == 0 else FULL_ATTENTION
                if kind == HEADERS and op == WRITE:
                    identity = int.from_bytes(bytes(memoryview(buffer)[8:16]), "little")
                    self._key_at[slot] = self._names[identity] if self._names else identity
                key = self._key_at.get(slot, 0)
                if op == WRITE:
                    session, turn = self._place.stored_by.get(key, (session, turn))
        now = time.monotonic_ns()
        return [now, 0, offset, length, op, kind, stream, key, session, turn]

    def _finish(self, rows: list[list[int]]) -> None:
        now = time.monotonic_ns()
        for row in rows:
            row[1] = now
        with self._lock:
            self.rows += rows


def write_log(path: Path, rows: list[list[int]]) -> None:
    """The calls in issue order, a column each."""
    rows.sort()
    table = np.array(rows, dtype=object).reshape(-1, len(_LOG))
    large = ("offset", "length", "key")
    columns = {
        name: table[:, at].astype(np.uint64 if name in large else np.int64)
        for at, name in enumerate(_LOG)
    }
    np.savez(path, **columns)  # type: ignore[arg-type]
