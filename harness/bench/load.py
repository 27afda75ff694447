"""Open-loop load: sessions restored at rising rates, however slow the device has become.

Requests arrive by a seeded Poisson process. Their reads go out in order of arrival through one
ring of bounded depth. At its deadline a request is late; a store that stages prefetches cancels
what is left of it then (``cancel``), one that waits goes on (``wait``). What arrived in time
counts as delivered, as in the FlatCake experiment, of which this is the storage half.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.bench.drive import Engine, check_result, read_sqes
from harness.bench.plans import Plan
from harness.core.errors import MeasurementError

_STALL_S = 30.0


@dataclass(frozen=True)
class LoadRun:
    """One run. Arrays have one row a request, in order of arrival.

    ``prefetch_s`` float64: arrival to last read; infinite where reads were cancelled or left.
    ``wanted_bytes``, ``delivered_bytes``, ``read_bytes`` int64; delivered means by the deadline.
    ``cancelled`` int64: reads that were never issued.
    """

    seconds: float
    prefetch_s: NDArray[np.float64]
    wanted_bytes: NDArray[np.int64]
    delivered_bytes: NDArray[np.int64]
    read_bytes: NDArray[np.int64]
    cancelled: NDArray[np.int64]


@dataclass
class _Restore:
    """A request on its way."""

    number: int
    plan: Plan
    arrived_s: float
    following: int = 0
    in_flight: int = 0
    ended: bool = False


def arrivals(rate_per_s: float, seconds: float, seed: int) -> NDArray[np.float64]:
    """Poisson arrival times within ``seconds``; at least one request."""
    rng = np.random.default_rng(seed)
    room = max(8, int(rate_per_s * seconds * 2 + 20))
    times = np.cumsum(rng.exponential(1 / rate_per_s, room))
    found = times[times < seconds]
    return found if len(found) else np.zeros(1)


def run_load(
    engine: Engine,
    plans: Sequence[Plan],
    times_s: NDArray[np.float64],
    *,
    deadline_s: float,
    cancel: bool,
    patience_s: float,
) -> LoadRun:
    """Restore ``plans[i % len(plans)]`` at ``times_s[i]``; see the module.

    ``patience_s`` after the last arrival's deadline, what is not yet read is given up.
    """
    return _Load(engine, plans, times_s, deadline_s, cancel).run(patience_s)


class _Load:
    def __init__(
        self, engine: Engine, plans: Sequence[Plan], times_s: NDArray[np.float64],
        deadline_s: float, cancel: bool,
    ) -> None:  # fmt: skip
        self.engine, self.deadline_s, self.cancel = engine, deadline_s, cancel
        self.restores = [
            _Restore(i, plans[i % len(plans)], float(at)) for i, at in enumerate(times_s)
        ]
        self.coming = deque(self.restores)
        self.waiting: deque[_Restore] = deque()
        self.free = list(range(engine.depth))
        self.owner: list[tuple[_Restore, int]] = [(self.restores[0], 0)] * engine.depth
        count = len(times_s)
        self.prefetch_s = np.full(count, np.inf)
        self.delivered, self.read, self.cancelled = (np.zeros(count, np.int64) for _ in range(3))

    def run(self, patience_s: float) -> LoadRun:
        start = time.perf_counter()
        give_up = self.restores[-1].arrived_s + self.deadline_s + patience_s
        while self.coming or self.waiting or len(self.free) < self.engine.depth:
            now = time.perf_counter() - start
            self._admit(now)
            self._drop_late(now, everything=now > give_up)
            self._issue()
            if len(self.free) < self.engine.depth:
                self._reap(start)
            elif self.coming and not self.waiting:
                time.sleep(max(0.0, self.coming[0].arrived_s - now))
        wanted = np.array([restore.plan.wanted_bytes for restore in self.restores], np.int64)
        seconds = time.perf_counter() - start
        return LoadRun(seconds, self.prefetch_s, wanted, self.delivered, self.read, self.cancelled)

    def _admit(self, now: float) -> None:
        while self.coming and self.coming[0].arrived_s <= now:
            self.waiting.append(self.coming.popleft())

    def _drop_late(self, now: float, *, everything: bool) -> None:
        if not (self.cancel or everything):
            return
        for restore in list(self.waiting):
            if everything or now > restore.arrived_s + self.deadline_s:
                self.cancelled[restore.number] = len(restore.plan) - restore.following
                restore.following = len(restore.plan)
                self.waiting.remove(restore)

    def _issue(self) -> None:
        """Give free places to the reads of the request that has waited longest."""
        while self.free and self.waiting:
            restore = self.waiting[0]
            first = restore.following
            count = min(len(self.free), len(restore.plan) - first)
            slots = [self.free.pop() for _ in range(count)]
            batch = slice(first, first + count)
            sqes = read_sqes(
                self.engine, restore.plan.offset[batch], restore.plan.length[batch], slots
            )
            for index, slot in enumerate(slots, first):
                self.owner[slot] = (restore, index)
            self.engine.submit(sqes)
            restore.following += count
            restore.in_flight += count
            if restore.following == len(restore.plan):
                self.waiting.popleft()

    def _reap(self, start: float) -> None:
        until = self.coming[0].arrived_s if self.coming else None
        now = time.perf_counter() - start
        timeout = _STALL_S if until is None else min(_STALL_S, max(1e-4, until - now))
        finished = self.engine.ring.reap(wait=1, timeout_s=timeout)
        now = time.perf_counter() - start
        if len(finished) == 0 and until is None:
            raise MeasurementError(f"the device completed nothing for {_STALL_S:.0f} s")
        for slot, result in zip(
            finished["user_data"].tolist(), finished["res"].tolist(), strict=True
        ):
            restore, index = self.owner[slot]
            length = int(restore.plan.length[index])
            check_result(result, length)
            self.free.append(slot)
            self._account(restore, length, now)

    def _account(self, restore: _Restore, length: int, now: float) -> None:
        number = restore.number
        restore.in_flight -= 1
        self.read[number] += length
        if now <= restore.arrived_s + self.deadline_s:
            self.delivered[number] += length
        done = restore.in_flight == 0 and restore.following == len(restore.plan)
        if done and self.cancelled[number] == 0:
            self.prefetch_s[number] = now - restore.arrived_s
