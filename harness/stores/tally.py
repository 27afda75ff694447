"""Counting ops by direction and object class, the same way for every store."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.core.ops import Op
from harness.stores.ops import CLASS_NAMES, OpArray

_DIRECTIONS = 3
_CLASSES = len(CLASS_NAMES)


class Tally:
    """Ops and bytes so far: reads, writes and discards, each by class."""

    def __init__(self) -> None:
        self._ops = np.zeros((_DIRECTIONS, _CLASSES), np.int64)
        self._bytes = np.zeros((_DIRECTIONS, _CLASSES), np.int64)

    def add(self, ops: OpArray) -> None:
        """Count an array of ops."""
        cell = ops["op"].astype(np.intp) * _CLASSES + ops["object_class"]
        size = _DIRECTIONS * _CLASSES
        self._ops += np.bincount(cell, minlength=size).reshape(_DIRECTIONS, _CLASSES)
        moved = np.zeros(size, np.int64)
        for value in np.unique(cell):
            moved[value] = int(ops["length"][cell == value].sum())
        self._bytes += moved.reshape(_DIRECTIONS, _CLASSES)

    @property
    def written_bytes(self) -> int:
        """Bytes of all writes."""
        return int(self._bytes[Op.WRITE].sum())

    @property
    def read_bytes(self) -> int:
        """Bytes of all reads."""
        return int(self._bytes[Op.READ].sum())

    def report(self) -> dict[str, Any]:
        """``writes``, ``reads`` and ``discards``: ops and bytes in all and by class."""
        return {
            name: {
                "ops": int(self._ops[direction].sum()),
                "bytes": int(self._bytes[direction].sum()),
                "by_class": {
                    label: {
                        "ops": int(self._ops[direction, c]),
                        "bytes": int(self._bytes[direction, c]),
                    }
                    for c, label in enumerate(CLASS_NAMES)
                    if self._ops[direction, c]
                },
            }
            for name, direction in (
                ("writes", Op.WRITE),
                ("reads", Op.READ),
                ("discards", Op.DISCARD),
            )
        }
