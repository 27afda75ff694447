"""One batch of a trace, decoded once for all statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.core.ops import SECTOR_BYTES, Op
from harness.trace.columns import latencies, op_codes

COLUMNS = ("ts_ns", "op", "lba", "bytes", "latency_ns", "flags", "dev", "error")
OP_NAMES = {
    Op.READ: "read",
    Op.WRITE: "write",
    Op.DISCARD: "discard",
    Op.FLUSH: "flush",
    Op.WRITE_ZEROES: "write_zeroes",
    Op.OTHER: "other",
}
"""How operations are called in statistics."""


@dataclass(frozen=True)
class View:
    """Columns of a batch as numpy arrays of one length.

    ``latency_ns`` is -1 where unknown; ``start`` and ``size`` are bytes (uint64).
    """

    ts_ns: npt.NDArray[np.int64]
    op: npt.NDArray[np.uint8]
    start: npt.NDArray[np.uint64]
    size: npt.NDArray[np.uint64]
    latency_ns: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint16]
    dev: npt.NDArray[np.uint32]
    error: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ts_ns)

    def where(self, mask: npt.NDArray[np.bool_]) -> View:
        """The rows that ``mask`` keeps."""
        return View(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))


def view_of(batch: pa.RecordBatch) -> View:
    """Decode ``batch``, which needs the columns ``COLUMNS``."""

    def column(name: str) -> Any:
        return batch.column(name).to_numpy(zero_copy_only=False)

    return View(
        ts_ns=column("ts_ns"),
        op=op_codes(batch.column("op")),
        start=column("lba") * np.uint64(SECTOR_BYTES),
        size=column("bytes"),
        latency_ns=latencies(batch.column("latency_ns")),
        flags=column("flags"),
        dev=column("dev"),
        error=column("error"),
    )
