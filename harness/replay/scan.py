"""After a verified replay: read back everything that was written, and compare."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from harness.core.progress import Progress
from harness.device.buffers import AlignedPool
from harness.device.guard import Target
from harness.replay.lane import Lane
from harness.replay.verify import scan_units

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class ScanResult:
    """``checked_bytes`` were read back; ``wrong_sectors`` of 512 bytes lie in blocks that are not
    what was written; ``unread_bytes`` could not be read."""

    checked_bytes: int
    wrong_sectors: int
    unread_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)


def scan(lane: Lane, target: Target, progress: Progress) -> ScanResult:
    """Read every unit of the device that holds a write of this replay."""
    step = _CHUNK_BYTES // lane.unit_bytes
    pool = AlignedPool(1, _CHUNK_BYTES)
    counts = np.zeros(2, np.int64)
    unread = 0
    units = len(lane.truth)
    for first in range(0, units, step):
        count = min(step, units - first)
        if not lane.truth[first : first + count].any():
            continue
        size = min(count * lane.unit_bytes, target.size_bytes - first * lane.unit_bytes)
        try:
            got = os.preadv(target.fd, [memoryview(pool.memory[0])[:size]], first * lane.unit_bytes)
        except OSError:
            got = 0
        unread += size - got
        scan_units(lane, pool.words, first, got // lane.unit_bytes, counts)
        progress(first * lane.unit_bytes, units * lane.unit_bytes, "reading back")
    return ScanResult(int(counts[0]) * lane.unit_bytes, int(counts[1]), unread)
