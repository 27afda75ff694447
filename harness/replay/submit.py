"""Compiled steps that every engine shares: stage and submit commands, take completions, wait.

Reads and writes are submitted with NOWAIT, so that when the queue has no room the kernel says so
(EAGAIN) instead of handing the request to a worker thread and losing its place; such a command
is issued again before any other. One that is refused again and again (the kernel would have to
split it, say) is submitted without NOWAIT in the end. Flushes and write-zeroes have no such path:
the kernel always runs them in a worker.
"""

from __future__ import annotations

import numpy as np

from harness.core.ops import Op
from harness.device.buffers import stamp_blocks
from harness.device.ring import (
    BLOCK_URING_CMD_DISCARD,
    ENTER_EXT_ARG,
    ENTER_GETEVENTS,
    RWF_DSYNC,
    RWF_NOWAIT,
    SQE_FIXED_FILE,
    SYS_IO_URING_ENTER,
    Opcode,
)
from harness.replay.jit import inner
from harness.replay.lane import At, Flight, Lane
from harness.replay.native import load_u32, now_ns, pause, store_i64, store_u32, system_call
from harness.replay.punctual import (
    STALL_NS,
    may_spin,
    note_late,
    note_on_time,
    note_sleep,
    note_time,
)
from harness.replay.verify import check_read, note_failure, note_issue
from harness.replay.window import FLAG_FUA, I64, Meter, Window

_READ, _WRITE, DISCARD = int(Op.READ), int(Op.WRITE), int(Op.DISCARD)
_FLUSH, _ZEROES = int(Op.FLUSH), int(Op.WRITE_ZEROES)
_OP_READ, _OP_WRITE = int(Opcode.READ_FIXED), int(Opcode.WRITE_FIXED)
_OP_FSYNC, _OP_COMMAND = int(Opcode.FSYNC), int(Opcode.URING_CMD)
_OP_FALLOCATE = int(Opcode.FALLOCATE)
_SYS_IOCTL, _BLKDISCARD = 16, 0x1277
_EAGAIN, _EINTR, _EBUSY, _ETIME = -11, -4, -16, -62
_FALLOC_ZERO_KEEP_SIZE = 0x11
_GETEVENTS_ARG_BYTES = 24
_PATIENCE = 64
"""Refusals after which a command may block, in a worker thread of the kernel."""


@inner
def look(flight: Flight, meter: I64, start: int) -> int:
    """What the clock says (ns since ``start``); notes when that comes later than it should."""
    at = flight.at
    now = now_ns(flight.scratch) - start
    note_time(flight, meter, now - at[At.LOOKED])
    at[At.LOOKED] = now
    at[At.WAITED] = 0
    return int(now)


@inner
def needs_call(lane: Lane, window: Window, command: int) -> bool:
    """Whether ``command`` is a discard that the ring cannot carry (``discard_now``)."""
    return not lane.ring_discard and window.kind[command & (len(window.due) - 1)] == DISCARD


@inner
def stage(lane: Lane, flight: Flight, window: Window, meter: I64, command: int) -> None:
    """Prepare ``command`` behind those staged already: what takes time before it is due."""
    at = flight.at
    row = command & (len(window.due) - 1)
    at[At.FREE] -= 1
    flight.slot[row] = flight.free[at[At.FREE]]
    place = np.int64(load_u32(lane.sq_tail)) + at[At.STAGED]
    patient = flight.tries[row] < _PATIENCE
    meter[Meter.BLOCKING] += not patient
    nowait = RWF_NOWAIT if patient else 0
    entry = int(place) & (len(lane.sqes) - 1)
    _prepare(lane, window, entry, command, row, flight.slot[row], nowait)
    flight.staged[at[At.STAGED]] = command
    at[At.STAGED] += 1


@inner
def stage_again(lane: Lane, flight: Flight, window: Window, meter: I64) -> int:
    """Stage the commands that the kernel had no room for, before any other; how many."""
    at = flight.at
    while at[At.STAGED] > 0:  # in the reverse of their order, so NEXT becomes the first of them
        at[At.STAGED] -= 1
        at[At.NEXT] = flight.staged[at[At.STAGED]]
        flight.free[at[At.FREE]] = flight.slot[at[At.NEXT] & (len(window.due) - 1)]
        at[At.FREE] += 1
    count = min(lane.batch, at[At.FREE], at[At.AGAIN])
    for i in range(count):
        stage(lane, flight, window, meter, flight.again[i])
    left = at[At.AGAIN] - count
    for i in range(left):
        flight.again[i] = flight.again[count + i]
    at[At.AGAIN] = left
    return int(count)


