"""A simulated run's SSD log as objects that come and go, once or again and again.

A pass is the log once. Later passes are the same log with fresh keys, sessions and times: what the
pass before left behind leaves first, in the order of its last use, as room is needed in the tier.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.simulator.requestlog import SsdAction, SsdLog
from harness.simulator.sizes import ObjectSizes
from harness.simulator.wearing.jit import kernel
from harness.stores.ops import ObjectClass

EVENT_DTYPE = np.dtype(
    [
        ("time_s", "<f8"),
        ("request", "<i8"),
        ("key", "<u8"),
        ("session", "<u4"),
        ("turn", "<u4"),
        ("action", "<u1"),
        ("object_class", "<u1"),
    ]
)
"""One object: put on the SSD, freed, or used there. ``key``: unique to it over all passes."""

PUT, FREE, USE = int(SsdAction.WRITE), int(SsdAction.EVICT), int(SsdAction.READ)
CLASSES = 2
"""Full attention and fixed states, the object classes that a policy knows."""

_BATCH = 1 << 15
_ROW, _WITHIN, _CLOCK, _EPOCH, _LIVE, _LEFT, _WRONG = range(7)
_KEY_NODES = np.uint64(32)


class Wrong(IntEnum):
    """What cannot be in a log."""

    NOTHING = 0
    WRITTEN_TWICE = 1
    NOT_THERE = 2


_MESSAGES = {
    Wrong.WRITTEN_TWICE: "writes an object that is on the SSD already",
    Wrong.NOT_THERE: "evicts or reads an object that is not on the SSD",
}


class LogReader:
    """Turns a log into batches of ``EVENT_DTYPE``.

    Parameters
    ----------
    log
        A row's nodes are written and read from its first on, and evicted from its last on (leaves
        first).
    time_s
        float64[requests]: when each came.
    session, turn
        uint32[nodes]: whose object a node is.
    tier_bytes
        What the policy may keep on the SSD; None takes the most that the log ever keeps there.
    uses
        Whether reads become events.
    """

    def __init__(
        self, log: SsdLog, time_s: NDArray[np.float64], session: NDArray[np.uint32],
        turn: NDArray[np.uint32], sizes: ObjectSizes, tier_bytes: int | None = None, *,
        uses: bool = True,
    ) -> None:  # fmt: skip
        _check(log, len(time_s), len(session))
        self._log, self._uses = log, uses
        self._session = np.ascontiguousarray(session, np.uint32)
        self._turn = np.ascontiguousarray(turn, np.uint32)
        self._size = np.array(sizes.by_class, np.int64)
        start = float(time_s[0]) if len(time_s) else 0.0
        self._time = np.ascontiguousarray(time_s, np.float64) - start
        self.span_s = _span(self._time)
        self.sessions = int(self._session.max(initial=0)) + 1
        self.passes = 0
        self.peak_bytes = _peak(log, self._size)
        self.tier_bytes = self.peak_bytes if tier_bytes is None else tier_bytes
        if self.tier_bytes < self.peak_bytes:
            raise UsageError(
                f"the log keeps {self.peak_bytes} bytes on the SSD at its peak, more than the tier "
                f"of {self.tier_bytes} bytes that it is said to have"
            )
        self._touched = np.zeros((CLASSES, len(session)), np.uint32)
        self._left = np.zeros(0, np.uint64)
        self._ints = np.zeros(7, np.int64)

    @property
    def written(self) -> NDArray[np.int64]:
        """int64[2]: objects that one pass writes, by class."""
        puts = self._log[self._log["action"] == PUT]
        counts = [int(puts["count"][puts["object_class"] == c].sum()) for c in range(CLASSES)]
        return np.array(counts, np.int64)

    @property
    def batches(self) -> int:
        """Batches that the first pass has."""
        counted = (
            self._log["count"] if self._uses else self._log["count"][self._log["action"] != USE]
        )
        return -(-int(counted.sum(dtype=np.int64)) // _BATCH)

    @property
    def live_bytes(self) -> int:
        """Bytes that are on the SSD now, as the policy sees it."""
        return int(self._ints[_LIVE])

    def one_pass(self) -> Iterator[NDArray[np.void]]:
        """The events of the log's next pass, in batches."""
        out = np.empty(_BATCH, EVENT_DTYPE)
        while True:
            count = _fill(
                self._log, self._size, self._time, self._session, self._turn, self._touched,
                self._left, self._ints, out, self.tier_bytes, self.span_s, self.sessions,
                self._uses,
            )  # fmt: skip
            if self._ints[_WRONG]:
                row = int(self._ints[_ROW])
                raise UsageError(
                    f"row {row} of the SSD log {_MESSAGES[Wrong(int(self._ints[_WRONG]))]}: "
                    f"{self._log[row]}"
                )
            if count:
                yield out[:count]
            if count < len(out):
                break
        self._left = self.residents()
        self._touched[:] = 0
        self.passes += 1
        self._ints[[_ROW, _WITHIN, _CLOCK, _LEFT]] = 0, 0, 0, 0
        self._ints[_EPOCH] = self.passes

    def residents(self) -> NDArray[np.uint64]:
        """Keys of all objects on the SSD, those whose last use is longest ago first."""
        classes, nodes = np.nonzero(self._touched)
        order = np.argsort(self._touched[classes, nodes], kind="stable")
        now = _keys(int(self._ints[_EPOCH]), classes[order], nodes[order])
        return np.concatenate([self._left[self._ints[_LEFT] :], now])


