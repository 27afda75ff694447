"""Which line the ``drive`` policy collects."""

from __future__ import annotations

import numpy as np

from harness.ftl.jit import inner

FREED, OPEN, CLOSED = 0, 1, 2
"""Kinds of lines."""
NONE = -1
"""No line."""


@inner
def fewest_valid(kind: np.ndarray, valid: np.ndarray, closed_at: np.ndarray) -> int:
    """The closed line with the fewest valid pages, of equals the one closed first, or NONE."""
    none = np.int32(2**31 - 1)
    fewest = none
    for line in range(len(kind)):
        fewest = min(fewest, valid[line] if kind[line] == CLOSED else none)
    best = NONE
    for line in range(len(kind)):
        if (
            valid[line] == fewest
            and kind[line] == CLOSED
            and (best == NONE or closed_at[line] < closed_at[best])
        ):
            best = line
    return best


@inner
def best_benefit(
    kind: np.ndarray, valid: np.ndarray, closed_at: np.ndarray, pages_per_line: int, now: int
) -> int:
    """The closed line with the largest (1 - u) age / 2u, or NONE.

    u: valid share; age: pages programmed since it closed. Rosenblum and Ousterhout, "The Design
    and Implementation of a Log-Structured File System", 1992, with a flash line's cost: 2u, as
    a victim's valid pages are read and programmed but its rest is not read.
    """
    best, most = NONE, -1.0
    for line in range(len(kind)):
        if kind[line] != CLOSED:
            continue
        used = valid[line] / pages_per_line
        age = now - closed_at[line] + 1.0
        benefit = np.inf if used == 0 else (1 - used) * age / (2 * used)
        if benefit > most:
            best, most = line, benefit
    return best
