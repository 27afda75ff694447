"""Whether the machine has CPU time to spare for work that can wait."""

from __future__ import annotations

import os
import time
from pathlib import Path

_NOTICE_S, _RELAX_S = 0.1, 2.0
_LEAST_CPUS, _SPARE_CPUS = 0.5, 0.8
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Pressure:
    """Watches how much of its CPUs the machine leaves idle.

    High at first, and from a tenth of a second in which less than half a CPU was idle, whoever had
    the rest: threads that wait for each other leave some idle, and yet all of them are held up by
    whatever takes a CPU from one. Until two seconds in which most of one was: what others want is
    known only while this process wants nothing.
    """

    def __init__(self) -> None:
        self._at_s, self._idle_s = time.monotonic(), _idle_s()
        self._high = True

    def high(self) -> bool:
        """Whether there was too little to spare, lately."""
        passed_s = time.monotonic() - self._at_s
        if passed_s >= (_RELAX_S if self._high else _NOTICE_S):
            idle_s = _idle_s()
            wanted = _SPARE_CPUS if self._high else _LEAST_CPUS
            self._high = idle_s - self._idle_s < wanted * passed_s
            self._at_s, self._idle_s = self._at_s + passed_s, idle_s
        return self._high


def _idle_s() -> float:
    """CPU seconds since the start in which nothing ran."""
    idle, iowait = Path("/proc/stat").read_text().split("\n", 1)[0].split()[4:6]
    return (int(idle) + int(iowait)) / _TICKS_PER_S
