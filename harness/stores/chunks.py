"""From a trace's block ids to the keys of a store's chunks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.stores.index import mix_pair
from harness.stores.jit import kernel
from harness.stores.requests.form import RequestBatch


def chunk_keys(
    batch: RequestBatch, chunk_tokens: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Keys of the full chunks of every request: (starts int64[n + 1], keys uint64).

    A chunk of several blocks is named by its last one, because ids are chained; a block of
    several chunks names each by its number. A partial last block or chunk is left out: stores
    keep full chunks only, and a partial id names no prefix that a later request could share.
    Ids that are valid inside a session only are mixed with it. UsageError if neither size
    divides the other.
    """
    block = batch.form.block_tokens
    if chunk_tokens % block and block % chunk_tokens:
        raise UsageError(
            f"chunks of {chunk_tokens} tokens do not fit blocks of {block}: "
            "one must be a multiple of the other"
        )
    per_request = batch.full_blocks() * block // chunk_tokens
    starts = np.concatenate(([0], np.cumsum(per_request))).astype(np.int64)
    keys = np.empty(starts[-1], np.uint64)
    _fill(
        keys, starts, batch.starts, batch.ids, batch.session, block, chunk_tokens,
        batch.form.session_scope,
    )  # fmt: skip
    return starts, keys


@kernel
def _fill(
    keys: NDArray[np.uint64],
    starts: NDArray[np.int64],
    id_starts: NDArray[np.int64],
    ids: NDArray[np.uint64],
    session: NDArray[np.uint32],
    block: int,
    chunk: int,
    scoped: bool,
) -> None:
    blocks_a_chunk = max(1, chunk // block)
    chunks_a_block = max(1, block // chunk)
    for r in range(len(starts) - 1):
        for c in range(starts[r + 1] - starts[r]):
            if chunks_a_block == 1:
                key = ids[id_starts[r] + (c + 1) * blocks_a_chunk - 1]
            else:
                key = mix_pair(
                    ids[id_starts[r] + c // chunks_a_block], np.uint64(c % chunks_a_block)
                )
            if scoped:
                key = mix_pair(key, np.uint64(session[r]))
            keys[starts[r] + c] = key
