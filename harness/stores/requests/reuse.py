"""Reuse of blocks, counted in one pass: accesses, gaps, LRU stack distances, state checkpoints."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.stores.index import ABSENT, index_arrays, index_put, mix_pair
from harness.stores.jit import kernel
from harness.stores.requests.form import RequestBatch
from harness.stores.requests.histogram import BUCKETS, count
from harness.stores.requests.marks import find_after, longer, with_room
from harness.stores.requests.stack import SUPER, Stack, access, larger_stack, new_stack

NO_CHECKPOINT = -1
_GROWN = ("block_key", "accesses", "last_request", "last_time", "place", "checkpoint_reads")


class R(IntEnum):
    """Places in ``Reuse.ints``."""

    BLOCKS = 0
    REQUESTS = 1
    REFERENCES = 2
    LEADING_HITS = 3
    COUNT = 4


_BLOCKS, _REQUESTS, _REFERENCES, _LEADING = 0, 1, 2, 3


class Reuse(NamedTuple):
    """Counters. Arrays over blocks are indexed by a block's dense number, its first sight."""

    keys: NDArray[np.uint64]
    values: NDArray[np.int32]
    block_key: NDArray[np.uint64]
    accesses: NDArray[np.int64]
    last_request: NDArray[np.int64]
    last_time: NDArray[np.float64]
    place: NDArray[np.int64]
    checkpoint_reads: NDArray[np.int64]
    stack: Stack
    distances: NDArray[np.int64]
    gap_requests: NDArray[np.int64]
    gap_ms: NDArray[np.int64]
    new_blocks: NDArray[np.int64]
    context: NDArray[np.int64]
    session_blocks: NDArray[np.int64]
    session_requests: NDArray[np.int64]
    ints: NDArray[np.int64]


def new_reuse() -> Reuse:
    """Nothing counted yet."""
    keys, values = index_arrays(1 << 16)
    i8 = np.int64
    return Reuse(
        keys=keys,
        values=values,
        block_key=np.zeros(1 << 16, np.uint64),
        accesses=np.zeros(1 << 16, i8),
        last_request=np.zeros(1 << 16, i8),
        last_time=np.zeros(1 << 16, np.float64),
        place=np.zeros(1 << 16, i8),
        checkpoint_reads=np.zeros(1 << 16, i8),
        stack=new_stack(SUPER),
        distances=np.zeros(1 << 16, i8),
        gap_requests=np.zeros(BUCKETS, i8),
        gap_ms=np.zeros(BUCKETS, i8),
        new_blocks=np.zeros(BUCKETS, i8),
        context=np.zeros(BUCKETS, i8),
        session_blocks=np.zeros(1 << 12, i8),
        session_requests=np.zeros(1 << 12, i8),
        ints=np.zeros(R.COUNT, i8),
    )


def add_batch(reuse: Reuse, batch: RequestBatch) -> Reuse:
    """The counters after a batch; arrays are replaced by larger ones as needed."""
    reuse = _grow(reuse, batch)
    form = batch.form
    _add(
        reuse, batch.starts, batch.ids, batch.session, batch.time_s,
        batch.input_tokens, form.block_tokens, form.session_scope,
    )  # fmt: skip
    return reuse


def _grow(reuse: Reuse, batch: RequestBatch) -> Reuse:
    blocks = int(reuse.ints[R.BLOCKS]) + len(batch.ids)
    keys, values = with_room(reuse.keys, reuse.values, blocks)
    changes: dict[str, NDArray[np.generic]] = {"keys": keys, "values": values}
    if blocks > len(reuse.accesses):
        for name in (*_GROWN, "distances"):
            changes[name] = longer(getattr(reuse, name), 2 * blocks)
    sessions = int(batch.session.max(initial=0)) + 1
    if sessions > len(reuse.session_blocks):
        for name in ("session_blocks", "session_requests"):
            changes[name] = longer(getattr(reuse, name), 2 * sessions)
    grown = reuse._replace(**changes)  # type: ignore[arg-type]
    if 2 * blocks > len(reuse.stack.owner):
        grown = grown._replace(stack=larger_stack(reuse.stack, 4 * blocks, grown.place))
    return grown


@kernel
def _add(
    u: Reuse, starts: NDArray[np.int64], ids: NDArray[np.uint64], sessions: NDArray[np.uint32],
    times: NDArray[np.float64], inputs: NDArray[np.uint32], block_tokens: int, scoped: bool,
) -> None:  # fmt: skip
    for r in range(len(times)):
        row = u.ints[_REQUESTS]
        first, last = starts[r], starts[r + 1]
        full = first + min(last - first, np.int64(inputs[r]) // block_tokens)
        leading, fresh, checkpoint, end = True, 0, -1, -1
        block = ABSENT
        for at in range(first, last):
            key = mix_pair(ids[at], np.uint64(sessions[r])) if scoped else ids[at]
            block = find_after(u.keys, u.values, u.block_key, u.ints[_BLOCKS], block, key)
            if block == ABSENT:
                block = u.ints[_BLOCKS]
                index_put(u.keys, u.values, key, block)
                u.block_key[block] = key
                u.ints[_BLOCKS] += 1
                u.checkpoint_reads[block] = NO_CHECKPOINT
                leading = False
                fresh += 1
            else:
                if leading:
                    u.ints[_LEADING] += 1
                    if u.checkpoint_reads[block] != NO_CHECKPOINT:
                        checkpoint = block
                count(u.gap_requests, row - u.last_request[block], 1)
                count(u.gap_ms, int((times[r] - u.last_time[block]) * 1000), 1)
            distance = access(u.stack, u.place, block, u.accesses[block] > 0)
            if distance >= 0:
                u.distances[distance] += 1
            u.accesses[block] += 1
            u.last_request[block] = row
            u.last_time[block] = times[r]
            if at == full - 1:
                end = block
        if checkpoint >= 0:
            u.checkpoint_reads[checkpoint] += 1
        if end >= 0 and u.checkpoint_reads[end] == NO_CHECKPOINT:
            u.checkpoint_reads[end] = 0
        count(u.new_blocks, fresh, 1)
        count(u.context, int(inputs[r]), 1)
        u.session_blocks[sessions[r]] += fresh
        u.session_requests[sessions[r]] += 1
        u.ints[_REFERENCES] += last - first
        u.ints[_REQUESTS] = row + 1
