"""What pairing works on: rows in columns, the states of a row, the kinds of an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# Addresses are multiples of 8 and kernel addresses differ in their low 48 bits only, so key and
# position of an event share one 64-bit word.
_POSITION_BITS = 19
_POSITION_MASK = np.uint64((1 << _POSITION_BITS) - 1)
MAX_BATCH = 1 << (_POSITION_BITS - 1)

Rows = dict[str, npt.NDArray[Any]]

ISSUED, ENDED, REQUEUED, STRAY = 0, 1, 2, 3
OPEN, CLOSED, DROPPED, LATE = 0, 1, 2, 3

COLUMNS: dict[str, type[np.generic]] = {
    "ts_ns": np.int64,
    "sector": np.uint64,
    "bytes": np.uint32,
    "cmd_flags": np.uint32,
    "dev": np.uint32,
    "pid": np.uint32,
    "comm": np.int32,
    "latency_ns": np.int64,
    "status": np.uint32,
    "queue_depth": np.uint32,
    "nvme": np.uint32,
    "state": np.uint8,
}


@dataclass
class PairingCounts:
    """What pairing saw; requests, except where said otherwise."""

    issues: int = 0
    completions: int = 0
    unpaired_completions: int = 0
    """Completions with data whose issue was not seen: in flight at the start, or lost."""
    empty_completions: int = 0
    """Completions without data and issue: carriers of a flush that the kernel never issues."""
    reissued: int = 0
    """Issues followed by another issue of the same key: their completion was not seen."""
    requeued: int = 0
    overtaken: int = 0
    """Rows that left unfinished because too many others waited behind them."""
    amended: int = 0
    """Those of them whose latency is known after all: it is put in when the trace is joined."""
    forgotten: int = 0
    """Those of them whose completion could not be told apart any more."""
    moved: int = 0
    """Time stamps moved forward because an older row had already left."""


def empty_rows() -> Rows:
    return {name: np.empty(0, kind) for name, kind in COLUMNS.items()}


def by_key(
    keys: npt.NDArray[np.uint64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Positions in order of (key, position), and whether the next one has the same key."""
    positions = np.arange(len(keys), dtype=np.uint64)
    words = np.sort((keys >> np.uint64(3)) << np.uint64(_POSITION_BITS) | positions)
    sorted_keys = words >> np.uint64(_POSITION_BITS)
    same = np.append(sorted_keys[1:] == sorted_keys[:-1], False)
    return (words & _POSITION_MASK).astype(np.int64), same
