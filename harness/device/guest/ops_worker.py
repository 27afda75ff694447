"""Runs where the drive is: sends an op list to a drive, command by command, in exactly that order.

``python -m harness.device.guest.ops_worker DEVICE DESTROY OPS.npy DEPTH`` prints one JSON object:
the counters at every SNAP (after draining), bytes by operation, what failed, and how many commands
the kernel issued in the order sent. Each operation is submitted by a system call of its own:
kernels before 6.13 hand a plugged batch to the NVMe queue in reverse order.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import HarnessError
from harness.core.ops import SECTOR_BYTES, Op
from harness.device.counter_reader import read_counters
from harness.device.guard import open_guarded
from harness.device.guest.aio import IOCB_DTYPE, PREAD, PWRITE, Aio
from harness.device.guest.ops_witness import Command, OrderWitness, in_order

_BLKDISCARD = 0x1277
_PATTERN_BYTES = 4 << 20
_WITNESS_EVERY = 100_000
"""Commands between two looks at the witness; its buffer holds several times as many."""

_LETTERS = {int(Op.READ): "R", int(Op.WRITE): "W", int(Op.DISCARD): "D"}
_OPCODES = {int(Op.READ): PREAD, int(Op.WRITE): PWRITE}


def main(device: str, destroy: str, ops_path: str, depth: int) -> dict[str, Any]:
    """Send the list; the JSON described above. ``destroy`` names the drive for the guard."""
    ops = np.load(ops_path, allow_pickle=False)
    # What is written comes from the first half and what is read goes to the second, or reads
    # of an empty drive would turn the incompressible pattern into zeros.
    buffer = mmap.mmap(-1, 2 * _PATTERN_BYTES)
    buffer[:_PATTERN_BYTES] = np.random.default_rng(0).bytes(_PATTERN_BYTES)
    address = np.frombuffer(buffer, np.uint8).ctypes.data
    with (
        open_guarded(device, destroy=destroy) as target,
        _unmerged(target.name),
        closing(Aio(depth)) as aio,
        _witness(device) as witness,
    ):
        return _Sender(device, target.fd, aio, address, depth, witness).send(ops)


@contextmanager
def _witness(device: str) -> Iterator[OrderWitness | None]:
    """The kernel's view of the order; None where its tracing is not to be had."""
    try:
        witness = OrderWitness(device)
    except OSError:
        yield None
        return
    with closing(witness):
        yield witness


@contextmanager
def _unmerged(name: str) -> Iterator[None]:
    """One command an operation: neighbours are not merged meanwhile."""
    setting = Path("/sys/block", name, "queue", "nomerges")
    before = setting.read_text()
    setting.write_text("2")
    try:
        yield
    finally:
        setting.write_text(before)


class _Sender:
    def __init__(
        self, device: str, fd: int, aio: Aio, address: int, depth: int, witness: OrderWitness | None
    ) -> None:
        self.device, self.fd, self.aio, self.address, self.depth = device, fd, aio, address, depth
        self.witness = witness
        self.sent: list[Command] = []
        self.in_order = self.commands = self.in_flight = 0
        self.failed: list[dict[str, int]] = []
        self.bytes_done = {int(Op.READ): 0, int(Op.WRITE): 0, int(Op.DISCARD): 0}

    def send(self, ops: np.ndarray) -> dict[str, Any]:
        entries = self._entries(ops)
        first = entries.ctypes.data
        snapshots = []
        codes, offsets, lengths = ops["op"].tolist(), ops["offset"].tolist(), ops["length"].tolist()
        clock = time.monotonic()
        for index, code in enumerate(codes):
            if code in _LETTERS:
                self._remember(_LETTERS[code], offsets[index], lengths[index])
            if code in _OPCODES:
                self._submit(first + index * IOCB_DTYPE.itemsize)
            elif code == Op.DISCARD:
                self._discard(index, offsets[index], lengths[index])
            elif code == Op.SNAP:
                self._wait(0)
                reading = read_counters(self.device).to_json()
                snapshots.append({"tag": offsets[index], "ops_done": index, "counters": reading})
        self._wait(0)
        duration_s = time.monotonic() - clock
        self._look()
        done = {Op(code).name.lower(): size for code, size in self.bytes_done.items()}
        return {
            "snapshots": snapshots,
            "bytes": done,
            "failed": self.failed,
            "commands": self.commands,
            "in_order": self.in_order if self.witness else None,
            "duration_s": duration_s,
        }

    def _remember(self, letter: str, offset: int, length: int) -> None:
        if len(self.sent) == _WITNESS_EVERY:
            self._look()
        self.sent.append((letter, offset // SECTOR_BYTES, length // SECTOR_BYTES))

    def _look(self) -> None:
        self._wait(0)
        if self.witness is not None:
            self.in_order += in_order(self.sent, self.witness.commands())
        self.commands += len(self.sent)
        self.sent.clear()

    def _entries(self, ops: np.ndarray) -> np.ndarray:
        entries = np.zeros(len(ops), IOCB_DTYPE)
        entries["opcode"] = np.where(ops["op"] == Op.READ, PREAD, PWRITE)
        entries["fd"] = self.fd
        entries["offset"] = ops["offset"]
        entries["buffer"] = self.address + np.where(ops["op"] == Op.READ, _PATTERN_BYTES, 0)
        entries["length"] = ops["length"]
        entries["data"] = np.arange(len(ops))
        self.lengths, self.codes = ops["length"], ops["op"]
        return entries

    def _submit(self, iocb_address: int) -> None:
        if self.in_flight >= self.depth:
            self._wait(self.depth - max(1, self.depth // 4))
        self.aio.submit(iocb_address)
        self.in_flight += 1

    def _wait(self, at_most: int) -> None:
        while self.in_flight > at_most:
            done = self.aio.reap(self.in_flight - at_most)
            self.in_flight -= len(done)
            for index, result in zip(done["data"].tolist(), done["result"].tolist(), strict=True):
                if result != self.lengths[index]:
                    self.failed.append({"index": index, "result": result})
                else:
                    self.bytes_done[int(self.codes[index])] += result

    def _discard(self, index: int, offset: int, length: int) -> None:
        # The ioctl waits for its own completion; earlier commands are in the queue before it.
        try:
            fcntl.ioctl(self.fd, _BLKDISCARD, struct.pack("QQ", offset, length))
        except OSError as error:
            self.failed.append({"index": index, "result": -(error.errno or 1)})
        else:
            self.bytes_done[int(Op.DISCARD)] += length


if __name__ == "__main__":
    try:
        json.dump(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])), sys.stdout)
    except HarnessError as error:
        sys.exit(f"{error} ({error.fix})" if error.fix else str(error))
