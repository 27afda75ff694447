"""Collecting the rows of a request trace into batches, and refusing what cannot be right."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.stores.requests.form import RequestBatch, RequestForm, Tag
from harness.stores.requests.marks import Marker

BATCH_REQUESTS = 4096
BATCH_IDS = 1 << 18

_U32 = 2**32


class Row(NamedTuple):
    """One request as a file has it; ``session`` and ``turn`` -1 where the file does not say.

    ``where`` is file and line, for errors.
    """

    where: str
    time_s: float
    session: int
    turn: int
    input_tokens: int
    output_tokens: int
    ids: NDArray[np.uint64]
    tag: Tag = Tag.UNTAGGED


@dataclass(frozen=True)
class RecordedRequests:
    """A request trace of a file: rows are read anew by each call of ``batches``."""

    name: str
    form: RequestForm
    rows: Callable[[], Iterable[Row]]
    seed: int | None = None
    endless: bool = False

    def batches(self) -> Iterator[RequestBatch]:
        """The trace; UsageError for a row that is wrong, or if there is none."""
        marker = Marker(self.form)
        held: list[Row] = []
        ids, last, any_row = 0, 0.0, False
        for row in self.rows():
            if row.time_s < last:
                raise UsageError(
                    f"{row.where}: time goes backwards, {row.time_s} s after {last} s",
                    fix="sort the trace by time",
                )
            last, any_row = row.time_s, True
            held.append(row)
            ids += len(row.ids)
            if len(held) >= BATCH_REQUESTS or ids >= BATCH_IDS:
                yield marker.mark(_batch(self.form, held))
                held, ids = [], 0
        if held:
            yield marker.mark(_batch(self.form, held))
        if not any_row:
            raise UsageError(f"{self.name}: no request in it")


def _batch(form: RequestForm, rows: list[Row]) -> RequestBatch:
    counts = [len(row.ids) for row in rows]
    u4 = np.uint32
    return RequestBatch(
        form,
        np.array([row.time_s for row in rows], np.float64),
        np.array([row.session % _U32 for row in rows], u4),
        np.array([row.turn % _U32 for row in rows], u4),
        np.array([row.input_tokens for row in rows], u4),
        np.array([row.output_tokens for row in rows], u4),
        np.zeros(len(rows), u4),
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        np.concatenate([row.ids for row in rows]),
        np.array([row.tag for row in rows], np.uint8),
    )


def to_ids(values: Any, where: str) -> NDArray[np.uint64]:
    """Block ids of a JSON list; UsageError if one is no whole number in [0, 2^64)."""
    if not isinstance(values, list):
        raise UsageError(f"{where}: hash_ids: expected a list, got {type(values).__name__}")
    try:
        return np.frombuffer(array("Q", values), np.uint64)
    except (OverflowError, TypeError):
        pass
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
            raise UsageError(
                f"{where}: hash_ids: {value!r} is not an unsigned 64-bit number",
                fix="ids are whole numbers from 0 to 2^64 - 1: number the blocks so",
            )
    raise UsageError(f"{where}: hash_ids cannot be read")


def to_count(row: dict[str, Any], key: str, where: str) -> int:
    """A token count: a whole number from 0 to 2^32 - 1."""
    value = row.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _U32:
        raise UsageError(f"{where}: {key}: expected a number of tokens, got {value!r}")
    return value


def to_time(row: dict[str, Any], key: str, where: str) -> float:
    """A time: a finite number, not negative."""
    value = row.get(key)
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None or not good or not math.isfinite(value) or value < 0:
        raise UsageError(f"{where}: {key}: expected a time, got {value!r}")
    return float(value)


def check_blocks(row: Row, block_tokens: int) -> Row:
    """The row, if it has no more ids than blocks, the last one perhaps partial."""
    most = -(-row.input_tokens // block_tokens)
    if len(row.ids) > most:
        raise UsageError(
            f"{row.where}: {len(row.ids)} ids for {row.input_tokens} tokens, at most {most} blocks "
            f"of {block_tokens}"
        )
    return row
