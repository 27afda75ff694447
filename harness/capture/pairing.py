"""Pair issues with completions, batch by batch, and give back rows in issue order.

A request's address is free for the next request only after its completion, and the ring keeps
the order of causes; so among the events of one key each completion belongs to the issue right
before it. Sorting the events of a batch by key brings the two together; what is still open
joins the next batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.capture import nvme
from harness.capture.comm import CommTable
from harness.capture.records import KIND_SHIFT, SECTOR_MASK, Kind

# Addresses are multiples of 8 and kernel addresses differ in their low 48 bits only (see
# _sort_key), so key and position of an event share one 64-bit word.
_POSITION_BITS = 19
_POSITION_MASK = np.uint64((1 << _POSITION_BITS) - 1)
MAX_BATCH = 1 << (_POSITION_BITS - 1)

# Rows leave in the order of their time stamps. Two CPUs stamp and record at slightly different
# moments; rows younger than this wait for stragglers.
_STRAGGLER_NS = 50_000_000
# So many rows wait for an unfinished one before them, 53 bytes each; then it is given up.
MAX_WAITING = 1 << 19

_ISSUED, _ENDED, _REQUEUED, _STRAY = 0, 1, 2, 3
_OPEN, _CLOSED, _DROPPED = 0, 1, 2

_COLUMNS: dict[str, type[np.generic]] = {
    "ts_ns": np.int64,
    "sector": np.uint64,
    "bytes": np.uint32,
    "cmd_flags": np.uint32,
    "dev": np.uint32,
    "pid": np.uint32,
    "comm": np.int32,
    "latency_ns": np.int64,
    "status": np.uint32,
    "queue_depth": np.uint32,
    "nvme": np.uint32,
    "state": np.uint8,
}


@dataclass
class PairingCounts:
    """What pairing saw; requests, except where said otherwise."""

    issues: int = 0
    completions: int = 0
    unpaired_completions: int = 0
    """Completions with data whose issue was not seen: in flight at the start, or lost."""
    empty_completions: int = 0
    """Completions without data and issue: carriers of a flush that the kernel never issues."""
    reissued: int = 0
    """Issues followed by another issue of the same key: their completion was not seen."""
    requeued: int = 0
    overtaken: int = 0
    """Rows given up unfinished because too many others waited behind them."""
    moved: int = 0
    """Time stamps moved forward because an older row had already left."""


Rows = dict[str, npt.NDArray[Any]]


def _empty() -> Rows:
    return {name: np.empty(0, kind) for name, kind in _COLUMNS.items()}


class Pairer:
    """Pairs one kind of events: requests, or bios.

    ``complete`` is None for events that have no completion of their own; then every row is
    finished as it comes, without latency and depth. ``fixed`` says for each low byte of
    ``cmd_flags`` whether such requests complete at the sectors of their issue, so that pairs can be
    checked; None if completions have no sectors. ``with_nvme`` says that events went through
    ``NvmeCommands``.
    """

    def __init__(
        self,
        issue: Kind,
        complete: Kind | None,
        comm_codes: CommTable,
        fixed: npt.NDArray[np.bool_] | None,
        *,
        with_nvme: bool = False,
    ) -> None:
        self._issue = issue
        self._complete = complete
        self._comm = comm_codes
        self._fixed = fixed
        self._with_nvme = with_nvme
        self._rows = _empty()
        self._open_keys = np.empty(0, np.uint64)
        self._open_rows = np.empty(0, np.int64)
        self._newest_ns = 0
        self._left_ns = 0
        self.counts = PairingCounts()
        self.presumed: list[Rows] = []
        """Rows whose completion must have happened though it was not recorded."""

    def add(self, slots: npt.NDArray[np.void]) -> None:
        """Take events in stream order; at most MAX_BATCH at once, as SLOT_DTYPE."""
        kinds = (slots["kind_sector"] >> KIND_SHIFT).astype(np.uint8)
        wanted = kinds == self._issue
        if self._complete is not None:
            wanted |= kinds == self._complete
        if self._issue == Kind.ISSUE:
            wanted |= kinds == Kind.REQUEUE
        if not wanted.all():
            slots, kinds = slots[wanted], kinds[wanted]
        if len(slots) == 0:
            return
        types = np.where(kinds == self._issue, _ISSUED, _ENDED).astype(np.uint8)
        types[kinds == Kind.REQUEUE] = _REQUEUED
        self._append_issues(slots[types == _ISSUED])
        if self._complete is not None:
            self._pair(slots, types)
        self._newest_ns = max(self._newest_ns, int(slots["ts_ns"].max()))

    def _append_issues(self, issues: npt.NDArray[np.void]) -> None:
        count = len(issues)
        new: Rows = {
            "ts_ns": issues["ts_ns"],
            "sector": issues["kind_sector"] & SECTOR_MASK,
            "bytes": issues["bytes"],
            "cmd_flags": issues["cmd_flags"],
            "dev": issues["dev"],
            "pid": issues["pid"],
            "comm": self._comm.codes(issues["comm"]),
            "latency_ns": np.full(count, -1, np.int64),
            "status": np.zeros(count, np.uint32),
            "queue_depth": np.zeros(count, np.uint32),
            "nvme": self._nvme_of(issues),
            "state": np.full(count, _OPEN, np.uint8),
        }
        self._rows = {name: np.concatenate([self._rows[name], new[name]]) for name in _COLUMNS}
        self.counts.issues += count

    def _nvme_of(self, issues: npt.NDArray[np.void]) -> npt.NDArray[np.uint32]:
        if self._with_nvme:
            return issues["header"].astype(np.uint32)
        return np.zeros(len(issues), np.uint32)

    def _pair(self, slots: npt.NDArray[np.void], types: npt.NDArray[np.uint8]) -> None:
        carried = len(self._open_keys)
        keys = np.concatenate([self._open_keys, slots["key"]])
        types = np.concatenate([np.full(carried, _ISSUED, np.uint8), types])
        row_of = np.full(len(keys), -1, np.int64)
        row_of[:carried] = self._open_rows
        fresh = np.flatnonzero(types[carried:] == _ISSUED) + carried
        row_of[fresh] = np.arange(len(self._rows["ts_ns"]) - len(fresh), len(self._rows["ts_ns"]))

        order, same_as_next = _by_key(keys)
        kind = types[order]  # a copy, which _unmatch may correct
        next_kind = np.append(kind[1:], 255)
        next_kind[~same_as_next] = 255
        after_issue = np.append(False, same_as_next[:-1] & (kind[:-1] == _ISSUED))
        issued = kind == _ISSUED

        self._unmatch(order, kind, next_kind, row_of, slots, carried)
        paired = np.flatnonzero(issued & (next_kind == _ENDED))
        self._close(row_of[order[paired]], slots, order[paired + 1] - carried)
        requeued = order[issued & (next_kind == _REQUEUED)]
        self._rows["state"][row_of[requeued]] = _DROPPED
        reissued = order[issued & (next_kind == _ISSUED)]
        self._presume(row_of[reissued])
        stray = order[(kind == _STRAY) | ((kind == _ENDED) & ~after_issue)] - carried
        still_open = np.sort(order[issued & (next_kind == 255)])

        left = np.zeros(len(keys), np.int64)
        left[order[1:][after_issue[1:]]] = 1
        self._set_depths(slots, types, carried, left)
        self._open_keys, self._open_rows = keys[still_open], row_of[still_open]

        with_data = int(np.count_nonzero(slots["bytes"][stray])) if len(stray) else 0
        self.counts.unpaired_completions += with_data
        self.counts.empty_completions += len(stray) - with_data
        self.counts.completions += int(np.count_nonzero(types[carried:] == _ENDED))
        self.counts.requeued += len(requeued)
        self.counts.reissued += len(reissued)

    def _unmatch(
        self,
        order: npt.NDArray[np.int64],
        kind: npt.NDArray[np.uint8],
        next_kind: npt.NDArray[np.uint8],
        row_of: npt.NDArray[np.int64],
        slots: npt.NDArray[np.void],
        carried: int,
    ) -> None:
        """Take apart what is paired by address but does not end at the same sector.

        That happens where events were lost: the completion is that of a later request, or of a
        carrier of a flush. A request that completes in parts ends where it should.
        """
        if self._fixed is None:
            return
        first = np.flatnonzero((kind == _ISSUED) & (next_kind == _ENDED))
        rows, ends = row_of[order[first]], order[first + 1] - carried
        issued_end = self._rows["sector"][rows] + (self._rows["bytes"][rows] >> np.uint32(9))
        sector = slots["kind_sector"][ends] & SECTOR_MASK
        ended = sector + (slots["bytes"][ends] >> np.uint32(9))
        fixed = self._fixed[self._rows["cmd_flags"][rows] & np.uint32(0xFF)]
        if self._with_nvme:
            fixed &= ~nvme.rewritten(self._rows["nvme"][rows])
        wrong = first[fixed & (issued_end != ended)]
        next_kind[wrong] = _ISSUED
        kind[wrong + 1] = _STRAY

    def _close(
        self, rows: npt.NDArray[np.int64], slots: npt.NDArray[np.void], ends: npt.NDArray[np.int64]
    ) -> None:
        self._rows["latency_ns"][rows] = slots["ts_ns"][ends] - self._rows["ts_ns"][rows]
        self._rows["status"][rows] = slots["pid"][ends]
        self._rows["state"][rows] = _CLOSED

    def _presume(self, rows: npt.NDArray[np.int64]) -> None:
        if len(rows):
            self.presumed.append({name: self._rows[name][rows] for name in _COLUMNS})
            self._rows["state"][rows] = _CLOSED

    def _set_depths(
        self,
        slots: npt.NDArray[np.void],
        types: npt.NDArray[np.uint8],
        carried: int,
        left: npt.NDArray[np.int64],
    ) -> None:
        """Requests in flight at each new issue, itself included, device by device.

        ``left`` marks the events (in stream order, carried ones first) that end the request
        issued before them under the same key.
        """
        fresh = types[carried:] == _ISSUED
        count = int(np.count_nonzero(fresh))
        if not count:
            return
        change = fresh.astype(np.int64) - left[carried:]
        devices = slots["dev"]
        depth = np.zeros(len(slots), np.int64)
        open_devices = self._rows["dev"][self._open_rows]
        for device in np.unique(devices):
            mine = devices == device
            depth[mine] = np.cumsum(change[mine]) + np.count_nonzero(open_devices == device)
        self._rows["queue_depth"][-count:] = depth[fresh]

    def take(self, *, quiet: bool = False, everything: bool = False) -> Rows | None:
        """Rows that are complete, sorted by time; None if there are none.

        ``quiet`` says that nothing came for a while, so that no straggler is on its way. With
        ``everything`` also those without a completion (latency -1).
        """
        rows = self._rows
        if not len(rows["ts_ns"]):
            return None
        if everything:
            ready = np.ones(len(rows["ts_ns"]), bool)
        else:
            if len(rows["ts_ns"]) > MAX_WAITING:
                self._give_up_oldest()
            limit = self._newest_ns - (0 if quiet else _STRAGGLER_NS)
            if len(self._open_rows):
                limit = min(limit, int(rows["ts_ns"][self._open_rows].min()) - 1)
            ready = rows["ts_ns"] <= limit
        if not ready.any():
            return None
        taken = {name: column[ready] for name, column in rows.items()}
        self._rows = {name: column[~ready] for name, column in rows.items()}
        self._open_rows = (
            (np.cumsum(~ready) - 1)[self._open_rows] if not everything else (np.empty(0, np.int64))
        )
        return self._ordered(taken)

    def _give_up_oldest(self) -> None:
        """Let rows pass that wait for one old request; it leaves without its latency."""
        ages = self._rows["ts_ns"][self._open_rows]
        median = np.partition(self._rows["ts_ns"], MAX_WAITING // 2)[MAX_WAITING // 2]
        old = ages <= median
        self._rows["state"][self._open_rows[old]] = _CLOSED
        self.counts.overtaken += int(np.count_nonzero(old))
        self._open_keys, self._open_rows = self._open_keys[~old], self._open_rows[~old]

    def _ordered(self, rows: Rows) -> Rows | None:
        kept = rows["state"] != _DROPPED
        if not kept.all():
            rows = {name: column[kept] for name, column in rows.items()}
        ts_ns = rows["ts_ns"]
        if len(ts_ns) == 0:
            return None
        if (ts_ns[1:] < ts_ns[:-1]).any():
            order = np.argsort(ts_ns, kind="stable")
            rows = {name: column[order] for name, column in rows.items()}
        early = rows["ts_ns"] < self._left_ns
        if early.any():
            self.counts.moved += int(np.count_nonzero(early))
            rows["ts_ns"] = np.maximum(rows["ts_ns"], self._left_ns)
        self._left_ns = int(rows["ts_ns"][-1])
        return rows

    def open_rows(self) -> Rows:
        """Rows that still wait for their completion."""
        return {name: column[self._open_rows] for name, column in self._rows.items()}


def _by_key(
    keys: npt.NDArray[np.uint64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Positions in order of (key, position), and whether the next one has the same key."""
    positions = np.arange(len(keys), dtype=np.uint64)
    words = np.sort((keys >> np.uint64(3)) << np.uint64(_POSITION_BITS) | positions)
    sorted_keys = words >> np.uint64(_POSITION_BITS)
    same = np.append(sorted_keys[1:] == sorted_keys[:-1], False)
    return (words & _POSITION_MASK).astype(np.int64), same
