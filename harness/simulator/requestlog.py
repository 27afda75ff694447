"""What a run tells those who come after it: each request's outcome, and all that the SSD did.

Nodes of the prefix tree are numbered in order of first appearance, root side first, so the new
blocks of one request are consecutive. An object is a node and a class; the codes of classes are
those of ``harness.stores.ops.ObjectClass`` (full attention, fixed state).
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

REQUEST_DTYPE = np.dtype(
    [
        ("time_s", "<f8"),
        ("session", "<u4"),
        ("turn", "<u4"),
        ("input_tokens", "<u4"),
        ("output_tokens", "<u4"),
        ("chunks", "<u4"),
        ("hit", "<u4"),
        ("hit_ssd", "<u4"),
        ("stranded", "<u4"),
        ("state_from", "<u1"),
        ("created", "<u4"),
        ("states_created", "<u2"),
        ("written_full", "<u4"),
        ("written_state", "<u2"),
    ]
)
"""One row a request, in request order.

``chunks``: full blocks of the prompt. ``hit``: usable chunks, the boundary; the others are
recomputed. ``hit_ssd``: of the hits, those that lay on the SSD alone. ``stranded``: resident, but
behind no state. ``state_from``: 0 none or a model without states, 1 DRAM, 2 SSD. ``created``,
``states_created``: objects made. ``written_full``, ``written_state``: objects that this request
made the SSD write.
"""

SSD_DTYPE = np.dtype(
    [
        ("request", "<u4"),
        ("action", "<u1"),
        ("object_class", "<u1"),
        ("node", "<u4"),
        ("count", "<u4"),
        ("session", "<u4"),
        ("turn", "<u4"),
    ]
)
"""What the SSD did, in the order in which it was decided; ``action`` is an ``SsdAction``.

A row stands for the objects of nodes ``node`` to ``node + count - 1``, a chain of the tree.
``session`` and ``turn`` are those of the request that caused it.
"""

RequestLog = NDArray[np.void]
"""An array of ``REQUEST_DTYPE``."""

SsdLog = NDArray[np.void]
"""An array of ``SSD_DTYPE``."""


class SsdAction(IntEnum):
    """What happened to a run of objects on the SSD."""

    WRITE = 1
    EVICT = 2
    """Taken away, for room or because the object was moved to DRAM."""
    READ = 3


class StateFrom(IntEnum):
    """Where the state that a request continues from lay."""

    NONE = 0
    DRAM = 1
    SSD = 2
