"""What one engine works with: a ring, its share of the commands, buffers and its own state."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from harness.replay.window import I64, U64


class Lane(NamedTuple):
    """What does not change while an engine runs. Sizes in bytes, times in ns.

    ring_fd, sq_tail, cq_head, cq_tail, sqes, cqes
        The ring: addresses of its words, and its entries as (n, 8) and (n, 2) uint64.
    first, stride
        The engine issues commands ``first``, ``first + stride``, …
    depth, batch
        Commands in flight, and in one system call, at most.
    paced
        Whether due times count; else every command is due at once.
    spin_ns, spins_busy, modest
        Shorter waits are spent looking at the clock; also while commands are in flight? And
        whether the engine is real-time only when it must (``punctual``).
    device_fd, ring_discard
        For discards outside the ring, where the kernel has none inside.
    read_address, read_slot, write_address, write_slot
        Buffers: slot i of the depth at ``address + i * slot``.
    reads, payload, tag
        The read buffers and the payload pool as uint64, and the pool's tag.
    stamped
        Whether writes are stamped.
    truth, unit_bytes
        Per unit of the device, which write it holds (``verify``); empty without verification.
    """

    ring_fd: int
    sq_tail: int
    cq_head: int
    cq_tail: int
    sqes: U64
    cqes: U64
    first: int
    stride: int
    depth: int
    batch: int
    paced: bool
    spin_ns: int
    spins_busy: bool
    modest: bool
    device_fd: int
    ring_discard: bool
    read_address: int
    read_slot: int
    write_address: int
    write_slot: int
    reads: U64
    payload: U64
    tag: np.uint64
    stamped: bool
    truth: U64
    unit_bytes: int


class At(IntEnum):
    """Words of ``Flight.at``.

    NEXT command to stage (or, in a closed loop, to admit), FREE buffer slots, how many commands
    wait to be issued AGAIN, how many are FINISHED since the last look. LOOKED is when the engine
    last looked at the clock, WAITED how long it meant to sleep since, HELD how long it was held
    up since it last took completions, AWAKE how much longer it has been awake, while real-time,
    than it may be for what it slept (ns each). STAGED commands have a slot, and are not submitted.
    REALTIME says whether the engine has such a priority (``punctual``), PROMOTED since when, FULL
    when there last was no room for another command.
    """

    NEXT = 0
    FREE = 1
    AGAIN = 2
    FINISHED = 3
    LOOKED = 4
    WAITED = 5
    HELD = 6
    STAGED = 7
    AWAKE = 8
    REALTIME = 9
    FULL = 10
    PROMOTED = 11


_NEVER = 1 << 62


class Flight(NamedTuple):
    """What changes while an engine runs, int64 each.

    slot
        Buffer slot of a command, by window row.
    free
        Stack of free buffer slots.
    tries
        How often the kernel had no room for a command, by window row.
    again
        Commands that the kernel had no room for, in trace order.
    staged
        Commands prepared in the ring and not submitted yet, in trace order.
    finished
        Commands completed since the last look.
    scratch
        Memory for the clock and for the arguments of system calls.
    at
        The words named in ``At``.
    """

    slot: I64
    free: I64
    tries: I64
    again: I64
    staged: I64
    finished: I64
    scratch: I64
    at: I64


def make_flight(window_size: int, depth: int, first: int) -> Flight:
    """Fresh state for an engine of ``depth`` slots whose first command is ``first``."""
    return Flight(
        slot=np.zeros(window_size, np.int64),
        free=np.arange(depth, dtype=np.int64),
        tries=np.zeros(window_size, np.int64),
        again=np.zeros(depth, np.int64),
        staged=np.zeros(depth, np.int64),
        finished=np.zeros(depth, np.int64),
        scratch=np.zeros(8, np.int64),
        at=np.array([first, depth, 0, 0, _NEVER, 0, 0, 0, 0, 0, -1, 0], np.int64),
    )
