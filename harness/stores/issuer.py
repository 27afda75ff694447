"""Issuing ops to a block device as the store's workers would, and checking what comes back.

Ops of one stream follow each other, streams overlap, and an op waits for every earlier one that
touches the same bytes unless both only read. Writes begin in the order in which the store made
them, since that is the order in which it took their places.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType

import numpy as np

from harness.core.errors import MeasurementError
from harness.core.ops import PAGE_BYTES, Op
from harness.device.buffers import AlignedPool, PayloadPool
from harness.device.guard import Target
from harness.device.ring import Opcode, Ring, empty_sqes
from harness.stores.ops import OpArray

WINDOW_OPS = 256
WINDOW_BYTES = 512 << 20
"""Calls, and bytes of them, taken in ahead of the oldest one that is not done."""

_MAX_CALL_BYTES = 32 << 20
_MAX_BUFFER_BYTES = 512 << 20


@dataclass(eq=False)
class _Call:
    """One read or write call of an op; ``waits`` counts the calls that must be done before it."""

    number: int
    op: int
    offset: int
    length: int
    stream: int
    waits: int = 0
    after: list[_Call] = field(default_factory=list)
    slot: int = -1
    issued_ns: int = 0


@dataclass
class Issued:
    """What was done on the device so far."""

    calls: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    verified_bytes: int = 0
    wrong_sectors: int = 0
    deepest: int = 0


CallDone = Callable[[int, int, int], None]
"""Called with the op's number, its issue and its completion (CLOCK_MONOTONIC, ns)."""


