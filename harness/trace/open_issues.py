"""A table of issued requests that wait for their completion, by device, sector, length and op.

Identical requests in flight form a stack: a completion takes the newest (see ``pairing``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from harness.trace.jit import kernel

_KEY = np.dtype([("lba", "<u8"), ("size", "<u8"), ("rest", "<u8"), ("top", "<i8")])
"""``rest`` is device, operation and 1, so that 0 marks a free place."""
_ENTRY = np.dtype([("ts_ns", "<i8"), ("row", "<i8"), ("below", "<i8"), ("covered", "<i8")])
_USED, _FREE, _ORPHANS, _AMBIGUOUS = range(4)
_FIRST_PLACES = 1 << 12


class OpenIssues:
    """Requests in flight; memory follows their number, not the trace."""

    def __init__(self) -> None:
        self._places = np.zeros(_FIRST_PLACES, _KEY)
        self._places["top"] = -1
        self._entries = np.zeros(0, _ENTRY)
        self._state = np.zeros(4, np.int64)
        self._state[_FREE] = -1

    @property
    def orphans(self) -> int:
        """Completions for which no issue was open."""
        return int(self._state[_ORPHANS])

    @property
    def ambiguous(self) -> int:
        """Pairs with an identical issue between their two events."""
        return int(self._state[_AMBIGUOUS])

    def follow(
        self,
        ts_ns: npt.NDArray[np.int64],
        lba: npt.NDArray[np.uint64],
        size: npt.NDArray[np.uint64],
        rest: npt.NDArray[np.uint64],
        row: npt.NDArray[np.int64],
        forget: int,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Apply events in time order; ``row`` is an issue's number, -1 for a completion.

        ``rest`` is device << 8 | operation. Issues numbered below ``forget`` are dropped. Returns
        (row, event, latency in ns) of each pair, ``event`` the completion's index.
        """
        issues = int(np.count_nonzero(row >= 0))
        self._make_room(issues, forget)
        pairs = np.zeros((3, len(row) - issues), np.int64)
        key = (lba, size, rest + np.uint64(1))
        count = _follow(ts_ns, *key, row, forget, self._places, self._entries, self._state, pairs)
        return pairs[0, :count], pairs[1, :count], pairs[2, :count]

    def _make_room(self, issues: int, forget: int) -> None:
        if 2 * (self._state[_USED] + issues) > len(self._places):
            old = self._places
            kept = int(np.count_nonzero(old["top"] >= 0))
            places = len(old)
            while 4 * (kept + issues) > places:
                places *= 2
            self._places = np.zeros(places, _KEY)
            self._places["top"] = -1
            self._state[_USED] = _rebuild(old, self._places, self._entries, self._state, forget)
        free = _count_free(self._entries, self._state, issues)
        if free < issues:
            first = len(self._entries)
            more = np.zeros(max(issues, first), _ENTRY)
            more["below"] = np.arange(first + 1, first + 1 + len(more))
            more["below"][-1] = self._state[_FREE]
            self._state[_FREE] = first
            self._entries = np.concatenate([self._entries, more])


@kernel
def _count_free(entries: Any, state: Any, enough: int) -> int:
    count, at = 0, state[_FREE]
    while at >= 0 and count < enough:
        count += 1
        at = entries[at]["below"]
    return count


@kernel
def _find(places: Any, lba: Any, size: Any, rest: Any) -> Any:
    """Index of the place of a key, or of the free place where it belongs."""
    mixed = lba * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= size * np.uint64(0xC2B2AE3D27D4EB4F) ^ rest * np.uint64(0x165667B19E3779F9)
    mixed ^= mixed >> np.uint64(29)
    mask = np.uint64(len(places) - 1)
    at = mixed & mask
    while True:
        place = places[at]
        if place["rest"] == 0:
            return np.int64(at)
        if place["lba"] == lba and place["size"] == size and place["rest"] == rest:
            return np.int64(at)
        at = (at + np.uint64(1)) & mask


@kernel
def _rebuild(old: Any, new: Any, entries: Any, state: Any, forget: int) -> int:
    """Carry keys with open issues over to ``new``; returns how many places they use."""
    used = 0
    for i in range(len(old)):
        top = old[i]["top"]
        if top < 0:
            continue
        if entries[top]["row"] < forget:  # the stack's newest, hence all of it
            while top >= 0:
                below = entries[top]["below"]
                entries[top]["below"] = state[_FREE]
                state[_FREE] = top
                top = below
            continue
        at = _find(new, old[i]["lba"], old[i]["size"], old[i]["rest"])
        new[at] = old[i]
        used += 1
    return used


@kernel
def _follow(
    ts_ns: Any,
    lba: Any,
    size: Any,
    rest: Any,
    row: Any,
    forget: int,
    places: Any,
    entries: Any,
    state: Any,
    pairs: Any,
) -> int:
    count = 0
    for i in range(len(row)):
        at = _find(places, lba[i], size[i], rest[i])
        place = places[at]
        top = place["top"]
        if row[i] >= 0:
            if place["rest"] == 0:
                place["lba"], place["size"], place["rest"] = lba[i], size[i], rest[i]
                state[_USED] += 1
            if top >= 0:
                entries[top]["covered"] = 1
            new = state[_FREE]
            state[_FREE] = entries[new]["below"]
            entries[new]["ts_ns"], entries[new]["row"] = ts_ns[i], row[i]
            entries[new]["below"], entries[new]["covered"] = top, 0
            place["top"] = new
        elif place["rest"] == 0 or top < 0:
            state[_ORPHANS] += 1
        else:
            entry = entries[top]
            place["top"] = entry["below"]
            if entry["row"] >= forget:
                pairs[0, count], pairs[1, count] = entry["row"], i
                pairs[2, count] = ts_ns[i] - entry["ts_ns"]
                state[_AMBIGUOUS] += entry["covered"]
                count += 1
            else:
                state[_ORPHANS] += 1
            entry["below"] = state[_FREE]
            state[_FREE] = top
    return count
