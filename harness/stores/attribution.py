"""What became of written bytes, by object class: read before they were overwritten, or never.

Counted by 4 KiB page. The reads a written byte gets are the r of the comparison with hard disks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.core.ops import PAGE_BYTES, SECTOR_BYTES, Op
from harness.stores.jit import kernel
from harness.stores.ops import CLASS_NAMES

_ROWS = ("written", "read", "read_before", "never_read", "live", "live_read", "read_unwritten")
_WRITTEN, _READ, _READ_BEFORE, _NEVER, _LIVE, _LIVE_READ, _UNWRITTEN = range(len(_ROWS))
_UNKNOWN = len(CLASS_NAMES)
_NONE = -1


class Attribution:
    """Pages by class: fed with trace batches and the class of each request (-1: unknown)."""

    def __init__(self) -> None:
        self._owner = np.full(0, _NONE, np.int8)
        self._reads = np.zeros(0, np.uint32)
        self._pages = np.zeros((len(_ROWS), _UNKNOWN + 1), np.int64)

    def add(self, batch: pa.RecordBatch, classes: NDArray[np.signedinteger[Any]]) -> None:
        """Count requests in issue order."""
        start = batch.column("lba").to_numpy() * np.uint64(SECTOR_BYTES)
        size = batch.column("bytes").to_numpy()
        letters = np.array(batch.column("op").dictionary.to_pylist())
        ops = letters[batch.column("op").indices.to_numpy()]
        first = (start // PAGE_BYTES).astype(np.int64)
        last = ((start + size + np.uint64(PAGE_BYTES - 1)) // PAGE_BYTES).astype(np.int64)
        self._grow(int(last.max(initial=0)))
        codes = np.where(ops == "W", int(Op.WRITE), np.where(ops == "R", int(Op.READ), -1))
        known = np.where(classes < 0, _UNKNOWN, classes).astype(np.int64)
        _count(first, last, codes, known, self._owner, self._reads, self._pages)

    def _grow(self, pages: int) -> None:
        if pages <= len(self._owner):
            return
        owner = np.full(2 * pages, _NONE, np.int8)
        reads = np.zeros(2 * pages, np.uint32)
        owner[: len(self._owner)], reads[: len(self._reads)] = self._owner, self._reads
        self._owner, self._reads = owner, reads

    def report(self) -> dict[str, dict[str, Any]]:
        """By class: bytes, reads a written byte, shares of what was overwritten; null if none.

        ``writes_per_hit``: bytes written for a byte that was read back.
        """
        pages = self._pages.copy()
        for code in range(_UNKNOWN + 1):
            mine = self._owner == code
            pages[_LIVE, code] = int(mine.sum())
            pages[_LIVE_READ, code] = int((self._reads[mine] > 0).sum())
        names = (*CLASS_NAMES, "unknown")
        return {
            name: _figures(pages[:, code])
            for code, name in enumerate(names)
            if pages[_WRITTEN, code] or pages[_READ, code]
        }


def _figures(pages: NDArray[np.int64]) -> dict[str, Any]:
    written, read = int(pages[_WRITTEN]), int(pages[_READ])
    gone = int(pages[_READ_BEFORE] + pages[_NEVER])
    unread = int(pages[_NEVER] + pages[_LIVE] - pages[_LIVE_READ])
    return {
        "written_bytes": written * PAGE_BYTES,
        "read_bytes": read * PAGE_BYTES,
        "reads_per_written_byte": read / written if written else None,
        "writes_per_hit": written / read if read else None,
        "overwritten_bytes": gone * PAGE_BYTES,
        "read_before_overwrite_share": int(pages[_READ_BEFORE]) / gone if gone else None,
        "never_read_share": unread / written if written else None,
        "read_but_not_written_bytes": int(pages[_UNWRITTEN]) * PAGE_BYTES,
    }


@kernel
def _count(
    first: NDArray[np.int64], last: NDArray[np.int64], ops: NDArray[np.int64],
    classes: NDArray[np.int64], owner: NDArray[np.int8], reads: NDArray[np.uint32],
    pages: NDArray[np.int64],
) -> None:  # fmt: skip
    for r in range(len(first)):
        code = classes[r]
        if ops[r] == 1:
            for page in range(first[r], last[r]):
                before = owner[page]
                if before >= 0:
                    pages[_READ_BEFORE if reads[page] > 0 else _NEVER, before] += 1
                owner[page] = code
                reads[page] = 0
            pages[_WRITTEN, code] += last[r] - first[r]
        elif ops[r] == 0:
            for page in range(first[r], last[r]):
                if owner[page] >= 0:
                    reads[page] += 1
                else:
                    pages[_UNWRITTEN, code] += 1
            pages[_READ, code] += last[r] - first[r]
