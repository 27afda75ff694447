"""Where on the device the requests go: hot regions, and a sample of requests to draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.core.ops import Op
from harness.trace.stats.view import View

_FIRST_REGION = 16 << 20
_MAX_REGIONS = 16_384
_TOP = 10
SAMPLE_ROWS = 20_000


class Regions:
    """Bytes read and written per region of the device.

    Regions start at 16 MiB and double in size whenever more than 16,384 were touched.
    """

    def __init__(self) -> None:
        self.region_bytes = _FIRST_REGION
        empty = pd.MultiIndex.from_arrays([[], []], names=["dev", "region"])
        self._sums = pd.DataFrame({"read": [], "write": []}, index=empty, dtype=np.float64)

    def add(self, view: View) -> None:
        """Add a batch."""
        chosen = view.where((view.op <= Op.WRITE) & (view.size > 0))
        if len(chosen) == 0:
            return
        row, region, size = split(chosen.start, chosen.size, self.region_bytes)
        frame = pd.DataFrame(
            {
                "dev": chosen.dev[row],
                "region": region,
                "read": np.where(chosen.op[row] == Op.READ, size, 0.0),
                "write": np.where(chosen.op[row] == Op.WRITE, size, 0.0),
            }
        )
        sums = frame.groupby(["dev", "region"], sort=False).sum()
        self._sums = self._sums.add(sums, fill_value=0.0)
        while len(self._sums) > _MAX_REGIONS:
            self._coarsen()

    def _coarsen(self) -> None:
        self.region_bytes *= 2
        frame = self._sums.reset_index()
        frame["region"] //= 2
        self._sums = frame.groupby(["dev", "region"], sort=False).sum()

    def result(self) -> dict[str, Any]:
        """The hottest regions and how uneven the traffic is."""
        frame = self._sums.reset_index()
        both = (frame["read"] + frame["write"]).to_numpy()
        order = np.argsort(-both, kind="stable")
        return {
            "region_bytes": self.region_bytes,
            "touched_regions": len(frame),
            "hottest_tenth_share": _tenth_share(both[order]),
            "hottest_tenth_share_writes": _tenth_share(-np.sort(-frame["write"].to_numpy())),
            "hottest": [
                {
                    "dev": int(frame["dev"].iloc[i]),
                    "offset": int(frame["region"].iloc[i]) * self.region_bytes,
                    "read_bytes": int(frame["read"].iloc[i]),
                    "write_bytes": int(frame["write"].iloc[i]),
                    "share": float(both[i] / both.sum()),
                }
                for i in order[:_TOP]
            ],
        }


def _tenth_share(descending: npt.NDArray[Any]) -> float | None:
    """Share of the total that the tenth of the regions with most of it has."""
    total = float(descending.sum())
    count = int(np.ceil(len(descending) / 10))
    return float(descending[:count].sum()) / total if total else None


def split(
    start: npt.NDArray[np.uint64], size: npt.NDArray[np.uint64], piece: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Extents cut at multiples of ``piece``: (row of each part, its piece, its bytes)."""
    first = (start // np.uint64(piece)).astype(np.int64)
    last = ((start + size - np.uint64(1)) // np.uint64(piece)).astype(np.int64)
    parts = last - first + 1
    row = np.repeat(np.arange(len(start)), parts)
    number = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts) + first[row]
    begin = np.maximum(start[row].astype(np.float64), number * float(piece))
    end = np.minimum((start[row] + size[row]).astype(np.float64), (number + 1) * float(piece))
    return row, number, end - begin


class Sample:
    """A uniform sample of requests of fixed size, the same for the same trace."""

    def __init__(self, rows: int = SAMPLE_ROWS) -> None:
        self._rows = rows
        self._random = np.random.default_rng(0)
        self._kept: dict[str, npt.NDArray[Any]] = {}

    def add(self, view: View) -> None:
        """Add a batch."""
        new: dict[str, npt.NDArray[Any]] = {
            "rank": self._random.random(len(view)),
            "ts_ns": view.ts_ns,
            "op": view.op,
            "start": view.start,
            "size": view.size,
        }
        if self._kept:
            new = {name: np.concatenate([self._kept[name], new[name]]) for name in new}
        if len(new["rank"]) > self._rows:
            chosen = np.argpartition(new["rank"], self._rows)[: self._rows]
            new = {name: values[chosen] for name, values in new.items()}
        self._kept = new

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """``ts_ns``, ``op``, ``start`` and ``size`` (bytes) of the sample in time order."""
        order = np.argsort(self._kept["ts_ns"], kind="stable")
        return {name: values[order] for name, values in self._kept.items() if name != "rank"}
