"""How an engine keeps its times: what priority it has, and when it spins instead of sleeping.

A sleeping thread wakes up some 50 us late, one that looks at the clock is on time but takes a
processor. Where the device is served by threads of the kernel, spinning at a real-time priority
would keep those from running. There an engine has a normal priority, and a real-time one, in which
it does not spin beside commands in flight, while it is behind a device that has all of the depth
(when that is late, whoever feeds it must not be), or too many commands were late though the device
had room for them: then others had the processor.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from harness.replay.jit import inner
from harness.replay.lane import At, Flight, Lane
from harness.replay.native import system_call
from harness.replay.window import I64, Meter

SPIN_NS = 50_000
"""Shorter waits are spent spinning, where that is allowed."""
_SERVED_BY_THREADS = ("loop", "nbd", "drbd")
_PR_SET_TIMERSLACK = 29
_SYS_SETSCHEDULER = 144
_GLANCES, _GLANCE_S = 5, 0.002
_LATE, _LATE_SHARE = 16, 200
"""With more late commands than this and a 200th of those issued, an engine is real-time; until they
are no more than this and a 400th."""
_OTHER, _FIFO = 0, 1
"""Scheduling policies of the kernel."""
NORMAL, FOR_NOW, ALWAYS = range(3)
"""Values of ``At.REALTIME``."""
_AWAKE_SHARE, _AWAKE_NS = 9, 20_000_000
"""How many times as long as it sleeps a spinning engine may be awake, and how much beyond: the
kernel stops real-time threads that take more than 95 % of a second for the rest of it."""
STALL_NS = 1_000_000
"""An engine that has not looked at the clock for longer was held up itself."""


def served_by_threads(device: str) -> bool:
    """Whether kernel threads do the work of the device (``loop0``), on the same processors."""
    return device.startswith(_SERVED_BY_THREADS)


def spare_processor(engines: int) -> bool:
    """Whether one is left for others when all engines spin."""
    return len(os.sched_getaffinity(0)) > engines


def prioritise(realtime: bool, *, modest: bool) -> str:
    """Give the calling thread exact timers and, if permitted, a priority; its name.

    ``modest`` leaves it "normal" while there are processors enough for all; otherwise "real-time"
    where wished, or else "nice -10".
    """
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    if modest and not _crowded():
        return "normal"
    if realtime:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            return "real-time"
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -10)
        return "nice -10"
    return "normal"


def _crowded() -> bool:
    """Whether more threads want to run than there are processors, mostly."""
    crowded = 0
    for _ in range(_GLANCES):
        time.sleep(_GLANCE_S)
        runnable = int(Path("/proc/loadavg").read_text().split()[3].split("/")[0])
        crowded += runnable > (os.cpu_count() or 1)
    return 2 * crowded > _GLANCES


@inner
def note_time(flight: Flight, meter: I64, passed: int) -> None:
    """Account for ``passed`` ns between two looks at the clock.

    An engine that was stopped, or had no processor, sees completions late: that time is not
    the device's.
    """
    at = flight.at
    if at[At.REALTIME] != NORMAL:
        at[At.AWAKE] += max(passed, 0)
    held = passed - at[At.WAITED]
    if held > STALL_NS:
        at[At.HELD] += held
        meter[Meter.STALLS] += 1
        meter[Meter.STALLED_NS] += held
        meter[Meter.LONGEST_STALL_NS] = max(meter[Meter.LONGEST_STALL_NS], held)


@inner
def note_late(lane: Lane, flight: Flight, meter: I64, late: int) -> None:
    """Account for commands that were issued late though the device had room for them."""
    meter[Meter.LATE] += late
    if meter[Meter.LATE] > _LATE + meter[Meter.ISSUED] // _LATE_SHARE:
        _promote(lane, flight, meter)


@inner
def note_full(lane: Lane, flight: Flight, meter: I64) -> None:
    """All of the depth is in flight."""
    flight.at[At.FULL] = flight.at[At.LOOKED]
    _promote(lane, flight, meter)


@inner
def note_on_time(flight: Flight, meter: I64) -> None:
    """Nothing is due that was not issued."""
    at = flight.at
    if (
        at[At.REALTIME] == FOR_NOW
        and meter[Meter.LATE] <= _LATE + meter[Meter.ISSUED] // (2 * _LATE_SHARE)
        and _schedule(flight, _OTHER)
    ):
        at[At.REALTIME] = NORMAL
        meter[Meter.REALTIME_NS] += at[At.LOOKED] - at[At.PROMOTED]


@inner
def _promote(lane: Lane, flight: Flight, meter: I64) -> None:
    """Take a real-time priority, unless that was refused before."""
    at = flight.at
    if not lane.modest or at[At.REALTIME] != NORMAL or meter[Meter.REFUSED] != 0:
        return
    if _schedule(flight, _FIFO):
        at[At.REALTIME], at[At.PROMOTED] = FOR_NOW, at[At.LOOKED]
    else:
        meter[Meter.REFUSED] = 1


@inner
def _schedule(flight: Flight, policy: int) -> bool:
    """Set how the kernel schedules the calling thread; whether it agreed."""
    scratch = flight.scratch
    scratch[4] = policy  # struct sched_param: 1 is the least priority of FIFO, 0 the one of OTHER
    parameter = scratch.ctypes.data + 32
    return bool(system_call(_SYS_SETSCHEDULER, 0, policy, parameter, 0, 0, 0) == 0)


@inner
def note_sleep(flight: Flight, slept: int) -> None:
    """Account for ``slept`` ns in which others could run."""
    flight.at[At.AWAKE] = max(flight.at[At.AWAKE] - (_AWAKE_SHARE + 1) * slept, 0)


@inner
def may_spin(lane: Lane, flight: Flight, busy: bool) -> bool:
    """Whether looking at the clock harms nobody now; ``busy`` with commands in flight."""
    at = flight.at
    if at[At.REALTIME] == NORMAL:
        return not busy or lane.spins_busy
    rested = at[At.AWAKE] < _AWAKE_NS
    return rested and (not busy or (lane.spins_busy and not lane.modest))
