"""Traces that say how long prompts were, but not what they shared: Azure and BurstGPT CSV.

Every block gets an id of its own, so nothing is ever reused; the form says ``has_ids=False``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import UsageError
from harness.stores.requests.builder import RecordedRequests, Row, to_count
from harness.stores.requests.form import RequestForm
from harness.stores.requests.text import lines

BLOCK = 64
_COLUMNS = {
    "azure": ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "burstgpt": ("Timestamp", "Request tokens", "Response tokens"),
}


def lengths(path: Path, kind: str, block_tokens: int = BLOCK) -> RecordedRequests:
    """``kind`` azure: a date and time, or burstgpt: seconds."""
    form = RequestForm(block_tokens=block_tokens, has_ids=False)
    return RecordedRequests(path.name, form, lambda: _rows(path, kind, block_tokens))


def _rows(path: Path, kind: str, block_tokens: int) -> Iterator[Row]:
    time_column, input_column, output_column = _COLUMNS[kind]
    text = lines(path)
    header = next(text, None)
    if header is None:
        return
    names = next(csv.reader([header[1]]))
    missing = [name for name in _COLUMNS[kind] if name not in names]
    if missing:
        raise UsageError(f"{header[0]}: no column {missing[0]!r}; found {', '.join(names)}")
    start: float | None = None
    taken = 0
    for number, (where, line) in enumerate(text):
        cells = next(csv.reader([line]))
        if len(cells) < len(names):
            raise UsageError(f"{where}: truncated: {len(cells)} of {len(names)} columns")
        data: dict[str, Any] = dict(zip(names, cells, strict=False))
        time_s = _time(data[time_column], kind, where)
        start = time_s if start is None else start
        for column in (input_column, output_column):
            data[column] = int(data[column]) if data[column].isdigit() else data[column]
        tokens = to_count(data, input_column, where)
        output = to_count(data, output_column, where)
        blocks = tokens // block_tokens
        ids = np.arange(taken, taken + blocks, dtype=np.uint64)
        taken += blocks
        yield Row(where, time_s - start, number, 0, tokens, output, ids)


def _time(text: str, kind: str, where: str) -> float:
    try:
        if kind == "burstgpt":
            return float(text)
        # Seven decimals, one more than datetime reads.
        whole, _, fraction = text.strip().partition(".")
        digits = "".join(c for c in fraction if c.isdigit())
        moment = datetime.fromisoformat(whole[:19]).timestamp()
        return moment + float(f"0.{digits or 0}")
    except ValueError as error:
        raise UsageError(f"{where}: not a time: {text!r}") from error
