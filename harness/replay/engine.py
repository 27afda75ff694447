"""The compiled loop that issues commands in trace order, on time or flat out.

It runs without Python's lock in a thread of its own. Due times are absolute: a late command
never moves those behind it, it only makes them due at once.
"""

from __future__ import annotations

from harness.replay.jit import inner, kernel
from harness.replay.lane import At, Flight, Lane
from harness.replay.native import load_i64, now_ns, pause
from harness.replay.submit import DISCARD, look, reap, submit, take_again, wait
from harness.replay.window import ABANDON, I64, RUNNING, Control, Meter, Window

LONGEST_WAIT_NS = 5_000_000
"""While it sleeps, an engine that is stopped cannot tell: a stop of this length may go unseen."""
SHORT_WAIT_NS = 100_000
BATCH_BYTES = 512 << 10
"""A batch ends with this much: stamping and submitting large requests takes time by the byte."""
FULL_SHARE = 8
"""With all of the depth in flight, that part of it is waited for at once."""


@kernel
def run_schedule(lane: Lane, flight: Flight, window: Window, control: I64, meter: I64) -> None:
    """Issue this lane's commands in order, when due (or at once), until all are done.

    Returns when the planner has finished and nothing is in flight; on DRAIN as soon as nothing
    is in flight; on ABANDON, or when the kernel refuses the ring, at once.
    """
    words = control.ctypes.data
    start = load_i64(words + 8 * Control.START_NS)
    while True:
        stop = load_i64(words + 8 * Control.STOP)
        finished = load_i64(words + 8 * Control.FINISHED)
        produced = load_i64(words + 8 * Control.PRODUCED)
        if stop == ABANDON or meter[Meter.ENTER_ERROR] != 0:
            return
        now = look(flight, meter, start)
        count = _gather(lane, flight, window, produced, now) if stop == RUNNING else 0
        if count > 0:
            submit(lane, flight, window, meter, count, start)
        reap(lane, flight, window, meter, start)
        flight.at[At.FINISHED] = 0
        if flight.at[At.FREE] == lane.depth:
            none_left = finished != 0 and flight.at[At.NEXT] >= produced
            if stop != RUNNING or (none_left and flight.at[At.AGAIN] == 0):
                return
        if count == 0:
            _idle(lane, flight, window, meter, produced, stop, start)


@inner
def _gather(lane: Lane, flight: Flight, window: Window, produced: int, now: int) -> int:
    """Put the commands to submit now into ``flight.batch``; how many."""
    at = flight.at
    if at[At.AGAIN] > 0:
        # Alone: whatever went with them could overtake them once more.
        return take_again(lane, flight)
    count, size = 0, 0
    row_mask = len(window.due) - 1
    while count < min(lane.batch, at[At.FREE]) and size < BATCH_BYTES:
        command = at[At.NEXT]
        if command >= produced or (lane.paced and window.due[command & row_mask] > now):
            break
        alone = window.kind[command & row_mask] == DISCARD and not lane.ring_discard
        if alone and count > 0:
            break
        flight.batch[count] = command
        count += 1
        size += window.length[command & row_mask]
        at[At.NEXT] += lane.stride
        if alone:
            break
    return count


@inner
def _idle(
    lane: Lane, flight: Flight, window: Window, meter: I64, produced: int, stop: int, start: int
) -> None:
    """Wait for what comes first: the next due time or a completion."""
    at = flight.at
    if stop == RUNNING and at[At.FREE] == 0:
        # More than one at a time, or engine and device wake each other for every request.
        wait(lane, flight, meter, LONGEST_WAIT_NS, max(lane.depth // FULL_SHARE, 1))
    elif stop != RUNNING:
        wait(lane, flight, meter, LONGEST_WAIT_NS, 1)
    elif at[At.AGAIN] > 0:
        wait(lane, flight, meter, SHORT_WAIT_NS, 1)
    elif at[At.NEXT] >= produced:
        wait(lane, flight, meter, SHORT_WAIT_NS, 1)
        meter[Meter.STARVED_NS] += SHORT_WAIT_NS
    elif lane.paced:
        due = window.due[at[At.NEXT] & (len(window.due) - 1)]
        left = due - (now_ns(flight.scratch) - start)
        if left > lane.spin_ns:
            wait(lane, flight, meter, min(left - lane.spin_ns, LONGEST_WAIT_NS), 1)
        else:
            pause()
