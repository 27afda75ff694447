"""libCacheSim's oracleGeneral: 24-byte records of time, object, size and next access.

Each record is taken as a request for one block, whose id is the object; sizes are not used, for a
store's objects have the size that its model gives them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.core.errors import UsageError
from harness.stores.requests.form import RequestBatch, RequestForm, Tag
from harness.stores.requests.marks import Marker
from harness.stores.requests.text import open_bytes

RECORD = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])
BLOCK = 64
_BATCH = 1 << 16


@dataclass(frozen=True)
class OracleRequests:
    """The records of one file, compressed or not."""

    path: Path
    form: RequestForm
    seed: int | None = None
    endless: bool = False

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def batches(self) -> Iterator[RequestBatch]:
        """The trace; UsageError if it ends inside a record or times go backwards."""
        marker = Marker(self.form)
        start, last, number = None, 0, 0
        with open_bytes(self.path) as file:
            while content := file.read(_BATCH * RECORD.itemsize):
                if len(content) % RECORD.itemsize:
                    raise UsageError(
                        f"{self.path}: truncated: record {number + len(content) // 24} is cut short"
                    )
                records = np.frombuffer(content, RECORD)
                times = records["time"].astype(np.int64)
                bad = np.flatnonzero(np.diff(times, prepend=last) < 0)
                if len(bad):
                    raise UsageError(f"{self.path}: record {number + bad[0]}: time goes backwards")
                start = int(times[0]) if start is None else start
                last, number = int(times[-1]), number + len(records)
                yield marker.mark(self._batch(records, times - start))
        if number == 0:
            raise UsageError(f"{self.path}: no request in it")

    def _batch(self, records: np.ndarray, times: np.ndarray) -> RequestBatch:
        rows, u4 = len(records), np.uint32
        zero = np.zeros(rows, u4)
        tokens = np.full(rows, self.form.block_tokens, u4)
        return RequestBatch(
            self.form, times.astype(np.float64), zero, zero, tokens, zero, zero,
            np.arange(rows + 1, dtype=np.int64), records["object"].astype(np.uint64),
            np.full(rows, Tag.UNTAGGED, np.uint8),
        )  # fmt: skip


def oracle_general(path: Path, block_tokens: int = BLOCK) -> OracleRequests:
    """The trace of an oracleGeneral file."""
    return OracleRequests(path, RequestForm(block_tokens=block_tokens))
