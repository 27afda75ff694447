"""What a policy is, and the words they all share.

A policy is one module with a state of NumPy arrays, ``create`` and a compiled ``serve``; the
model around it (``model.py``) does not know which one it drives.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from harness.core.profiles import DeviceProfile

OPS, HOST_PAGES, GC_PAGES, ERASED, FREE, TRIMMED, HOST_BYTES = range(7)
"""Index into every policy's ``stats``: commands served, pages programmed for the host and by
GC, lines erased, lines free (the open ones excluded), pages unmapped by discards, bytes the
host wrote (less than its pages where writes are smaller than a page)."""
STATS = 7
"""First index that belongs to the policy itself."""

STOPPED, SNAPSHOT, NO_FREE_LINES, OUTSIDE, EMPTY_WRITE = range(5)
"""Why ``serve`` returned; the last three name a command that was not served."""


class Policy(Protocol):
    """One way to place data and choose victims."""

    FG: int
    BG: int

    def create(self, profile: DeviceProfile, tagged: bool) -> Any:
        """An empty drive. The state is a NamedTuple of arrays with ``pages`` and ``stats``."""

    def serve(
        self,
        state: Any,
        offset: np.ndarray,
        length: np.ndarray,
        op: np.ndarray,
        stream: np.ndarray,
        kind: np.ndarray,
        start: int,
        stop: int,
        page_limit: int,
    ) -> tuple[int, int]:
        """Serve commands; (index, reason) where it stopped."""

    def line_states(self, state: Any) -> dict[str, int]:
        """Number of lines by state; they add up to all lines."""
