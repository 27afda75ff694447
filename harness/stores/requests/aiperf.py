"""AIPerf's ``mooncake_trace`` with sessions: the first turn has a timestamp, later ones a delay.

In the cumulative form each row has the ids of the whole prompt. In the delta form (``aiperf
synthesize``) a row has only what the turn adds: the prompt is all earlier rows of the session and
their replies; the replies have no ids, so the ids stand for the user's part of the prompt.
Delays count from the end of the last reply, whose duration the file does not say: it is taken as 0.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.stores.requests.builder import RecordedRequests, Row, to_count, to_ids, to_time
from harness.stores.requests.form import RequestForm
from harness.stores.requests.lanes import GAP_CAP_S, RecordedSession, interleave
from harness.stores.requests.text import json_objects

BLOCK = 512


def aiperf(
    path: Path,
    *,
    delta: bool | None = None,
    block_tokens: int = BLOCK,
    lanes: int | None = None,
    gap_cap_s: float = GAP_CAP_S,
) -> RecordedRequests:
    """Sessions at their recorded start times, or ``lanes`` of them at once in a closed loop.

    ``delta`` None decides by the first session of two turns: in the cumulative form the second
    repeats the first's ids.
    """
    form = RequestForm(block_tokens=block_tokens, partial_tail=True)

    def rows() -> Iterator[Row]:
        sessions = _sessions(path)
        is_delta = _looks_like_delta(sessions) if delta is None else delta
        whole = [_cumulated(rows) if is_delta else rows for rows in sessions]
        if lanes is not None:
            relative = [_from_zero(rows) for rows in whole]
            return interleave((RecordedSession(rows) for rows in relative), lanes, gap_cap_s)
        return heapq.merge(*whole, key=lambda row: row.time_s)

    return RecordedRequests(path.name, form, rows)


def _sessions(path: Path) -> list[list[Row]]:
    """Rows of each session in the file's order, at absolute times."""
    number: dict[Any, int] = {}
    sessions: list[list[Row]] = []
    for where, data in json_objects(path):
        if "session_id" not in data:
            raise UsageError(f"{where}: session_id is missing")
        which = number.setdefault(data["session_id"], len(sessions))
        if which == len(sessions):
            sessions.append([])
        rows = sessions[which]
        if "timestamp" in data:
            time_s = to_time(data, "timestamp", where) / 1000
        else:
            before = rows[-1].time_s if rows else 0.0
            time_s = before + (to_time(data, "delay", where) / 1000 if "delay" in data else 0.0)
        tokens, output = (
            to_count(data, "input_length", where),
            to_count(data, "output_length", where),
        )
        ids = to_ids(data.get("hash_ids"), where)
        rows.append(Row(where, time_s, which, len(rows), tokens, output, ids))
    return sessions


def _looks_like_delta(sessions: list[list[Row]]) -> bool:
    for rows in sessions:
        if len(rows) > 1 and len(rows[0].ids) and len(rows[1].ids):
            return bool(rows[0].ids[0] != rows[1].ids[0])
    return False


def _cumulated(rows: list[Row]) -> list[Row]:
    """Each row with the prompt that it really sends."""
    whole: list[Row] = []
    ids: NDArray[np.uint64] = np.empty(0, np.uint64)
    context = 0
    for row in rows:
        ids = np.concatenate((ids, row.ids))
        context += row.input_tokens
        whole.append(row._replace(input_tokens=context, ids=ids))
        context += row.output_tokens
    return whole


def _from_zero(rows: list[Row]) -> list[Row]:
    return [row._replace(time_s=row.time_s - rows[0].time_s) for row in rows]
