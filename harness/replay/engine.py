"""The compiled loop that issues commands in trace order, on time or flat out.

It runs without Python's lock in a thread of its own. Due times are absolute: a late command
never moves those behind it, it only makes them due at once. What can be prepared before a
command is due is done while there is time: its place in the ring, and the stamps of its payload.
"""

from __future__ import annotations

from harness.replay.jit import inner, kernel
from harness.replay.lane import At, Flight, Lane
from harness.replay.native import load_i64
from harness.replay.punctual import note_full, note_on_time
from harness.replay.submit import (
    discard_now,
    in_flight,
    look,
    needs_call,
    reap,
    stage,
    stage_again,
    submit,
    wait,
    wait_until,
)
from harness.replay.window import ABANDON, I64, RUNNING, Control, Meter, Window

LONGEST_WAIT_NS = 5_000_000
"""While it sleeps, an engine that is stopped cannot tell: a stop of this length may go unseen."""
SHORT_WAIT_NS = 100_000
STAGE_BYTES = 512 << 10
"""Staged between two looks at the clock: stamping large requests takes time by the byte."""
FULL_SHARE, PACED_FULL_SHARE = 4, 8
"""With all of the depth in flight, that part of it is waited for at once."""


@kernel
def run_schedule(lane: Lane, flight: Flight, window: Window, control: I64, meter: I64) -> None:
    """Issue this lane's commands in order, when due (or at once), until all are done.

    Returns when the planner has finished and nothing is in flight; on DRAIN as soon as nothing
    is in flight; on ABANDON, or when the kernel refuses the ring, at once.
    """
    words = control.ctypes.data
    start = load_i64(words + 8 * Control.START_NS)
    at = flight.at
    while True:
        stop = load_i64(words + 8 * Control.STOP)
        finished = load_i64(words + 8 * Control.FINISHED)
        produced = load_i64(words + 8 * Control.PRODUCED)
        if stop == ABANDON or meter[Meter.ENTER_ERROR] != 0:
            return
        now = look(flight, meter, start)
        count = 0
        if stop == RUNNING:
            count = _gather(lane, flight, window, meter, produced, now, start)
        if count > 0:
            submit(lane, flight, window, meter, count, start)
        reap(lane, flight, window, meter, start)
        at[At.FINISHED] = 0
        if in_flight(lane, flight) == 0:
            left = at[At.STAGED] + at[At.AGAIN] > 0 or at[At.NEXT] < produced
            if stop != RUNNING or (finished != 0 and not left):
                return
        if count == 0:
            _idle(lane, flight, window, meter, produced, stop, start)


@inner
def _gather(
    lane: Lane, flight: Flight, window: Window, meter: I64, produced: int, now: int, start: int
) -> int:
    """Stage what there is time for; how many of the staged commands are to be submitted now."""
    at = flight.at
    row_mask = len(window.due) - 1
    if at[At.AGAIN] > 0:
        # Alone: whatever went with them could overtake them once more.
        return stage_again(lane, flight, window, meter)
    size = 0
    while at[At.NEXT] < produced and at[At.FREE] > 0 and size < STAGE_BYTES:
        command = at[At.NEXT]
        row = command & row_mask
        due = not lane.paced or window.due[row] <= now
        if needs_call(lane, window, command):
            if due and at[At.STAGED] == 0:
                at[At.NEXT] += lane.stride
                discard_now(lane, flight, window, meter, command, start)
            break
        if at[At.STAGED] > 0 and not due:
            first = window.due[flight.staged[0] & row_mask]
            if first <= now + lane.spin_ns:
                break
        if not lane.paced and at[At.STAGED] == lane.batch:
            break
        stage(lane, flight, window, meter, command)
        size += window.length[row]
        at[At.NEXT] += lane.stride
    count = min(at[At.STAGED], lane.batch)
    if lane.paced:
        due_now = 0
        while due_now < count and window.due[flight.staged[due_now] & row_mask] <= now:
            due_now += 1
        count = due_now
    return int(count)


@inner
def _idle(
    lane: Lane, flight: Flight, window: Window, meter: I64, produced: int, stop: int, start: int
) -> None:
    """Wait for what comes first: the next due time or a completion."""
    at = flight.at
    if stop != RUNNING:
        wait(lane, flight, meter, LONGEST_WAIT_NS, 1)
    elif at[At.AGAIN] > 0:
        wait(lane, flight, meter, SHORT_WAIT_NS, 1)
    elif in_flight(lane, flight) == lane.depth:
        # More than one at a time, or engine and device wake each other for every request.
        longest = SHORT_WAIT_NS if lane.paced else LONGEST_WAIT_NS
        note_full(lane, flight, meter)
        share = PACED_FULL_SHARE if lane.paced else FULL_SHARE
        wait(lane, flight, meter, longest, max(lane.depth // share, 1))
    elif at[At.STAGED] == 0 and at[At.NEXT] >= produced:
        note_on_time(flight, meter)
        wait(lane, flight, meter, SHORT_WAIT_NS, 1)
        meter[Meter.STARVED_NS] += SHORT_WAIT_NS
    elif lane.paced:
        following = flight.staged[0] if at[At.STAGED] > 0 else at[At.NEXT]
        due = window.due[following & (len(window.due) - 1)]
        wait_until(lane, flight, meter, due, LONGEST_WAIT_NS, start)
