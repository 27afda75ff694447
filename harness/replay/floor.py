"""How late a perfect replayer would have been on this device.

The device is taken as one server: command i keeps it busy for a service time, the time between
its completion and the later of its issue and the completion before. Issued on time, but never
more than ``depth`` in flight, the same service times give the lag that no replayer can avoid.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from harness.replay.histogram import Histogram
from harness.replay.jit import kernel
from harness.replay.window import I64


def service_times(issued: I64, done: I64, last_done: int = 0) -> I64:
    """Service time (ns) of each command in issue order; ``last_done`` of those before."""
    order = np.argsort(done, kind="stable")
    finished = done[order]
    previous = np.maximum(np.concatenate(([last_done], finished[:-1])), last_done)
    times = np.empty(len(done), np.int64)
    times[order] = np.maximum(finished - np.maximum(issued[order], previous), 0)
    return times


class _State(IntEnum):
    """Commands so far, last completion, when a command last was on time, the longest backlog."""

    COUNT = 0
    DONE = 1
    SINCE = 2
    LONGEST = 3


class LagFloor:
    """Accumulates the unavoidable lag, block by block.

    ``last`` is that of the last command, ``longest_backlog`` the longest time (ns) for which
    commands were held up without a break.
    """

    def __init__(self, depth: int) -> None:
        self.lag = Histogram()
        self.last = 0
        self._recent = np.zeros(depth, np.int64)
        self._state = np.zeros(len(_State), np.int64)

    def add(self, due: I64, service: I64) -> tuple[I64, I64]:
        """When the next commands are issued and done (ns); ``due`` in issue order."""
        issue, done = np.empty((2, len(due)), np.int64)
        _simulate(due, service, self._recent, self._state, issue, done)
        self.lag.add(issue - due)
        if issue.size:
            self.last = int(issue[-1] - due[-1])
        return issue, done

    @property
    def longest_backlog(self) -> int:
        """Longest uninterrupted backlog, ns."""
        return int(self._state[_State.LONGEST])


@kernel
def _simulate(due: I64, service: I64, recent: I64, state: I64, issue: I64, done: I64) -> None:
    """``recent``: completion times of the last ``depth`` commands."""
    depth = len(recent)
    for i in range(len(due)):
        place = state[_State.COUNT] % depth
        issue[i] = max(due[i], recent[place])
        if issue[i] == due[i]:
            state[_State.SINCE] = due[i]
        state[_State.LONGEST] = max(state[_State.LONGEST], issue[i] - state[_State.SINCE])
        done[i] = max(issue[i], state[_State.DONE]) + service[i]
        state[_State.DONE] = recent[place] = done[i]
        state[_State.COUNT] += 1
