"""Mooncake and Qwen Bailian traces: JSONL, one request a line, ids of the whole prompt.

Both name blocks by their prefix, valid in the whole trace, and usually end in a partial block.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.core.errors import UsageError
from harness.stores.requests.builder import (
    RecordedRequests,
    Row,
    check_blocks,
    to_count,
    to_ids,
    to_time,
)
from harness.stores.requests.form import RequestForm
from harness.stores.requests.text import json_objects

MOONCAKE_BLOCK = 512
BAILIAN_BLOCK = 16


def mooncake(path: Path, block_tokens: int = MOONCAKE_BLOCK) -> RecordedRequests:
    """``timestamp`` ms, ``input_length``, ``output_length``, ``hash_ids``; sessions inferred."""
    form = RequestForm(block_tokens=block_tokens, partial_tail=True)
    return RecordedRequests(path.name, form, lambda: _mooncake_rows(path, block_tokens))


def _mooncake_rows(path: Path, block_tokens: int) -> Iterator[Row]:
    start: float | None = None
    for where, data in json_objects(path):
        time_s = to_time(data, "timestamp", where) / 1000
        start = time_s if start is None else start
        row = _row(where, data, time_s - start, -1, -1)
        yield check_blocks(row, block_tokens)


def bailian(path: Path, block_tokens: int = BAILIAN_BLOCK) -> RecordedRequests:
    """``chat_id``, ``parent_chat_id`` (-1: none), ``timestamp`` s, ``turn``, and as Mooncake."""
    form = RequestForm(block_tokens=block_tokens, partial_tail=True)
    return RecordedRequests(path.name, form, lambda: _bailian_rows(path, block_tokens))


def _bailian_rows(path: Path, block_tokens: int) -> Iterator[Row]:
    session_of: dict[Any, int] = {}
    start: float | None = None
    sessions = 0
    for where, data in json_objects(path):
        time_s = to_time(data, "timestamp", where)
        start = time_s if start is None else start
        for key in ("chat_id", "parent_chat_id"):
            if key not in data:
                raise UsageError(f"{where}: {key} is missing")
        parent = session_of.get(data["parent_chat_id"])
        if parent is None:
            parent, sessions = sessions, sessions + 1
        session_of[data["chat_id"]] = parent
        turn = to_count(data, "turn", where) if "turn" in data else 0
        yield check_blocks(_row(where, data, time_s - start, parent, turn), block_tokens)


def _row(where: str, data: dict[str, Any], time_s: float, session: int, turn: int) -> Row:
    if "hash_ids" not in data:
        raise UsageError(f"{where}: hash_ids is missing; traces of text are not understood")
    return Row(
        where, time_s, session, turn,
        to_count(data, "input_length", where), to_count(data, "output_length", where),
        to_ids(data["hash_ids"], where),
    )  # fmt: skip
