"""What happened over time, in a fixed number of bins whatever the trace's length."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from harness.core.ops import Op
from harness.trace.stats.view import View

BINS = 512
_FIRST_WIDTH_NS = 1_000_000
_SUMS = ("read", "write", "read_bytes", "write_bytes", "discard_bytes", "depth", "placed")


class Timeline:
    """Requests and bytes by operation, mean and maximum queue depth, per time bin.

    The width of a bin doubles whenever the trace outgrows the bins.
    """

    def __init__(self) -> None:
        self.width_ns = _FIRST_WIDTH_NS
        self._sums = {name: np.zeros(BINS) for name in _SUMS}
        self._max_depth = np.zeros(BINS, np.int64)
        self._last_bin = 0

    def add(self, view: View, depth: npt.NDArray[np.int64]) -> None:
        """Add a batch with the queue depth at each request (0 = unknown)."""
        while int(view.ts_ns[-1]) // self.width_ns >= BINS:
            self._double()
        bins = view.ts_ns // self.width_ns
        self._last_bin = int(bins[-1])
        size = view.size.astype(np.float64)
        is_op = {op: view.op == op for op in (Op.READ, Op.WRITE, Op.DISCARD)}
        self._count("read", bins, is_op[Op.READ])
        self._count("write", bins, is_op[Op.WRITE])
        self._count("read_bytes", bins, is_op[Op.READ] * size)
        self._count("write_bytes", bins, is_op[Op.WRITE] * size)
        self._count("discard_bytes", bins, is_op[Op.DISCARD] * size)
        self._count("depth", bins, depth)
        self._count("placed", bins, depth > 0)
        np.maximum.at(self._max_depth, bins, depth)

    def _count(self, name: str, bins: npt.NDArray[Any], weight: npt.NDArray[Any]) -> None:
        self._sums[name] += np.bincount(bins, weights=weight, minlength=BINS)

    def _double(self) -> None:
        self.width_ns *= 2
        for name, values in self._sums.items():
            folded = np.zeros(BINS)
            folded[: BINS // 2] = values.reshape(-1, 2).sum(axis=1)
            self._sums[name] = folded
        folded_max = np.zeros(BINS, np.int64)
        folded_max[: BINS // 2] = self._max_depth.reshape(-1, 2).max(axis=1)
        self._max_depth = folded_max

    def result(self) -> dict[str, Any]:
        """Lists of one length; bin i starts at i x ``bin_s``. The last bin may be partly filled."""
        used = slice(0, self._last_bin + 1)
        sums = {name: values[used] for name, values in self._sums.items()}
        placed = sums["placed"]
        mean = np.divide(sums["depth"], placed, out=np.zeros(len(placed)), where=placed > 0)
        return {
            "bin_s": self.width_ns / 1e9,
            "reads": sums["read"].astype(np.int64).tolist(),
            "writes": sums["write"].astype(np.int64).tolist(),
            "read_bytes": sums["read_bytes"].astype(np.int64).tolist(),
            "write_bytes": sums["write_bytes"].astype(np.int64).tolist(),
            "discard_bytes": sums["discard_bytes"].astype(np.int64).tolist(),
            "depth_mean": mean.tolist(),
            "depth_max": self._max_depth[used].tolist(),
        }
