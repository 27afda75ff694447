"""What a drive sees of its writers: how long they write on, how many at once, how much space."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.core.jit import kernels
from harness.core.ops import Op
from harness.endurance.inputs import Batch

kernel = kernels("endurance/shape.py")

_RUNS = 64
_RECENT = 64
_SAMPLE = 1 << 20
_GRANULE = 1 << 20

_END, _BYTES, _LAST, _WRITES = range(4)


class Shape:
    """Collects facts from batches as they pass; streams are looked at in the first million."""

    def __init__(self, namespace_bytes: int) -> None:
        self._touched = np.zeros(-(-namespace_bytes // _GRANULE), np.bool_)
        self._runs = np.zeros((_RUNS, 4), np.int64)
        self._by_length = np.zeros(64, np.float64)
        self._active = np.zeros(2, np.int64)
        self._namespace_bytes = namespace_bytes
        self.writes = self.discards = self.reads = 0

    def add(self, batch: Batch) -> None:
        """Look at a batch before it is served."""
        writes = batch.op == Op.WRITE
        self.discards += int(np.count_nonzero(batch.op == Op.DISCARD))
        self.reads += int(np.count_nonzero(batch.op == Op.READ))
        offset, length = batch.offset[writes], batch.length[writes]
        _mark(offset, length, self._touched)
        left = max(0, _SAMPLE - self.writes)
        _follow(offset[:left], length[:left], self._runs, self._by_length, self._active)
        self.writes += len(offset)

    @property
    def chunk_bytes(self) -> float | None:
        """Length of the sequential run that the median written byte belongs to."""
        by_length = self._by_length.copy()
        for run in self._runs:
            if run[_BYTES]:
                by_length[int(run[_BYTES]).bit_length() - 1] += run[_BYTES]
        if by_length.sum() == 0:
            return None
        middle = int(np.searchsorted(np.cumsum(by_length), by_length.sum() / 2))
        return float(1 << middle)

    @property
    def append_streams(self) -> float | None:
        """Sequential runs that grew within the last 64 writes, on average over the writes."""
        seen, total = self._active
        return float(total / seen) if seen else None

    @property
    def touched_share(self) -> float:
        """Share of the namespace's MiB that were ever written to."""
        return float(self._touched.mean())


@kernel
def _mark(offset: np.ndarray, length: np.ndarray, touched: np.ndarray) -> None:
    for i in range(len(offset)):
        first: Any = np.int64(offset[i]) // _GRANULE
        last: Any = (np.int64(offset[i]) + np.int64(length[i]) - 1) // _GRANULE
        for granule in range(first, min(last + 1, len(touched))):
            touched[granule] = True


@kernel
def _follow(
    offset: np.ndarray,
    length: np.ndarray,
    runs: np.ndarray,
    by_length: np.ndarray,
    active: np.ndarray,
) -> None:
    """Continue the run that a write starts at the end of, or begin one in the oldest's place."""
    for i in range(len(offset)):
        start, size = np.int64(offset[i]), np.int64(length[i])
        now = active[0]
        found, oldest, growing = -1, 0, 0
        for run in range(len(runs)):
            if runs[run, 3] and runs[run, 0] == start:
                found = run
            if runs[run, 2] < runs[oldest, 2]:
                oldest = run
            growing += runs[run, 3] > 1 and now - runs[run, 2] < _RECENT
        if found < 0:
            found = oldest
            if runs[found, 1]:
                bits = 0
                while runs[found, 1] >> (bits + 1):
                    bits += 1
                by_length[bits] += runs[found, 1]
            runs[found, 1] = runs[found, 3] = 0
        runs[found, 0] = start + size
        runs[found, 1] += size
        runs[found, 2] = now + 1
        runs[found, 3] += 1
        active[0] += 1
        active[1] += growing
