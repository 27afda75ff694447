"""Which object each call of an emission moved: Parquet, one row an op, in issue order.

Columns: ``issue_ns`` and ``done_ns`` (CLOCK_MONOTONIC, from the first call of the op to the last
one's end), then those of ``OP_DTYPE`` with the class as text. A trace is joined to it by time and
extent.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from harness.core.files import whole_file
from harness.stores.ops import CLASS_NAMES, OpArray, empty_ops

BUFFERED_KEY = b"harness.buffered"
"""Key in the metadata of a log whose calls went through the page cache."""

LOG_SCHEMA = pa.schema(
    [
        ("issue_ns", pa.int64()),
        ("done_ns", pa.int64()),
        ("offset", pa.uint64()),
        ("length", pa.uint64()),
        ("op", pa.uint8()),
        ("object_class", pa.dictionary(pa.int8(), pa.string())),
        ("stream", pa.uint16()),
        ("session", pa.uint32()),
        ("turn", pa.uint32()),
        ("layer", pa.int32()),
        ("key", pa.uint64()),
    ]
)


class ObjectLog:
    """Collects ops and their times; the file appears when the context ends without an error."""

    def __init__(self, path: Path | None, *, buffered: bool = False) -> None:
        self._path, self._buffered = path, buffered
        self._ops: list[OpArray] = []
        self._issue: dict[int, int] = {}
        self._finish: dict[int, int] = {}

    def add(self, ops: OpArray) -> None:
        """The next ops in issue order; kept only if there is a file to write."""
        if self._path is not None and len(ops):
            self._ops.append(ops)

    def done(self, number: int, issue_ns: int, done_ns: int) -> None:
        """A call of op ``number`` is done; an op cut into several calls reports each."""
        self._issue[number] = min(issue_ns, self._issue.get(number, issue_ns))
        self._finish[number] = max(done_ns, self._finish.get(number, done_ns))

    def __enter__(self) -> ObjectLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._path is None or error is not None:
            return
        ops = np.concatenate([empty_ops(), *self._ops])
        issue, finish = (
            np.array([where[n] for n in range(len(ops))], np.int64)
            for where in (self._issue, self._finish)
        )
        with whole_file(self._path) as temporary:
            write_log(temporary, ops, issue, finish, buffered=self._buffered)


def write_log(
    path: Path, ops: OpArray, issue_ns: NDArray[np.int64], done_ns: NDArray[np.int64],
    *, buffered: bool = False,
) -> None:  # fmt: skip
    """Write ops with the times (CLOCK_MONOTONIC) at which they were issued and done.

    ``buffered``: they went through the page cache, so that writes reach the device later.
    """
    classes = pa.DictionaryArray.from_arrays(
        pa.array(ops["object_class"].astype(np.int8)), pa.array(CLASS_NAMES)
    )
    columns = [issue_ns, done_ns, *(ops[name] for name in LOG_SCHEMA.names[2:])]
    columns[LOG_SCHEMA.names.index("object_class")] = classes
    schema = LOG_SCHEMA.with_metadata({BUFFERED_KEY: b"1"} if buffered else {})
    pq.write_table(pa.table(columns, schema=schema), path, compression="zstd")
