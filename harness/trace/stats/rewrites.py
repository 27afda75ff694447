"""What becomes of written data: rewritten, discarded, or still there at the end.

Exact at 4 KiB pages, with two bits for each page of the address space that was written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.core.ops import PAGE_BYTES, Op
from harness.trace.footprint import (
    ChunkIndex,
    bits_set,
    chunk_parts,
    inner_pages,
    no_bits,
    outer_pages,
    page_mask,
)
from harness.trace.jit import kernel
from harness.trace.stats.view import View

_COUNTERS = ("written", "distinct", "overwritten", "discarded", "read", "read_live")
_WRITTEN, _DISTINCT, _OVERWRITTEN, _DISCARDED, _READ, _READ_LIVE = range(len(_COUNTERS))


class Rewrites:
    """Follows every 4 KiB page through writes, discards and reads.

    A page counts as written when any of it is; it counts as discarded only when all of it is.
    Write-zeroes count as discards.
    """

    def __init__(self) -> None:
        self._index = ChunkIndex()
        self._live = no_bits()
        self._ever = no_bits()
        self._counts = np.zeros(len(_COUNTERS), np.int64)

    def add(self, view: View) -> None:
        """Add a batch."""
        gone = (view.op == Op.DISCARD) | (view.op == Op.WRITE_ZEROES)
        wanted = (gone | (view.op <= Op.WRITE)) & (view.size > 0)
        chosen, gone = view.where(wanted), gone[wanted]
        inner, outer = (pages(chosen.start, chosen.size) for pages in (inner_pages, outer_pages))
        first, end = (np.where(gone, *both) for both in zip(inner, outer, strict=True))
        kept = end > first
        op, dev = chosen.op[kept], chosen.dev[kept]
        row, chunk, low, high = chunk_parts(first[kept], end[kept])
        slot = self._index.find(dev[row], chunk, op[row] == Op.WRITE)
        self._live, self._ever = (self._index.grown(bits) for bits in (self._live, self._ever))
        _apply(slot, op[row], low, high, self._live, self._ever, self._counts)

    def result(self) -> dict[str, Any]:
        """Bytes (whole pages) by fate, and the overwrite factor.

        ``overwrite_factor`` is written over distinct written bytes: 1 means nothing was rewritten.
        ``overwritten`` was replaced by a later write, ``discarded`` dropped while valid,
        ``never_rewritten`` is what is still there at the end; they add up to ``written``.
        """
        pages = dict(zip(_COUNTERS, (int(count) for count in self._counts), strict=True))
        live = pages["written"] - pages["overwritten"] - pages["discarded"]
        distinct = pages["distinct"]
        return {
            "written_bytes": pages["written"] * PAGE_BYTES,
            "distinct_written_bytes": distinct * PAGE_BYTES,
            "overwritten_bytes": pages["overwritten"] * PAGE_BYTES,
            "discarded_bytes": pages["discarded"] * PAGE_BYTES,
            "never_rewritten_bytes": live * PAGE_BYTES,
            "overwrite_factor": pages["written"] / distinct if distinct else None,
            "read_bytes": pages["read"] * PAGE_BYTES,
            "read_of_written_bytes": pages["read_live"] * PAGE_BYTES,
        }


@kernel
def _apply(slot: Any, op: Any, low: Any, high: Any, live: Any, ever: Any, counts: Any) -> None:
    for i in range(len(slot)):
        pages = high[i] - low[i]
        kind = op[i]
        if kind == 1:
            counts[_WRITTEN] += pages
        elif kind == 0:
            counts[_READ] += pages
        if slot[i] < 0:
            continue
        for word in range(low[i] // 64, (high[i] - 1) // 64 + 1):
            mask = page_mask(word, low[i], high[i])
            valid = bits_set(live[slot[i], word] & mask)
            if kind == 1:
                counts[_OVERWRITTEN] += valid
                counts[_DISTINCT] += bits_set(~ever[slot[i], word] & mask)
                ever[slot[i], word] |= mask
                live[slot[i], word] |= mask
            elif kind == 0:
                counts[_READ_LIVE] += valid
            else:
                counts[_DISCARDED] += valid
                live[slot[i], word] &= ~mask