def class_of(keys: NDArray[np.uint64]) -> NDArray[np.intp]:
    """The object class of each key."""
    return (((keys - np.uint64(1)) >> _KEY_NODES) & np.uint64(1)).astype(np.intp)


def _keys(epoch: int, classes: NDArray[Any], nodes: NDArray[Any]) -> NDArray[np.uint64]:
    high = (np.uint64(2 * epoch) + classes.astype(np.uint64)) << _KEY_NODES
    return np.asarray((high | nodes.astype(np.uint64)) + np.uint64(1))


def _span(time_s: NDArray[np.float64]) -> float:
    """From the first request to that of the next pass: a mean gap after the last."""
    last = float(time_s.max(initial=0.0))
    return last * len(time_s) / (len(time_s) - 1) if len(time_s) > 1 else last


def _check(log: SsdLog, requests: int, nodes: int) -> None:
    """UsageError for a log that names what its corpus does not have."""
    if not len(log):
        return
    classes = log["object_class"]
    if int(classes.max()) >= CLASSES:
        raise UsageError(
            f"the SSD log holds objects of class {int(classes.max())}: a policy writes full "
            f"attention ({int(ObjectClass.FULL_ATTENTION)}) and states "
            f"({int(ObjectClass.FIXED_STATE)})"
        )
    if not np.isin(log["action"], (PUT, FREE, USE)).all():
        raise UsageError("the SSD log holds actions that are no write, eviction or read")
    if int(log["request"].max()) >= requests:
        raise UsageError(f"the SSD log names request {int(log['request'].max())} of {requests}")
    last = int((log["node"].astype(np.int64) + log["count"]).max())
    if last > nodes:
        raise UsageError(f"the SSD log names node {last - 1} of {nodes}")


def _peak(log: SsdLog, size: NDArray[np.int64]) -> int:
    moved = size[log["object_class"]] * log["count"].astype(np.int64)
    sign = np.where(log["action"] == PUT, 1, np.where(log["action"] == FREE, -1, 0))
    return int(np.cumsum(moved * sign).max(initial=0))


@kernel
def _fill(
    log: SsdLog, size: NDArray[np.int64], time_s: NDArray[np.float64],
    session: NDArray[np.uint32], turn: NDArray[np.uint32], touched: NDArray[np.uint32],
    left: NDArray[np.uint64], ints: NDArray[np.int64], out: NDArray[np.void], tier: int,
    span: float, sessions: int, uses: bool,
) -> int:  # fmt: skip
    """Fill ``out`` from where the last call ended; how many, less than its length at the end."""
    n = 0
    epoch = ints[_EPOCH]
    while ints[_ROW] < len(log):
        row = log[ints[_ROW]]
        cls, action = np.int64(row.object_class), row.action
        count = np.int64(row.count)
        request = np.int64(row.request)
        if action == USE and not uses:
            ints[_WITHIN] = count
        while ints[_WITHIN] < count:
            if n == len(out):
                return n
            event = out[n]
            event.time_s = time_s[request] + epoch * span
            event.request = request + epoch * len(time_s)
            if action == PUT and ints[_LEFT] < len(left) and ints[_LIVE] + size[cls] > tier:
                # Room for this pass: what the last one left behind goes, oldest first.
                key = left[ints[_LEFT]]
                which = np.int64(((key - np.uint64(1)) >> np.uint64(32)) & np.uint64(1))
                event.action, event.object_class, event.key = FREE, which, key
                event.session = event.turn = 0
                ints[_LEFT] += 1
                ints[_LIVE] -= size[which]
                n += 1
                continue
            step = ints[_WITHIN]
            node = np.int64(row.node) + (count - 1 - step if action == FREE else step)
            if (touched[cls, node] != 0) == (action == PUT):
                ints[_WRONG] = 1 if action == PUT else 2
                return n
            ints[_CLOCK] += 1
            if action == PUT:
                touched[cls, node] = ints[_CLOCK]
                ints[_LIVE] += size[cls]
            elif action == FREE:
                touched[cls, node] = 0
                ints[_LIVE] -= size[cls]
            else:
                touched[cls, node] = ints[_CLOCK]
            event.action, event.object_class = action, cls
            event.session, event.turn = session[node] + epoch * sessions, turn[node]
            event.key = np.uint64((((2 * epoch + cls) << 32) | node) + 1)
            ints[_WITHIN] += 1
            n += 1
        ints[_WITHIN] = 0
        ints[_ROW] += 1
    return n
