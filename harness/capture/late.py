"""Requests that were still in flight when their row had to leave: the latency follows later.

Rows wait for a request before them that does not end, but not for ever (see ``pairing``). Such a
request is kept here, so that its latency can be put into the finished trace. Memory is bounded: no
device has ``MAX_LATE`` requests in flight, so only lost completions could fill it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from harness.capture.rows import Rows

MAX_LATE = 1 << 14
NOT_YET = -1


class Amendment(NamedTuple):
    """What the trace's row number ``row`` lacks: its latency and completion status."""

    row: int
    latency_ns: int
    status: int


class LateRequests:
    """Open requests by key, each with its row; ``row`` is -1 while the row has not left."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, Rows]] = {}
        self._numbers: dict[int, int] = {}
        self._next = 0
        self.forgotten = 0
        """Requests that were given up because there were too many."""

    def __len__(self) -> int:
        return len(self._open)

    def add(self, keys: npt.NDArray[np.uint64], rows: Rows) -> npt.NDArray[np.int64]:
        """Keep requests (``rows``, one each); the numbers under which ``left`` knows them."""
        numbers = self._next + np.arange(len(keys))
        self._next += len(keys)
        for at, (key, number) in enumerate(zip(keys.tolist(), numbers.tolist(), strict=True)):
            self._open[key] = (number, {name: column[at : at + 1] for name, column in rows.items()})
            self._numbers[number] = NOT_YET
        while len(self._open) > MAX_LATE:
            self._forget(next(iter(self._open)))
            self.forgotten += 1
        return numbers

    def left(self, number: int, row: int) -> None:
        """The request ``number`` has become the trace's row ``row``."""
        if number in self._numbers:
            self._numbers[number] = row

    def devices(self) -> npt.NDArray[np.uint32]:
        """The device of each open request."""
        return np.array([rows["dev"][0] for _, rows in self._open.values()], np.uint32)

    def first_events(self, keys: npt.NDArray[np.uint64]) -> list[int]:
        """Indices, ascending, of the first event of each open request among these events' keys."""
        if not self._open:
            return []
        wanted = np.fromiter(self._open, np.uint64, len(self._open))
        hits = np.flatnonzero(np.isin(keys, wanted))
        _, first = np.unique(keys[hits], return_index=True)
        return sorted(int(at) for at in hits[first])

    def take(self, key: int) -> tuple[int, int, Rows]:
        """Remove the open request ``key``: its number, the number of its row (or -1), the row."""
        number, rows = self._open[key]
        row = self._numbers[number]
        self._forget(key)
        return number, row, rows

    def _forget(self, key: int) -> None:
        number, _ = self._open.pop(key)
        del self._numbers[number]

    def rows(self) -> list[Rows]:
        """The rows of all that are open."""
        return [rows for _, rows in self._open.values()]
