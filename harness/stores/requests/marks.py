"""What a trace file leaves out: which tokens of a request are new, and whose session it is.

A request's prefix was seen if earlier requests had its leading ids. Where a trace has no sessions,
a request that goes on where an earlier one ended (all its ids but perhaps the last, partial one)
is taken to be the next turn of it; all others begin sessions. That is inferred, not recorded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from harness.stores.index import ABSENT, index_arrays, index_get, index_put, mix_pair
from harness.stores.jit import kernel
from harness.stores.requests.form import RequestBatch, RequestForm

Scalar = TypeVar("Scalar", bound=np.generic)

UNKNOWN = 2**32 - 1
"""Session and turn of a row whose file does not say."""

_LEAST_CONTINUED = 2


class Marker:
    """Fills ``new_tokens``, and ``session`` and ``turn`` where they are ``UNKNOWN``."""

    def __init__(self, form: RequestForm) -> None:
        self._form = form
        self._keys, self._values = index_arrays(1 << 16)
        self._known = 0
        self._block_key = np.zeros(1 << 16, np.uint64)
        self._block_row = np.zeros(1 << 16, np.int64)
        self._blocks = np.zeros(1 << 12, np.int64)
        self._session = np.zeros(1 << 12, np.int64)
        self._turn = np.zeros(1 << 12, np.int64)
        self._rows = self._sessions = 0

    def mark(self, batch: RequestBatch) -> RequestBatch:
        """The batch, which follows those marked before, with what was missing."""
        self._make_room(batch)
        session = batch.session.astype(np.int64)
        turn = batch.turn.astype(np.int64)
        new = np.empty(len(batch), np.int64)
        self._known, self._sessions = _mark(
            self._keys, self._values, self._block_key, self._block_row, self._known,
            self._blocks, self._session, self._turn,
            self._rows, self._sessions, batch.starts, batch.ids, batch.input_tokens,
            batch.output_tokens, session, turn, new, self._form.block_tokens,
            self._form.session_scope,
        )  # fmt: skip
        self._rows += len(batch)
        u4 = np.uint32
        return replace(
            batch, session=session.astype(u4), turn=turn.astype(u4), new_tokens=new.astype(u4)
        )

    def _make_room(self, batch: RequestBatch) -> None:
        rows = self._rows + len(batch)
        if rows > len(self._blocks):
            for name in ("_blocks", "_session", "_turn"):
                setattr(self, name, longer(getattr(self, name), 2 * rows))
        known = self._known + len(batch.ids)
        if known > len(self._block_key):
            self._block_key = longer(self._block_key, 2 * known)
            self._block_row = longer(self._block_row, 2 * known)
        self._keys, self._values = with_room(self._keys, self._values, self._known + len(batch.ids))


def longer(old: NDArray[Scalar], size: int) -> NDArray[Scalar]:
    """A copy of ``size`` entries, zeros after the old ones."""
    grown = np.zeros(size, old.dtype)
    grown[: len(old)] = old
    return grown


@kernel
def find_after(
    keys: NDArray[np.uint64], values: NDArray[np.int32], block_key: NDArray[np.uint64], known: int,
    before: int, key: np.uint64,
) -> int:  # fmt: skip
    """Number of the block ``key``, or ABSENT; blocks are numbered as they were first seen.

    Prompts repeat themselves, so the block after ``before`` is mostly the next number: looked at
    first, it saves the index.
    """
    guess = before + 1
    if 0 < guess < known and block_key[guess] == key:
        return guess
    return index_get(keys, values, key)


def with_room(
    keys: NDArray[np.uint64], values: NDArray[np.int32], entries: int
) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """The index itself, or a larger copy, so that ``entries`` fit."""
    if 2 * entries <= len(keys):
        return keys, values
    new_keys, new_values = index_arrays(2 * entries)
    _copy(keys, values, new_keys, new_values)
    return new_keys, new_values


@kernel
def _copy(
    keys: NDArray[np.uint64], values: NDArray[np.int32], new_keys: NDArray[np.uint64],
    new_values: NDArray[np.int32],
) -> None:  # fmt: skip
    for at in range(len(keys)):
        if values[at] != ABSENT:
            index_put(new_keys, new_values, keys[at], values[at])


@kernel
def _mark(
    keys: NDArray[np.uint64], values: NDArray[np.int32], block_key: NDArray[np.uint64],
    block_row: NDArray[np.int64], known: int, blocks: NDArray[np.int64],
    sessions: NDArray[np.int64], turns: NDArray[np.int64], row: int, count: int,
    starts: NDArray[np.int64], ids: NDArray[np.uint64], inputs: NDArray[np.uint32],
    outputs: NDArray[np.uint32], session: NDArray[np.int64], turn: NDArray[np.int64],
    new: NDArray[np.int64], block: int, scoped: bool,
) -> tuple[int, int]:  # fmt: skip
    """The index numbers blocks, ``block_row`` is the first row of each. Returns ids and sessions
    known."""
    for r in range(len(inputs)):
        first, last = starts[r], starts[r + 1]
        hit, owner, found = 0, ABSENT, ABSENT
        seen = True
        for at in range(first, last):
            key = mix_pair(ids[at], np.uint64(session[r])) if scoped else ids[at]
            found = find_after(keys, values, block_key, known, found, key)
            if found == ABSENT:
                seen = False
                index_put(keys, values, key, known)
                block_key[known], block_row[known] = key, row
                found = known
                known += 1
            elif seen:
                hit += 1
                owner = block_row[found]
        missed = np.int64(inputs[r]) - hit * block
        new[r] = (missed if missed > 0 else 0) + np.int64(outputs[r])
        if session[r] == UNKNOWN:
            goes_on = hit >= _LEAST_CONTINUED and hit >= blocks[owner] - 1
            session[r] = sessions[owner] if goes_on else count
            turn[r] = turns[owner] + 1 if goes_on else 0
            count += 0 if goes_on else 1
        blocks[row] = last - first
        sessions[row] = session[r]
        turns[row] = turn[r]
        row += 1
    return known, count
