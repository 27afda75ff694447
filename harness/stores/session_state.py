"""State and parameters of the session-contiguous store, as compiled code takes them."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.stores.index import index_arrays, recency_arrays


class SessionParams(NamedTuple):
    """What does not change. ``layer_bytes``: int64[layers], bytes of a chunk in each layer."""

    extents: int
    extent_bytes: int
    page_bytes: int
    chunk_rows: int
    layer_bytes: NDArray[np.int64]
    state_bytes: int
    watermark_extents: int
    append_streams: int
    read_streams: int


class S(IntEnum):
    """Places in ``SessionState.ints``."""

    OPS = 0
    FREE_EXTENT_HEAD = 1
    FREE_EXTENTS = 2
    FREE_ROWS = 3
    FREE_SESSIONS = 4
    REQUESTS = 5
    CHUNKS_WANTED = 6
    CHUNKS_HIT = 7
    CUT_BY_STATE = 8
    CHUNKS_WRITTEN = 9
    STATES_WRITTEN = 10
    STATES_READ = 11
    RECLAIMED_SESSIONS = 12
    RECLAIMED_CHUNKS = 13
    FAILED_PUTS = 14
    CHAINED_EXTENTS = 15
    SEGMENTS = 16
    GROUP = 17
    GROUP_SIZE = 18
    COUNT = 19


class SessionState(NamedTuple):
    """What changes.

    A row is a chunk or a state: its key, session and the session's next row. A chunk's row also
    names the row of its segment's first chunk, where the segment's base and length are kept, and
    its place in the segment; a state is a segment of its own. Live sessions hold their number,
    last extent, bytes used in it, rows and last group. Extents form a chain a session; free ones
    wait in a ring, so the one freed first is taken first.
    """

    keys: NDArray[np.uint64]
    values: NDArray[np.int32]
    session_keys: NDArray[np.uint64]
    session_values: NDArray[np.int32]
    row_key: NDArray[np.uint64]
    row_segment: NDArray[np.int32]
    row_place: NDArray[np.int32]
    row_next: NDArray[np.int32]
    row_owner: NDArray[np.int32]
    segment_base: NDArray[np.int64]
    segment_chunks: NDArray[np.int32]
    free_rows: NDArray[np.int32]
    session_number: NDArray[np.int64]
    session_extent: NDArray[np.int32]
    session_used: NDArray[np.int64]
    session_rows: NDArray[np.int32]
    session_group: NDArray[np.int64]
    free_sessions: NDArray[np.int32]
    nxt: NDArray[np.int32]
    prv: NDArray[np.int32]
    extent_before: NDArray[np.int32]
    free_extents: NDArray[np.int32]
    ints: NDArray[np.int64]


def new_session_state(p: SessionParams) -> SessionState:
    """An empty store."""
    keys, values = index_arrays(p.chunk_rows)
    session_keys, session_values = index_arrays(p.extents)
    nxt, prv = recency_arrays(p.extents)
    i4, i8 = np.int32, np.int64
    ints = np.zeros(S.COUNT, i8)
    ints[S.FREE_EXTENTS] = ints[S.FREE_SESSIONS] = p.extents
    ints[S.FREE_ROWS] = p.chunk_rows
    return SessionState(
        keys=keys,
        values=values,
        session_keys=session_keys,
        session_values=session_values,
        row_key=np.zeros(p.chunk_rows, np.uint64),
        row_segment=np.zeros(p.chunk_rows, i4),
        row_place=np.zeros(p.chunk_rows, i4),
        row_next=np.zeros(p.chunk_rows, i4),
        row_owner=np.zeros(p.chunk_rows, i4),
        segment_base=np.zeros(p.chunk_rows, i8),
        segment_chunks=np.zeros(p.chunk_rows, i4),
        free_rows=np.arange(p.chunk_rows - 1, -1, -1, dtype=i4),
        session_number=np.zeros(p.extents, i8),
        session_extent=np.zeros(p.extents, i4),
        session_used=np.zeros(p.extents, i8),
        session_rows=np.zeros(p.extents, i4),
        session_group=np.zeros(p.extents, i8),
        free_sessions=np.arange(p.extents - 1, -1, -1, dtype=i4),
        nxt=nxt,
        prv=prv,
        extent_before=np.full(p.extents, -1, i4),
        free_extents=np.arange(p.extents, dtype=i4),
        ints=ints,
    )