class Issuer:
    """Feeds ops to one device. Use as a context manager, from one thread.

    fixed: take buffers registered with the ring, on ordinary pages, as LMCache's io_uring engine
    does; a large call is then one bio, else one bio a MiB. largest_bytes: of an op; larger calls
    than 32 MiB are cut. buffered: go through the page cache; ``finish`` then writes back what is in
    it.

    Raises MeasurementError when the device fails a call.
    """

    def __init__(
        self,
        target: Target,
        *,
        seed: int,
        streams: int,
        largest_bytes: int,
        fixed: bool,
        buffered: bool = False,
        done: CallDone | None = None,
    ) -> None:
        self.issued = Issued()
        self._cached_fd = os.open(target.path, os.O_RDWR) if buffered else None
        self._fd = target.fd if self._cached_fd is None else self._cached_fd
        self._target, self._fixed, self._done = target, fixed, done
        self._call_bytes = min(_MAX_CALL_BYTES, largest_bytes)
        depth = max(2, min(streams, _MAX_BUFFER_BYTES // (2 * self._call_bytes), WINDOW_OPS))
        self._writes = PayloadPool(depth, self._call_bytes, seed, huge=not fixed)
        self._reads = AlignedPool(depth, self._call_bytes, huge=not fixed)
        self._free: dict[int, list[int]] = {
            Op.WRITE: list(range(depth)),
            Op.READ: list(range(depth)),
        }
        self._ring = Ring(2 * depth)
        if fixed:
            self._ring.register_buffers([self._writes.span(), self._reads.span()])
        # Sequence of the last write to each page; memory is touched only where pages are written.
        self._last = np.zeros(-(-target.size_bytes // PAGE_BYTES), np.uint32)
        self._sequence = 0
        self._open: deque[_Call] = deque()
        self._tail: dict[int, _Call] = {}
        self._flying: dict[int, _Call] = {}
        self._reads_due: list[_Call] = []
        self._writes_left: deque[_Call] = deque()
        self._number = self._open_bytes = 0

    def feed(self, ops: OpArray) -> None:
        """Take ops in; returns when at most a window of them is still to be done."""
        for offset, length, op, stream in zip(
            ops["offset"].tolist(), ops["length"].tolist(), ops["op"].tolist(),
            ops["stream"].tolist(), strict=True,
        ):  # fmt: skip
            while len(self._open) >= WINDOW_OPS or self._open_bytes > WINDOW_BYTES:
                self._turn()
            for at in range(offset, offset + length, self._call_bytes):
                size = min(self._call_bytes, offset + length - at)
                self._admit(_Call(self._number, op, at, size, stream))
            self._number += 1
        self._start()

    def work_until(self, when_s: float) -> None:
        """Go on with what was taken in until ``time.monotonic()`` is ``when_s``."""
        while (left := when_s - time.monotonic()) > 0:
            if not self._open:
                time.sleep(left)
                return
            self._turn(left)

    def finish(self) -> None:
        """Wait until everything taken in is done, and on the device."""
        while self._open:
            self._turn()
        if self._cached_fd is not None:
            os.fdatasync(self._cached_fd)

    def _admit(self, call: _Call) -> None:
        earlier = [other for other in self._open if _conflict(call, other)]
        before = self._tail.get(call.stream)
        if before is not None and before not in earlier:
            earlier.append(before)
        for other in earlier:
            other.after.append(call)
        call.waits = len(earlier)
        self._tail[call.stream] = call
        self._open.append(call)
        self._open_bytes += call.length
        if call.op == Op.WRITE:
            self._writes_left.append(call)
        elif call.waits == 0:
            self._reads_due.append(call)

    def _turn(self, timeout_s: float | None = None) -> None:
        """Start what may start, then wait for at least one completion, or so long."""
        self._start()
        for cqe in self._ring.reap(wait=1, timeout_s=timeout_s):
            self._complete(self._flying.pop(int(cqe["user_data"])), int(cqe["res"]))

    def _start(self) -> None:
        ready = [call for call in self._reads_due if self._take_slot(call)]
        self._reads_due = [call for call in self._reads_due if call.slot < 0]
        while self._writes_left and not self._writes_left[0].waits:
            if not self._take_slot(self._writes_left[0]):
                break
            ready.append(self._writes_left.popleft())
        if not ready:
            return
        sqes = empty_sqes(len(ready))
        for sqe, call in zip(sqes, ready, strict=True):
            self._fill(sqe, call)
        now = time.monotonic_ns()
        for call in ready:
            call.issued_ns = now
            self._flying[call.slot * 2 + call.op] = call
        left = sqes
        while len(left):
            left = left[self._ring.submit(left) :]
        self.issued.deepest = max(self.issued.deepest, len(self._flying))

    def _take_slot(self, call: _Call) -> bool:
        free = self._free[call.op]
        if free:
            call.slot = free.pop()
        return call.slot >= 0

    def _fill(self, sqe: np.void, call: _Call) -> None:
        write = call.op == Op.WRITE
        pool = self._writes if write else self._reads
        if write:
            self._sequence += 1
            self._writes.stamp(call.slot, call.offset, call.length, self._sequence)
            self._last[_pages(call)] = self._sequence
        codes = (Opcode.READ, Opcode.WRITE, Opcode.READ_FIXED, Opcode.WRITE_FIXED)
        sqe["opcode"] = codes[2 * self._fixed + write]
        sqe["fd"] = self._fd
        sqe["off"] = call.offset
        sqe["addr"] = pool.address + call.slot * pool.slot_bytes
        sqe["len"] = call.length
        sqe["buf_index"] = 0 if write else 1
        sqe["user_data"] = call.slot * 2 + call.op

    def _complete(self, call: _Call, result: int) -> None:
        now = time.monotonic_ns()
        if result != call.length:
            what = "write" if call.op == Op.WRITE else "read"
            why = f"errno {-result}" if result < 0 else f"only {result} bytes"
            raise MeasurementError(
                f"{self._target.path}: {what} of {call.length} bytes at {call.offset}: {why}"
            )
        self.issued.calls += 1
        if call.op == Op.WRITE:
            self.issued.written_bytes += call.length
        else:
            self.issued.read_bytes += call.length
            self._verify(call)
        self._free[call.op].append(call.slot)
        self._open.remove(call)
        self._open_bytes -= call.length
        if self._tail.get(call.stream) is call:
            del self._tail[call.stream]
        for later in call.after:
            later.waits -= 1
            if later.waits == 0 and later.op == Op.READ:
                self._reads_due.append(later)
        if self._done is not None:
            self._done(call.number, call.issued_ns, now)

    def _verify(self, call: _Call) -> None:
        """Compare every sector read with the write that the store believes to be there."""
        data = self._reads.memory[call.slot, : call.length]
        sequences = self._last[_pages(call)]
        edges = np.flatnonzero(np.diff(sequences)) + 1
        bounds = [0, *edges.tolist(), len(sequences)]
        for first, last in pairwise(bounds):
            part = data[first * PAGE_BYTES : last * PAGE_BYTES]
            sequence = int(sequences[first])
            at = call.offset + first * PAGE_BYTES
            if sequence == 0:
                self.issued.wrong_sectors += part.size // 512
            else:
                self.issued.wrong_sectors += self._writes.wrong_sectors(part, at, sequence)
        self.issued.verified_bytes += call.length

    def __enter__(self) -> Issuer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Buffers must outlive what the kernel still writes into them, also after Ctrl-C.
        while self._flying:
            for cqe in self._ring.reap(wait=1):
                self._flying.pop(int(cqe["user_data"]), None)
        self._ring.close()
        if self._cached_fd is not None:
            os.close(self._cached_fd)


def _pages(call: _Call) -> slice:
    return slice(call.offset // PAGE_BYTES, -(-(call.offset + call.length) // PAGE_BYTES))


def _conflict(one: _Call, other: _Call) -> bool:
    if one.op == Op.READ and other.op == Op.READ:
        return False
    return one.offset < other.offset + other.length and other.offset < one.offset + one.length
