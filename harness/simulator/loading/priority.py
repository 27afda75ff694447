"""Which prefetch the SSD begins next."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GB = 1e9


def priority(waited_s: NDArray[np.float64], size_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 + seconds waited for each GB to read (FlatCake FC-MAS; equations.md section 6).

    1 GB and 4 GB that have both waited 2 s get 3 and 1.5: small reads go first, large ones grow.
    """
    return 1 + waited_s / (size_bytes / GB)


class Preparing:
    """Requests that wait for the SSD, at most ``capacity`` of them at a time."""

    def __init__(self, capacity: int) -> None:
        self._row = np.empty(capacity, np.int64)
        self._arrival_s = np.empty(capacity, np.float64)
        self._bytes = np.empty(capacity, np.float64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, row: int, arrival_s: float, size_bytes: float) -> None:
        """Request ``row`` begins to wait."""
        at = self._count
        self._row[at], self._arrival_s[at], self._bytes[at] = row, arrival_s, size_bytes
        self._count += 1

    def take(self, now_s: float, room_bytes: float) -> int | None:
        """The request of the highest priority, equals by arrival; None if it has no room yet."""
        n = self._count
        score = priority(now_s - self._arrival_s[:n], self._bytes[:n])
        best = np.flatnonzero(score == score.max())
        at = int(best[np.argmin(self._row[best])])
        if self._bytes[at] > room_bytes:
            return None
        row, last = int(self._row[at]), n - 1
        for column in (self._row, self._arrival_s, self._bytes):
            column[at] = column[last]
        self._count = last
        return row
