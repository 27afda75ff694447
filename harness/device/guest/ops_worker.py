"""Runs inside a guest: sends an op list to a drive, command by command, in exactly that order.

``python -m harness.device.guest.ops_worker DEVICE OPS.npy DEPTH`` prints one JSON object: the
counters at every SNAP (after draining), bytes by operation, what failed, and how many commands
the kernel issued in the order sent. Each operation is submitted by a system call of its own:
kernels before 6.13 hand a plugged batch to the NVMe queue in reverse order.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
import sys
import time
from typing import Any

import numpy as np

from harness.core.ops import SECTOR_BYTES, Op
from harness.device.counter_reader import read_counters
from harness.device.guest.ops_witness import Command, OrderWitness, in_order
from harness.device.ring import Opcode, Ring, empty_sqes

_BLKDISCARD = 0x1277
_PATTERN_BYTES = 4 << 20
_WITNESS_EVERY = 100_000
"""Commands between two looks at the witness; its buffer holds several times as many."""

_LETTERS = {int(Op.READ): "R", int(Op.WRITE): "W", int(Op.DISCARD): "D"}
_OPCODES = {int(Op.READ): Opcode.READ, int(Op.WRITE): Opcode.WRITE}


def main(device: str, ops_path: str, depth: int) -> dict[str, Any]:
    """Send the list; the JSON described above."""
    ops = np.load(ops_path, allow_pickle=False)
    fd = os.open(device, os.O_RDWR | os.O_DIRECT | os.O_EXCL)
    buffer = mmap.mmap(-1, _PATTERN_BYTES)
    buffer[:] = np.random.default_rng(0).bytes(_PATTERN_BYTES)
    address = np.frombuffer(buffer, np.uint8).ctypes.data
    witness = OrderWitness(device)
    try:
        with Ring(depth) as ring:
            return _Sender(device, fd, ring, address, depth, witness).send(ops)
    finally:
        witness.close()
        os.close(fd)


class _Sender:
    def __init__(
        self, device: str, fd: int, ring: Ring, address: int, depth: int, witness: OrderWitness
    ) -> None:
        self.device, self.fd, self.ring, self.address, self.depth = device, fd, ring, address, depth
        self.witness = witness
        self.sent: list[Command] = []
        self.in_order = self.commands = self.in_flight = 0
        self.failed: list[dict[str, int]] = []
        self.bytes_done = {int(Op.READ): 0, int(Op.WRITE): 0, int(Op.DISCARD): 0}

    def send(self, ops: np.ndarray) -> dict[str, Any]:
        entries = self._entries(ops)
        snapshots = []
        codes, offsets, lengths = ops["op"].tolist(), ops["offset"].tolist(), ops["length"].tolist()
        clock = time.monotonic()
        for index, code in enumerate(codes):
            if code in _LETTERS:
                self._remember(_LETTERS[code], offsets[index], lengths[index])
            if code in _OPCODES:
                self._submit(entries[index : index + 1])
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
            "in_order": self.in_order,
            "duration_s": duration_s,
        }

    def _remember(self, letter: str, offset: int, length: int) -> None:
        if len(self.sent) == _WITNESS_EVERY:
            self._look()
        self.sent.append((letter, offset // SECTOR_BYTES, length // SECTOR_BYTES))

    def _look(self) -> None:
        self._wait(0)
        self.in_order += in_order(self.sent, self.witness.commands())
        self.commands += len(self.sent)
        self.sent.clear()

    def _entries(self, ops: np.ndarray) -> np.ndarray:
        entries = empty_sqes(len(ops))
        entries["opcode"] = np.where(ops["op"] == Op.READ, Opcode.READ, Opcode.WRITE)
        entries["fd"] = self.fd
        entries["off"] = ops["offset"]
        entries["addr"] = self.address
        entries["len"] = ops["length"]
        entries["user_data"] = np.arange(len(ops))
        self.lengths, self.codes = ops["length"], ops["op"]
        return entries

    def _submit(self, entry: np.ndarray) -> None:
        if self.in_flight >= self.depth:
            self._wait(self.depth - max(1, self.depth // 4))
        while self.ring.submit(entry) == 0:
            self._wait(self.in_flight - 1)
        self.in_flight += 1

    def _wait(self, at_most: int) -> None:
        while self.in_flight > at_most:
            done = self.ring.reap(self.in_flight - at_most)
            self.in_flight -= len(done)
            for index, result in zip(done["user_data"].tolist(), done["res"].tolist(), strict=True):
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
    json.dump(main(sys.argv[1], sys.argv[2], int(sys.argv[3])), sys.stdout)
