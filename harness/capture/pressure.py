"""Whether the machine has CPU time to spare for work that can wait."""

from __future__ import annotations

import os
import time
from pathlib import Path

_INTERVAL_S = 0.1
_SPARE_CPUS = 0.5
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Pressure:
    """Watches what the machine leaves idle of its CPUs; this process's own work counts as idle."""

    def __init__(self) -> None:
        self._at_s, self._free_s = time.monotonic(), _free_s()
        self._high = False

    def high(self) -> bool:
        """Whether others left less than half a CPU, lately."""
        now_s = time.monotonic()
        if now_s - self._at_s >= _INTERVAL_S:
            free_s = _free_s()
            self._high = free_s - self._free_s < _SPARE_CPUS * (now_s - self._at_s)
            self._at_s, self._free_s = now_s, free_s
        return self._high


def _free_s() -> float:
    """CPU seconds since the start that were idle or this process's own."""
    idle, iowait = Path("/proc/stat").read_text().split("\n", 1)[0].split()[4:6]
    return (int(idle) + int(iowait)) / _TICKS_PER_S + time.process_time()