@inner
def submit(lane: Lane, flight: Flight, window: Window, meter: I64, count: int, start: int) -> None:
    """Submit the first ``count`` staged commands in one system call and note when."""
    row_mask = len(window.due) - 1
    before, full, late = now_ns(flight.scratch) - start, flight.at[At.FULL], 0
    for i in range(count):
        row = flight.staged[i] & row_mask
        window.submitted[row] = before
        first_try = flight.tries[row] == 0 and window.due[row] > full
        late += first_try and before - window.due[row] > STALL_NS
        if len(lane.truth) > 0 and window.kind[row] != _READ and window.kind[row] != _FLUSH:
            note_issue(lane, window, flight.staged[i], row, window.kind[row] != _WRITE)
    store_u32(lane.sq_tail, np.uint32(np.int64(load_u32(lane.sq_tail)) + count))
    left = count
    while left > 0:
        taken = system_call(SYS_IO_URING_ENTER, lane.ring_fd, left, 0, ENTER_GETEVENTS, 0, 0)
        meter[Meter.ENTERS] += 1
        if taken > 0:
            left -= taken
        elif taken in (0, _EAGAIN, _EBUSY, _EINTR):
            reap(lane, flight, window, meter, start)
        else:
            meter[Meter.ENTER_ERROR] = taken
            return
    after = now_ns(flight.scratch) - start
    for i in range(count):
        window.issued[flight.staged[i] & row_mask] = after
    meter[Meter.ISSUED] += count
    if late > 0:
        note_late(lane, flight, meter, late)
    if count == 1:
        meter[Meter.LONE_CALLS] += 1
        meter[Meter.LONE_CALLS_NS] += after - before
    meter[Meter.LAST_LAG_NS] = after - window.due[flight.staged[count - 1] & row_mask]
    flight.at[At.STAGED] -= count
    for i in range(flight.at[At.STAGED]):
        flight.staged[i] = flight.staged[count + i]
    meter[Meter.PEAK] = max(meter[Meter.PEAK], in_flight(lane, flight))


@inner
def in_flight(lane: Lane, flight: Flight) -> int:
    """Commands that the kernel has."""
    return int(lane.depth - flight.at[At.FREE] - flight.at[At.STAGED])


@inner
def _prepare(
    lane: Lane, window: Window, at: int, command: int, row: int, slot: int, nowait: int
) -> None:
    """Write submission record ``at``: eight words of ``struct io_uring_sqe``."""
    entry = lane.sqes
    kind, offset, length = window.kind[row], window.offset[row], window.length[row]
    entry[at, 0] = np.uint64(SQE_FIXED_FILE << 8)
    entry[at, 4] = np.uint64(command)
    for word in (1, 2, 3, 5, 6, 7):
        entry[at, word] = np.uint64(0)
    if kind == _READ:
        entry[at, 0] |= np.uint64(_OP_READ)
        entry[at, 1] = np.uint64(offset)
        entry[at, 2] = np.uint64(lane.read_address + slot * lane.read_slot)
        entry[at, 3] = np.uint64(length | (nowait << 32))
    elif kind == _WRITE:
        durable = RWF_DSYNC if window.flags[row] & FLAG_FUA else 0
        entry[at, 0] |= np.uint64(_OP_WRITE)
        entry[at, 1] = np.uint64(offset)
        entry[at, 2] = np.uint64(lane.write_address + slot * lane.write_slot)
        entry[at, 3] = np.uint64(length | ((nowait | durable) << 32))
        entry[at, 5] = np.uint64(1)  # the second registered buffer
        if lane.stamped:
            stamp_blocks(
                lane.payload, slot * lane.write_slot, offset, length, np.uint64(command + 1),
                lane.tag, lane.unit_bytes,
            )  # fmt: skip
    elif kind == _FLUSH:
        entry[at, 0] |= np.uint64(_OP_FSYNC)
    elif kind == DISCARD:
        entry[at, 0] |= np.uint64(_OP_COMMAND)
        entry[at, 1] = np.uint64(BLOCK_URING_CMD_DISCARD)
        entry[at, 2], entry[at, 6] = np.uint64(offset), np.uint64(length)
    elif kind == _ZEROES:
        entry[at, 0] |= np.uint64(_OP_FALLOCATE)
        entry[at, 1], entry[at, 2] = np.uint64(offset), np.uint64(length)
        entry[at, 3] = np.uint64(_FALLOC_ZERO_KEEP_SIZE)


@inner
def discard_now(
    lane: Lane, flight: Flight, window: Window, meter: I64, command: int, start: int
) -> None:
    """Discard by the blocking call: before Linux 6.12 the ring has none."""
    row = command & (len(window.due) - 1)
    flight.scratch[4] = window.offset[row]
    flight.scratch[5] = window.length[row]
    window.submitted[row] = now_ns(flight.scratch) - start
    window.issued[row] = window.submitted[row]
    if len(lane.truth) > 0:
        note_issue(lane, window, command, row, True)
    where = flight.scratch.ctypes.data + 32
    result = system_call(_SYS_IOCTL, lane.device_fd, _BLKDISCARD, where, 0, 0, 0)
    done = now_ns(flight.scratch) - start
    flight.at[At.WAITED] += done - window.issued[row]
    flight.at[At.FULL] = done  # what fell due meanwhile is not late by others' fault
    meter[Meter.ISSUED] += 1
    meter[Meter.LAST_LAG_NS] = window.issued[row] - window.due[row]
    window.unsure[row] = 0
    _finish(lane, flight, window, meter, row, result, done)


