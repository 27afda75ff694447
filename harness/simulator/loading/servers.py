"""The three disciplines, event by event. All reduce to ``alone`` when requests come far apart."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from harness.simulator.loading.alone import pcie_s, recompute_s, ssd_s
from harness.simulator.loading.events import Clock, Line, Record
from harness.simulator.loading.options import LoadOptions, Scheduler
from harness.simulator.loading.priority import Preparing
from harness.simulator.loading.rates import Rates
from harness.simulator.loading.work import Work


class _Server(ABC):
    """What the disciplines share: GPUs that take the next request, and the copy over PCIe."""

    def __init__(self, work: Work, rates: Rates, options: LoadOptions) -> None:
        self.work, self.rates, self.options = work, rates, options
        self.clock, self.pcie = Clock(), Line()
        self.free_gpus = options.gpus
        self.ssd_s = ssd_s(work, rates).tolist()
        self.pcie_s = pcie_s(work, rates, options.path).tolist()
        self.recompute_s = recompute_s(work, rates).tolist()
        self.ssd_bytes = work.ssd_bytes.tolist()
        self.record = Record(_arrivals(work, options))

    def run(self) -> Record:
        """Serve every request; the record of what became of it."""
        for row, time_s in enumerate(self.record.arrival_s.tolist()):
            self.clock.at(time_s, partial(self._arrive, row))
        self.clock.run()
        self.record.pcie_busy_s = self.pcie.busy_s
        return self.record

    @abstractmethod
    def _arrive(self, row: int) -> None:
        """Request ``row`` is there."""

    @abstractmethod
    def _next(self) -> int | None:
        """The request that a free GPU takes now."""

    @abstractmethod
    def _start(self, row: int) -> None:
        """A GPU takes request ``row`` now; ``_end`` is told when it is loaded."""

    @abstractmethod
    def _released(self, row: int) -> None:
        """Request ``row`` is done; what it held is free."""

    def _serve(self) -> None:
        while self.free_gpus and (row := self._next()) is not None:
            self.free_gpus -= 1
            self.record.start_s[row] = self.clock.now_s
            self._start(row)

    def _end(self, row: int, loaded_s: float) -> None:
        """Request ``row``, on its GPU, has all it loads at ``loaded_s``: it is done then, or when
        it is recomputed."""
        start = float(self.record.start_s[row])
        done = max(loaded_s, start + self.recompute_s[row])
        self.record.gpu_busy_s += done - start
        self.clock.at(done, partial(self._finish, row))

    def _finish(self, row: int) -> None:
        self.record.done_s[row] = self.clock.now_s
        self.free_gpus += 1
        self._released(row)
        self._serve()

    def _copy(self, row: int, from_s: float) -> float:
        """When the copy to the GPU of a request whose bytes are in DRAM at ``from_s`` ends."""
        takes_s = self.pcie_s[row]
        return self.pcie.serve(from_s, takes_s) + takes_s


class OneQueue(_Server):
    """First come, first served: loading happens while the request holds its GPU."""

    def __init__(self, work: Work, rates: Rates, options: LoadOptions) -> None:
        super().__init__(work, rates, options)
        self.waiting: deque[int] = deque()
        self.ssd = Line()

    def run(self) -> Record:
        record = super().run()
        record.ssd_busy_s = self.ssd.busy_s
        return record

    def _arrive(self, row: int) -> None:
        self.waiting.append(row)
        self._serve()

    def _next(self) -> int | None:
        return self.waiting.popleft() if self.waiting else None

    def _start(self, row: int) -> None:
        self._end(row, self._loaded_s(row))

    def _loaded_s(self, row: int) -> float:
        now, reads_s, layers = self.clock.now_s, self.ssd_s[row], self.options.layers
        start = now
        read = now
        if reads_s:
            start = self.ssd.serve(now, reads_s)
            read = start + reads_s
            self.record.prefetch_s[row] = read - self.record.arrival_s[row]
            self.record.read_bytes[row] = self.ssd_bytes[row]
        if not layers:
            return self._copy(row, read)
        # The copy follows the reads one layer behind, and is never done before the last of them.
        return max(self._copy(row, start + reads_s / layers), read + self.pcie_s[row] / layers)

    def _released(self, row: int) -> None:
        """It held nothing."""


class TwoQueues(_Server):
    """Ready requests run; the others are prefetched whole first, by priority."""

    def __init__(self, work: Work, rates: Rates, options: LoadOptions) -> None:
        super().__init__(work, rates, options)
        self.preparing = Preparing(len(work))
        self.ready: list[int] = []
        self.reading = False
        self.held_bytes = 0.0
        room = options.gpu_bytes
        largest = float(work.ssd_bytes.max(initial=0))
        # A request larger than all the room is let in alone, or it would wait for ever.
        self.room_bytes = float("inf") if room is None else max(float(room), largest)

    def _arrive(self, row: int) -> None:
        if self.ssd_bytes[row]:
            self.preparing.add(row, float(self.record.arrival_s[row]), self.ssd_bytes[row])
            self._read_next()
        else:
            self._make_ready(row)

    def _read_next(self) -> None:
        if self.reading or not len(self.preparing):
            return
        row = self.preparing.take(self.clock.now_s, self.room_bytes - self.held_bytes)
        if row is None:
            return
        self.reading = True
        self.held_bytes += self.ssd_bytes[row]
        self.record.read_bytes[row] = self.ssd_bytes[row]
        self.record.ssd_busy_s += self.ssd_s[row]
        self.clock.at(self.clock.now_s + self.ssd_s[row], partial(self._have_read, row))

    def _have_read(self, row: int) -> None:
        self.reading = False
        self.record.prefetch_s[row] = self.clock.now_s - self.record.arrival_s[row]
        self._make_ready(row)
        self._read_next()

    def _make_ready(self, row: int) -> None:
        heapq.heappush(self.ready, row)  # rows are in order of arrival
        self._serve()

    def _next(self) -> int | None:
        return heapq.heappop(self.ready) if self.ready else None

    def _start(self, row: int) -> None:
        self._end(row, self._copy(row, self.clock.now_s))

    def _released(self, row: int) -> None:
        self.held_bytes -= self.ssd_bytes[row]
        self._read_next()


class Prefetch(_Server):
    """Restores into a staging buffer from arrival on; what does not fit or is late is lost."""

    def __init__(self, work: Work, rates: Rates, options: LoadOptions) -> None:
        super().__init__(work, rates, options)
        self.waiting: deque[int] = deque()
        self.restores: deque[int] = deque()
        self.reading: int | None = None
        self.began_s = self.held_bytes = 0.0
        room = options.staging_bytes
        self.room_bytes = float("inf") if room is None else float(room)
        self.staged: set[int] = set()
        """Requests that hold room in the buffer."""
        self.blocked: set[int] = set()
        """Requests on a GPU that wait for their restore."""
        self.lost_s = (work.ssd_tokens / rates.prefill).tolist()

    def _arrive(self, row: int) -> None:
        if size := self.ssd_bytes[row]:
            if self.held_bytes + size <= self.room_bytes:
                self.held_bytes += size
                self.staged.add(row)
                self.restores.append(row)
                if self.options.deadline_s is not None:
                    due = self.clock.now_s + self.options.deadline_s
                    self.clock.at(due, partial(self._too_late, row))
                self._read_next()
            else:
                self._lose(row)
        self.waiting.append(row)
        self._serve()

    def _read_next(self) -> None:
        if self.reading is None and self.restores:
            row = self.restores.popleft()
            self.reading, self.began_s = row, self.clock.now_s
            self.clock.at(self.clock.now_s + self.ssd_s[row], partial(self._have_read, row))

    def _have_read(self, row: int) -> None:
        if self.reading != row:
            return  # it was cancelled meanwhile
        self._stop_reading(row)
        self.record.prefetch_s[row] = self.clock.now_s - self.record.arrival_s[row]
        if row in self.blocked:
            self._end(row, self._copy(row, self.clock.now_s))
        self._read_next()

    def _stop_reading(self, row: int) -> None:
        took_s = self.clock.now_s - self.began_s
        self.record.ssd_busy_s += took_s
        self.record.read_bytes[row] = self.ssd_bytes[row] * min(took_s / self.ssd_s[row], 1.0)
        self.reading = None

    def _too_late(self, row: int) -> None:
        if row not in self.staged or not np.isnan(self.record.prefetch_s[row]):
            return
        if self.reading == row:
            self._stop_reading(row)
        else:
            self.restores.remove(row)
        self._let_go(row)
        missed_s = self.recompute_s[row]
        self._lose(row)
        if row in self.blocked:
            # The GPU has been at what the cache never had; now what was not restored comes on top.
            begun = float(self.record.start_s[row]) + missed_s
            self._end(row, max(self.clock.now_s, begun) + self.lost_s[row])
        self._read_next()

    def _lose(self, row: int) -> None:
        """Nothing of the hit is used: it hangs on what was not restored."""
        self.record.lost[row] = True
        self.recompute_s[row] += self.lost_s[row]
        self.pcie_s[row] = 0.0

    def _let_go(self, row: int) -> None:
        if row in self.staged:
            self.staged.remove(row)
            self.held_bytes -= self.ssd_bytes[row]

    def _next(self) -> int | None:
        return self.waiting.popleft() if self.waiting else None

    def _start(self, row: int) -> None:
        if row in self.staged and np.isnan(self.record.prefetch_s[row]):
            self.blocked.add(row)
        else:
            self._end(row, self._copy(row, self.clock.now_s))

    def _end(self, row: int, loaded_s: float) -> None:
        self.blocked.discard(row)
        super()._end(row, loaded_s)

    def _released(self, row: int) -> None:
        self._let_go(row)


def _arrivals(work: Work, options: LoadOptions) -> np.ndarray:
    """Arrival times from 0 on, brought to the rate that is asked for."""
    times = work.arrival_s - (work.arrival_s[0] if len(work) else 0.0)
    if options.requests_per_s is None or not work.rate:
        return times
    return times * (work.rate / options.requests_per_s)


_Discipline = Callable[[Work, Rates, LoadOptions], _Server]
_SERVERS: Mapping[Scheduler, _Discipline] = {
    "one-queue": OneQueue,
    "two-queues": TwoQueues,
    "prefetch": Prefetch,
}


def serve(work: Work, rates: Rates, options: LoadOptions) -> Record:
    """All of ``work`` through the discipline of ``options``."""
    return _SERVERS[options.scheduler](work, rates, options).run()
