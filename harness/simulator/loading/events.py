"""The clock of the event-driven layer: what is due when, and the parts that serve in turn."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


class Clock:
    """Runs callbacks in the order of their times; equal times in the order they were set."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, time_s: float, call: Callable[[], None]) -> None:
        """Call ``call`` at ``time_s``."""
        heapq.heappush(self._due, (time_s, self._number, call))
        self._number += 1

    def run(self) -> None:
        """Until nothing is due."""
        while self._due:
            self.now_s, _, call = heapq.heappop(self._due)
            call()


@dataclass
class Line:
    """A part that serves one after the other, such as the copy over PCIe."""

    free_s: float = 0.0
    busy_s: float = 0.0

    def serve(self, from_s: float, takes_s: float) -> float:
        """When a job that comes at ``from_s`` begins; the line is taken until it ends."""
        start = max(from_s, self.free_s)
        self.free_s = start + takes_s
        self.busy_s += takes_s
        return start


@dataclass
class Record:
    """What became of each request; arrays of one value a request.

    start_s: a GPU took it. done_s: it is loaded and recomputed (time to first token from
    arrival_s). prefetch_s: arrival until its SSD part was in place; NaN without any or if it was
    cancelled. lost: its prefetch was cancelled. read_bytes: off the SSD, wasted ones included.
    """

    arrival_s: NDArray[np.float64]
    start_s: NDArray[np.float64] = field(init=False)
    done_s: NDArray[np.float64] = field(init=False)
    prefetch_s: NDArray[np.float64] = field(init=False)
    read_bytes: NDArray[np.float64] = field(init=False)
    lost: NDArray[np.bool_] = field(init=False)
    ssd_busy_s: float = 0.0
    pcie_busy_s: float = 0.0
    gpu_busy_s: float = 0.0

    def __post_init__(self) -> None:
        n = len(self.arrival_s)
        for name in ("start_s", "done_s", "prefetch_s"):
            setattr(self, name, np.full(n, np.nan))
        self.read_bytes, self.lost = np.zeros(n), np.zeros(n, np.bool_)
