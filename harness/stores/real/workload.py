"""A request trace scaled to a device, as the list of chunks that a real store is asked for.

A chunk of the store stands for ``factor`` times its tokens of the trace: prompts get shorter by
that factor, what they share with each other stays, and objects keep the size that the store gives
them. The factor is the smallest power of two with which a mean prompt takes at most a sixteenth of
the device.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import UsageError
from harness.stores.chunks import chunk_keys
from harness.stores.requests.form import RequestSource, take

_PROMPTS_A_DEVICE = 16
_SAMPLE_REQUESTS = 512
_MOST_REQUESTS = 20_000
_MOST_REFERENCES = 2_000_000


@dataclass(frozen=True)
class ScaledRequests:
    """``count`` requests in a file, one JSON object a line, in AIPerf's cumulative form.

    A block is a chunk; ``turn`` is there besides. ``new_tokens`` of each request, scaled like its
    prompt. ``whole``: all of the trace is in it.
    """

    path: Path
    factor: int
    count: int
    new_tokens: tuple[float, ...]
    whole: bool


def scale_factor(requests: RequestSource, chunk_tokens: int, chunks: int) -> int:
    """By how much prompts are shortened for a device of ``chunks`` chunks."""
    full = np.concatenate(
        [batch.full_blocks() for batch in take(requests.batches(), _SAMPLE_REQUESTS)]
    )
    wanted = float(full.mean()) * requests.form.block_tokens / chunk_tokens
    factor = 1
    while wanted / factor > chunks / _PROMPTS_A_DEVICE:
        factor *= 2
    return factor


def write_scaled(
    requests: RequestSource,
    path: Path,
    *,
    chunk_tokens: int,
    factor: int,
    limit: int | None,
    most_chunks: int | None = None,
) -> ScaledRequests:
    """Write the requests as the store's chunks; ``limit`` of them, or as many as a run can need.

    A prompt of more than ``most_chunks`` is cut there.

    UsageError if no prompt of the trace fills a chunk.
    """
    most = min(limit or _MOST_REQUESTS, _MOST_REQUESTS)
    new: list[float] = []
    references = 0
    with path.open("w", encoding="utf-8") as file:
        for row, tokens in _rows(requests, chunk_tokens, factor, most, most_chunks):
            file.write(json.dumps(row) + "\n")
            new.append(tokens / factor)
            references += len(row["hash_ids"])
            if references > _MOST_REFERENCES:
                break
    if references == 0:
        raise UsageError(
            f"no prompt of {requests.name} fills a chunk of {chunk_tokens * factor} tokens",
            fix="take a larger device: prompts are shortened until sixteen fit it",
        )
    whole = not requests.endless and len(new) < most and references <= _MOST_REFERENCES
    return ScaledRequests(path, factor, len(new), tuple(new), whole)


def _rows(
    requests: RequestSource, chunk_tokens: int, factor: int, most: int, most_chunks: int | None
) -> Iterator[tuple[dict[str, Any], int]]:
    for batch in take(requests.batches(), most):
        starts, keys = chunk_keys(batch, chunk_tokens * factor)
        for row in range(len(batch)):
            ids = keys[starts[row] : starts[row + 1]].tolist()[:most_chunks]
            yield (
                {
                    "session_id": int(batch.session[row]),
                    "turn": int(batch.turn[row]),
                    "timestamp": round(float(batch.time_s[row]) * 1e3, 3),
                    "input_length": len(ids) * chunk_tokens,
                    "output_length": 0,
                    "hash_ids": ids,
                },
                int(batch.new_tokens[row]),
            )
