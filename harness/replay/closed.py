"""The compiled loop of a closed-loop replay: commands become due when what they wait for is done.

Commands are admitted in trace order. One that follows a completion of its stream becomes due its
think time after it; a read waits besides for every write to its blocks that was complete
before it in the recording. Those that wait are linked from what they wait for; those that
do not are in a heap by due time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.core.ops import Op
from harness.replay.engine import LONGEST_WAIT_NS, SHORT_WAIT_NS
from harness.replay.heap import pop, push
from harness.replay.jit import inner, kernel
from harness.replay.lane import At, Flight, Lane
from harness.replay.native import load_i64
from harness.replay.punctual import note_full, note_on_time
from harness.replay.submit import (
    discard_now,
    look,
    needs_call,
    reap,
    stage,
    stage_again,
    submit,
    wait,
    wait_until,
)
from harness.replay.verify import make_truth
from harness.replay.window import ABANDON, I64, NO_COMMAND, RUNNING, U64, Control, Meter, Window

_READ, _WRITE = int(Op.READ), int(Op.WRITE)
_ADMIT_AT_ONCE = 256
_NOTHING = -1


class Loop(NamedTuple):
    """State of a closed loop.

    keys, values, size
        Heap of the commands that wait for nothing but their time.
    waiting
        How many completions a command still waits for, by window row.
    head
        First link of a command, by window row; ``child``, ``next`` and ``think`` are by link.
    spare, spares
        Stack of unused links and its height.
    writer
        Per unit of the device, the last write admitted there plus one.
    speed
        By which recorded latencies are divided.
    """

    keys: I64
    values: I64
    size: I64
    waiting: I64
    head: I64
    child: I64
    next: I64
    think: I64
    spare: I64
    spares: I64
    writer: U64
    speed: float


def make_loop(window_size: int, device_bytes: int, unit_bytes: int, speed: float) -> Loop:
    """Fresh state for a window of ``window_size`` rows."""
    links = 4 * window_size

    def column(size: int) -> I64:
        return np.zeros(size, np.int64)

    return Loop(
        keys=column(window_size),
        values=column(window_size),
        size=column(1),
        waiting=column(window_size),
        head=np.full(window_size, _NOTHING, np.int64),
        child=column(links),
        next=column(links),
        think=column(links),
        spare=np.arange(links, dtype=np.int64),
        spares=np.array([links], np.int64),
        writer=make_truth(device_bytes, unit_bytes),
        speed=speed,
    )


@kernel
def run_closed(
    lane: Lane, flight: Flight, window: Window, control: I64, meter: I64, loop: Loop
) -> None:
    """As ``run_schedule``, by dependencies; ``due`` becomes the time when a command was free."""
    words = control.ctypes.data
    start = load_i64(words + 8 * Control.START_NS)
    while True:
        stop = load_i64(words + 8 * Control.STOP)
        finished = load_i64(words + 8 * Control.FINISHED)
        produced = load_i64(words + 8 * Control.PRODUCED)
        if stop == ABANDON or meter[Meter.ENTER_ERROR] != 0:
            return
        admitted = _admit(lane, flight, window, loop, produced)
        now = look(flight, meter, start)
        count = 0
        if stop == RUNNING:
            count = _gather(lane, flight, window, meter, loop, now, start)
        if count > 0:
            submit(lane, flight, window, meter, count, start)
        reap(lane, flight, window, meter, start)
        released = flight.at[At.FINISHED] > 0
        _release(flight, window, loop)
        if flight.at[At.FREE] == lane.depth:
            idle = loop.size[0] == 0 and flight.at[At.AGAIN] == 0
            if stop != RUNNING or (idle and finished != 0 and flight.at[At.NEXT] >= produced):
                return
        if count == 0 and not released:
            if flight.at[At.NEXT] < produced and admitted:
                wait(lane, flight, meter, 0, 0)
            else:
                _idle(lane, flight, meter, loop, stop, start)


@inner
def _admit(lane: Lane, flight: Flight, window: Window, loop: Loop, produced: int) -> bool:
    """Take planned commands in, while there is room for what they depend on; whether any."""
    at = flight.at
    first = at[At.NEXT]
    row_mask = len(window.due) - 1
    end = min(produced, at[At.NEXT] + _ADMIT_AT_ONCE)
    while at[At.NEXT] < end:
        command = at[At.NEXT]
        row = command & row_mask
        units = window.length[row] // lane.unit_bytes + 2
        if loop.spares[0] <= units:
            break
        loop.head[row] = _NOTHING
        loop.waiting[row] = 0
        after = window.after[row]
        if after != NO_COMMAND:
            _depend(window, loop, command, after, window.think[row])
        if window.kind[row] == _READ or window.kind[row] == _WRITE:
            _touch(lane, window, loop, command, row)
        if loop.waiting[row] == 0:
            push(loop.keys, loop.values, loop.size, window.due[row], command)
        at[At.NEXT] += 1
    return bool(at[At.NEXT] > first)


@inner
def _touch(lane: Lane, window: Window, loop: Loop, command: int, row: int) -> None:
    """Note a write in the map; make a read wait for the writes that it depends on."""
    row_mask = len(window.due) - 1
    first = window.offset[row] // lane.unit_bytes
    end = (window.offset[row] + window.length[row] + lane.unit_bytes - 1) // lane.unit_bytes
    previous = _NOTHING
    for unit in range(first, end):
        if window.kind[row] == _WRITE:
            loop.writer[unit] = np.uint64(command + 1)
            continue
        writer = int(np.int64(loop.writer[unit])) - 1
        if writer == previous or writer < 0:
            continue
        previous = writer
        source = writer & row_mask
        latency = window.recorded_latency[source]
        known = window.number[source] == writer and latency >= 0
        if known and window.recorded_at[source] + latency / loop.speed <= window.recorded_at[row]:
            _depend(window, loop, command, writer, 0)


@inner
def _depend(window: Window, loop: Loop, command: int, source: int, think: int) -> None:
    """Make ``command`` wait until ``think`` ns after ``source`` is done."""
    row_mask = len(window.due) - 1
    row, source_row = command & row_mask, source & row_mask
    if window.number[source_row] != source:
        return  # done so long ago that its row has been taken by another
    if window.done[source_row] != 0:
        window.due[row] = max(window.due[row], window.done[source_row] + think)
        return
    loop.spares[0] -= 1
    link = loop.spare[loop.spares[0]]
    loop.child[link] = command
    loop.think[link] = think
    loop.next[link] = loop.head[source_row]
    loop.head[source_row] = link
    loop.waiting[row] += 1


@inner
def _release(flight: Flight, window: Window, loop: Loop) -> None:
    """Let go what waited for the commands that have finished."""
    row_mask = len(window.due) - 1
    for i in range(flight.at[At.FINISHED]):
        source = flight.finished[i] & row_mask
        link = loop.head[source]
        loop.head[source] = _NOTHING
        while link != _NOTHING:
            command = loop.child[link]
            row = command & row_mask
            ready = window.done[source] + loop.think[link]
            window.due[row] = max(window.due[row], ready)
            loop.waiting[row] -= 1
            if loop.waiting[row] == 0:
                push(loop.keys, loop.values, loop.size, window.due[row], command)
            loop.spare[loop.spares[0]] = link
            loop.spares[0] += 1
            link = loop.next[link]
    flight.at[At.FINISHED] = 0


@inner
def _gather(
    lane: Lane, flight: Flight, window: Window, meter: I64, loop: Loop, now: int, start: int
) -> int:
    """Stage the commands to submit now; how many."""
    at = flight.at
    if at[At.AGAIN] > 0:
        return stage_again(lane, flight, window, meter)
    while at[At.STAGED] < lane.batch and at[At.FREE] > 0:
        if loop.size[0] == 0 or loop.keys[0] > now:
            break
        if needs_call(lane, window, loop.values[0]):
            if at[At.STAGED] == 0:
                command = pop(loop.keys, loop.values, loop.size)
                discard_now(lane, flight, window, meter, command, start)
            break
        stage(lane, flight, window, meter, pop(loop.keys, loop.values, loop.size))
    return int(at[At.STAGED])


@inner
def _idle(lane: Lane, flight: Flight, meter: I64, loop: Loop, stop: int, start: int) -> None:
    """Wait for a completion or the next due time; new commands are looked for now and then."""
    if stop != RUNNING:
        wait(lane, flight, meter, LONGEST_WAIT_NS, 1)
    elif flight.at[At.FREE] == 0:
        note_full(lane, flight, meter)
        wait(lane, flight, meter, SHORT_WAIT_NS, 1)
    elif flight.at[At.AGAIN] > 0:
        wait(lane, flight, meter, SHORT_WAIT_NS, 1)
    elif loop.size[0] == 0:
        note_on_time(flight, meter)
        wait(lane, flight, meter, SHORT_WAIT_NS, 1)
    else:
        wait_until(lane, flight, meter, loop.keys[0], LONGEST_WAIT_NS, start)