@inner
def reap(lane: Lane, flight: Flight, window: Window, meter: I64, start: int) -> None:
    """Take every completion that is there; ``flight.finished`` gets the commands."""
    head, tail = int(np.int64(load_u32(lane.cq_head))), int(np.int64(load_u32(lane.cq_tail)))
    if head == tail:
        flight.at[At.HELD] = 0
        return
    row_mask = len(window.due) - 1
    now = look(flight, meter, start)
    while head != tail:
        place = head & (len(lane.cqes) - 1)
        command = int(np.int64(lane.cqes[place, 0]))
        result = int(np.int32(lane.cqes[place, 1] & np.uint64(0xFFFFFFFF)))
        head = (head + 1) & 0xFFFFFFFF
        row = command & row_mask
        if result == _EAGAIN and window.kind[row] <= _WRITE:
            meter[Meter.EAGAIN] += 1
            flight.tries[row] += 1
            _put_again(flight, command)
        else:
            if len(lane.truth) > 0 and window.kind[row] <= _WRITE:
                if result != window.length[row]:
                    note_failure(lane, window, command, row)
                elif window.kind[row] == _READ:
                    check_read(lane, window, meter, row, flight.slot[row])
            window.unsure[row] = flight.at[At.HELD]
            _finish(lane, flight, window, meter, row, result, now)
        flight.free[flight.at[At.FREE]] = flight.slot[row]
        flight.at[At.FREE] += 1
    store_u32(lane.cq_head, np.uint32(head))
    flight.at[At.HELD] = 0


@inner
def _put_again(flight: Flight, command: int) -> None:
    """Insert ``command`` into the list of commands to issue again, in trace order."""
    place = flight.at[At.AGAIN]
    while place > 0 and flight.again[place - 1] > command:
        flight.again[place] = flight.again[place - 1]
        place -= 1
    flight.again[place] = command
    flight.at[At.AGAIN] += 1


@inner
def _finish(
    lane: Lane, flight: Flight, window: Window, meter: I64, row: int, result: int, now: int
) -> None:
    window.result[row] = result
    flight.tries[row] = 0
    if window.kind[row] <= _WRITE:
        meter[Meter.BYTES] += max(result, 0)
        meter[Meter.ERRORS] += result != window.length[row]
    else:
        meter[Meter.ERRORS] += result < 0
    meter[Meter.COMPLETED] += 1
    flight.finished[flight.at[At.FINISHED] % lane.depth] = window.number[row]
    flight.at[At.FINISHED] += 1
    # Last, and ordered: whoever sees the command done sees its result.
    store_i64(window.done.ctypes.data + 8 * row, max(now, 1))


@inner
def wait_until(
    lane: Lane, flight: Flight, meter: I64, due: int, longest_ns: int, start: int
) -> None:
    """Sleep until a completion comes or it is nearly ``due``; then spin, if that harms nobody."""
    left = due - (now_ns(flight.scratch) - start)
    if left > 0:
        note_on_time(flight, meter)
    busy = in_flight(lane, flight) > 0
    spin = lane.spin_ns if may_spin(lane, flight, busy) else 0
    if left > spin:
        wait(lane, flight, meter, min(left - spin, longest_ns), 1)
    elif busy:
        wait(lane, flight, meter, 0, 0)
    else:
        pause()


@inner
def wait(lane: Lane, flight: Flight, meter: I64, timeout_ns: int, count: int) -> None:
    """Sleep in the kernel until ``count`` completions have come or the time is over."""
    scratch = flight.scratch
    before = now_ns(scratch) if lane.paced else 0
    scratch[3] = 0
    scratch[4] = 0
    scratch[5] = scratch.ctypes.data + 48
    scratch[6] = timeout_ns // 1_000_000_000
    scratch[7] = timeout_ns % 1_000_000_000
    result = system_call(
        SYS_IO_URING_ENTER, lane.ring_fd, 0, count, ENTER_GETEVENTS | ENTER_EXT_ARG,
        scratch.ctypes.data + 24, _GETEVENTS_ARG_BYTES,
    )  # fmt: skip
    meter[Meter.ENTERS] += 1
    if lane.paced and timeout_ns > 0:
        note_sleep(flight, now_ns(scratch) - before)
    flight.at[At.WAITED] += timeout_ns
    if result < 0 and result not in (_ETIME, _EINTR, _EBUSY, _EAGAIN):
        meter[Meter.ENTER_ERROR] = result
