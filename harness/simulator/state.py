"""The arrays on which a run works; kernels and policies know them by these names as ``s``.

Objects are numbers: F(v), the full-attention chunk of node v, is v; the states that are ever made
follow from N on, in the order of their nodes. Everything here is an array because numba passes
arrays, and one tuple of them because every hook sees the same ``s``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

# Bits of ``flag``.
DRAM, SSD = 1, 2
"""Where the object is; both for a copy."""
SSD_HIT = 4
"""Hit on the SSD since it was written."""
USED = 8
"""Used by a request since it was made."""
WRITTEN = 16
"""Written to the SSD at least once; survives the object."""
ASKED = 32
"""The policy refused to write it, and it was not touched since."""
SUPERSEDED = 64
"""A state whose session has made a later one on the same path."""

HERE = DRAM | SSD
KEEP = WRITTEN
"""What remains of an object that is nowhere."""

# Queues of objects that may go.
DROP, EVICT, MOVE, MOVE_STATE = range(4)
"""May leave DRAM; may leave the SSD; F and S that may move from DRAM to the SSD (leaf rule)."""
QUEUES = 4

# ``reg``: numbers that change.
NOW, USED_DRAM, USED_SSD, ASIDE, LOG_ROWS, BYPASSED, TICK = range(7)
"""``BYPASSED``: chunks went past DRAM, which the segment engine cannot express. ``TICK``: counts
what enters or leaves a tier, and what is superseded: a clock within requests."""
REGISTERS = 7

# ``cfg``: numbers that do not.
(NODES, CAP_DRAM, CAP_SSD, SIZE_FULL, SIZE_STATE, LEAF, ON_HIT, LAST_TOKEN, BLOCK_TOKENS, STATES,
 REBUILD, AHEAD, ANY_NODE, EVICT_ANY_TIER, LOG_CAPACITY) = range(15)  # fmt: skip
SETTINGS = 15
"""``REBUILD``: bits of the queues whose keys hold for a request. ``AHEAD``: requests for which
their bounds hold, 0 without bounds. ``ANY_NODE``: under ``free``, keys do not
follow depth, so that every object is queued. ``EVICT_ANY_TIER``: under ``leaf``, an SSD object
with descendants in DRAM may be evicted."""

STAY, COPY, MOVE_UP = range(3)

# ``total``: one column a class.
(HITS_DRAM, HITS_SSD, CREATED, REFUSED, DRAM_IN, PROMOTED, MOVED, RELEASED, DROPPED, WRITES,
 FIRST_WRITES, DIRECT, COPIED, EVICTED, INVALIDATED, USEFUL, USED_BEFORE, NEVER_AGAIN,
 SUPERSEDED_WRITES) = range(19)  # fmt: skip
COUNTERS = 19
COUNTER_NAMES = (
    "hits_dram", "hits_ssd", "created", "refused", "dram_in", "promoted", "moved", "released",
    "dropped", "written", "first_written", "direct", "copied", "evicted", "invalidated", "useful",
    "used_before", "never_again", "superseded",
)  # fmt: skip

# ``row``: one column a request.
(ROW_HIT, ROW_HIT_SSD, ROW_STRANDED, ROW_STATE_FROM, ROW_CREATED, ROW_STATES, ROW_WRITTEN,
 ROW_WRITTEN_STATES) = range(8)  # fmt: skip
ROW_FIELDS = (
    "hit", "hit_ssd", "stranded", "state_from", "created", "states_created", "written_full",
    "written_state",
)  # fmt: skip


_TICKS_OF_CHUNK, _TICKS_OF_STATE, _TICKS_OF_REQUEST = 6, 7, 10
"""At most, each time one is asked for or made: it enters and leaves two tiers, is copied or moved
back, and a state is superseded; queues ask for their keys."""


def most_ticks(chunks: int, states: int, requests: int) -> int:
    """More than a run has; ``chunks`` and ``states`` count how often one is asked for or made."""
    return chunks * _TICKS_OF_CHUNK + states * _TICKS_OF_STATE + requests * _TICKS_OF_REQUEST


def tick_type(most: int) -> Any:
    """The smallest integer that holds so many ticks: one is kept for each object."""
    return np.int32 if most <= np.iinfo(np.int32).max else np.int64


def empty_arrays(objects: int, longest: int, requests: int, bounded: bool) -> dict[str, Any]:
    """What both engines change: empty queues of ``objects``, and no count.

    ``longest``: nodes of the longest path, which bounds what a request sets aside. ``bounded``:
    queues have bounds.
    """
    i4, i8 = np.int32, np.int64
    places = objects + 1 if bounded else objects
    return {
        "queue_key": np.empty((2 * QUEUES, places)),
        "queue_tie": np.empty((2 * QUEUES, places)),
        "queue_object": np.empty((2 * QUEUES, places), i4),
        "queue_size": np.zeros(2 * QUEUES, i8),
        "queue_built": np.full(QUEUES, -1, i8),
        "queue_until": np.zeros(QUEUES, i8),
        "queue_tick": np.zeros(QUEUES, i8),
        "queued": np.zeros(objects, np.uint8),
        "aside": np.empty(2 * QUEUES * (longest + 2), i8),
        "reg": np.zeros(REGISTERS, i8),
        "total": np.zeros((COUNTERS, 2), i8),
        "row": np.zeros((requests, len(ROW_FIELDS)), i4),
    }


class State(NamedTuple):
    """R requests, N nodes, M states, O = N + M objects, P runs of all paths together.

    Trace, read only: ``path_of`` int64[R + 1], ``path_first`` and ``path_length`` int32[P] (the
    nodes that request r computes or uses), ``chunks`` int32[R] (those of its prompt: the path may
    go on into its output), ``parent``, ``depth``, ``first_child``, ``next_child`` int32[N],
    ``session``, ``turn``, ``input_tokens``, ``output_tokens`` int32[R], ``tag`` uint8[R],
    ``time_s`` float64[R], ``made_of`` int64[R + 1] and ``made`` int32 (nodes at whose end r makes
    states), ``made_at`` int32[M] (nodes where a state is ever made), ``state_of`` int32[N] (the
    state of a node, -1), ``made_before`` int32[N] (nearest node above where a state is ever made,
    -1), ``last_asked`` int32[O] (last request that asks for the object, -1), ``next_asked``
    int32[P], ``next_asked_state`` int32[R], ``asks`` int32[O] (oracles only, else of length 0: next
    request after r that asks for the nodes of a path's run, for the state that r asks for, and how
    often each object is asked for), ``wanted`` int32[R] (node whose state request r would use if
    nothing were ever lost, -1).

    Changing: ``flag`` uint8[O], ``stamp`` int32[O] (last request that touched it),
    ``kids_dram``, ``kids_ssd``, ``kids`` int32[N] (children in DRAM, on the SSD, anywhere),
    ``queue_key``, ``queue_tie`` float64[2 QUEUES, O], ``queue_object`` int32[2 QUEUES, O],
    ``queue_size`` int64[2 QUEUES] (entries of the queues, then of their open parts),
    ``queue_built``, ``queue_until``, ``queue_tick`` int64[QUEUES] (request whose keys they hold,
    request from which the bounds do not, tick of the keys), ``joined`` int[up to QUEUES, O]
    (tick, of ``tick_type``; empty without bounds),
    ``queued`` uint8[O] (bits of the queues, then of their open parts), ``aside`` int64[],
    ``reg`` int64[REGISTERS], ``cfg`` int64[SETTINGS], ``total`` int64[COUNTERS, 2], ``row``
    int32[R, 8], ``log`` int64[rows, 4] (request, action << 8 | class, node, count).

    ``p``: the policy's own arrays.
    """

    path_of: np.ndarray
    path_first: np.ndarray
    path_length: np.ndarray
    chunks: np.ndarray
    parent: np.ndarray
    depth: np.ndarray
    first_child: np.ndarray
    next_child: np.ndarray
    session: np.ndarray
    turn: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    tag: np.ndarray
    time_s: np.ndarray
    made_of: np.ndarray
    made: np.ndarray
    made_at: np.ndarray
    state_of: np.ndarray
    made_before: np.ndarray
    wanted: np.ndarray
    last_asked: np.ndarray
    next_asked: np.ndarray
    next_asked_state: np.ndarray
    asks: np.ndarray
    flag: np.ndarray
    stamp: np.ndarray
    kids_dram: np.ndarray
    kids_ssd: np.ndarray
    kids: np.ndarray
    queue_key: np.ndarray
    queue_tie: np.ndarray
    queue_object: np.ndarray
    queue_size: np.ndarray
    queue_built: np.ndarray
    queue_until: np.ndarray
    queue_tick: np.ndarray
    joined: np.ndarray
    queued: np.ndarray
    aside: np.ndarray
    reg: np.ndarray
    cfg: np.ndarray
    total: np.ndarray
    row: np.ndarray
    log: np.ndarray
    p: Any

    def resident(self) -> dict[str, tuple[int, int]]:
        """Objects of each class in each tier."""
        nodes = int(self.cfg[NODES])
        kinds = self.flag[:nodes], self.flag[nodes:]
        dram = [int(np.count_nonzero(flags & DRAM)) for flags in kinds]
        ssd = [int(np.count_nonzero(flags & SSD)) for flags in kinds]
        return {"resident_dram": (dram[0], dram[1]), "resident_ssd": (ssd[0], ssd[1])}
