"""The op: one read or write call of a KV store, with the object that it moves."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

OP_DTYPE = np.dtype(
    [
        ("offset", "<u8"),
        ("length", "<u8"),
        ("op", "<u1"),
        ("object_class", "<u1"),
        ("stream", "<u2"),
        ("session", "<u4"),
        ("turn", "<u4"),
        ("layer", "<i4"),
        ("key", "<u8"),
    ]
)
"""One extent: bytes from the start of the device, ``core.ops.Op`` code, and its object.

``stream``: the worker that issues it. Ops of one stream follow each other, streams overlap.
``layer``: index among the layers whose cache grows, -1 for a range over all of them.
``key``: the object's 64-bit identity; metadata has 0. ``session``: ``NO_SESSION`` if none.
"""

OpArray = NDArray[np.void]
"""An array of ``OP_DTYPE``."""

NO_SESSION = 0xFFFFFFFF
ALL_LAYERS = -1


class ObjectClass(IntEnum):
    """What a range of the device holds."""

    FULL_ATTENTION = 0
    """KV that grows with the context: a chunk, or a layer's part of one."""
    FIXED_STATE = 1
    """A linear, Mamba or sliding-window state, one a checkpoint."""
    HEADER = 2
    """The store's own words before or after an object."""
    METADATA = 3
    """The store's index: checkpoints, bucket descriptions, file-system structures."""


CLASS_NAMES = tuple(member.name.lower().replace("_", "-") for member in ObjectClass)
"""Name of each class as traces and reports spell it, indexed by ``ObjectClass``."""


def empty_ops(rows: int = 0) -> OpArray:
    """An uninitialised array of ``rows`` ops."""
    return np.empty(rows, dtype=OP_DTYPE)
