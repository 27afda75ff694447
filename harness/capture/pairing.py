"""Pair issues with completions, batch by batch, and give back rows in issue order.

A request's address is free for the next request only after its completion, and the stream keeps
the order of causes; so among the events of one key each completion belongs to the issue right
before it. Sorting the events of a batch by key brings the two together; what is still open
joins the next batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from harness.capture import nvme
from harness.capture.comm import CommTable
from harness.capture.late import NOT_YET, Amendment, LateRequests
from harness.capture.records import KIND_SHIFT, SECTOR_MASK, Kind, chosen
from harness.capture.rows import (
    CLOSED,
    COLUMNS,
    DROPPED,
    ENDED,
    ISSUED,
    LATE,
    OPEN,
    REQUEUED,
    STRAY,
    PairingCounts,
    Rows,
    by_key,
    empty_rows,
)

# Rows leave in the order of their time stamps. Two CPUs stamp and record at slightly different
# moments; rows younger than this wait for stragglers.
_STRAGGLER_NS = 50_000_000
# So many rows, 53 bytes each, wait for an unfinished one before them; then they leave, and its
# latency follows later.
MAX_WAITING = 1 << 19


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
        self._rows = empty_rows()
        self._open_keys = np.empty(0, np.uint64)
        self._open_rows = np.empty(0, np.int64)
        self._newest_ns = 0
        self._left_ns = 0
        self._left_rows = 0
        self._late = LateRequests()
        self.counts = PairingCounts()
        self.amendments: list[Amendment] = []
        """What was learnt about rows that had left; for the caller to take."""
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
            slots, kinds = chosen(slots, wanted), kinds[wanted]
        if len(slots) == 0:
            return
        types = np.where(kinds == self._issue, ISSUED, ENDED).astype(np.uint8)
        types[kinds == Kind.REQUEUE] = REQUEUED
        newest_ns = int(slots["ts_ns"].max())
        late_ends: list[tuple[int, int]] = []
        if len(self._late):
            slots, types, late_ends = self._settle_late(slots, types)
        self._append_issues(chosen(slots, types == ISSUED))
        if self._complete is not None:
            self._pair(slots, types, late_ends)
        self._newest_ns = max(self._newest_ns, newest_ns)

    def _settle_late(
        self, slots: npt.NDArray[np.void], types: npt.NDArray[np.uint8]
    ) -> tuple[npt.NDArray[np.void], npt.NDArray[np.uint8], list[tuple[int, int]]]:
        """End the late requests that these events end; the events without those that did it.

        Also (device, position) of the latter, counted in what is left.
        """
        settled: list[int] = []
        ends: list[tuple[int, int]] = []
        for at in self._late.first_events(slots["key"]):
            event, kind = slots[at], types[at]
            number, row, rows = self._late.take(int(event["key"]))
            if kind == ENDED and self._is_end(event, rows):
                self._amend(number, row, rows, event)
                ends.append((int(event["dev"]), at - len(settled)))
                settled.append(at)
            elif kind == REQUEUED:
                self.counts.requeued += 1
            else:
                self.presumed.append(rows)
                self.counts.reissued += 1
        if not settled:
            return slots, types, []
        self.counts.completions += len(settled)
        kept = np.ones(len(slots), bool)
        kept[settled] = False
        return chosen(slots, kept), types[kept], ends

    def _is_end(self, event: np.void, rows: Rows) -> bool:
        """Whether a completion ends where the request of its key does, as far as one can tell."""
        if self._fixed is None or not self._fixed[int(rows["cmd_flags"][0]) & 0xFF]:
            return True
        if self._with_nvme and nvme.rewritten(rows["nvme"])[0]:
            return True
        ended = (int(event["kind_sector"]) & int(SECTOR_MASK)) + (int(event["bytes"]) >> 9)
        return ended == int(rows["sector"][0]) + (int(rows["bytes"][0]) >> 9)

    def _amend(self, number: int, row: int, rows: Rows, event: np.void) -> None:
        latency_ns, status = int(event["ts_ns"] - rows["ts_ns"][0]), int(event["pid"])
        self.counts.amended += 1
        if row != NOT_YET:
            self.amendments.append(Amendment(row, latency_ns, status))
            return
        still = (self._rows["state"] == LATE) & (self._rows["latency_ns"] == number)
        self._rows["latency_ns"][still] = latency_ns
        self._rows["status"][still] = status
        self._rows["state"][still] = CLOSED

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
            "state": np.full(count, OPEN, np.uint8),
        }
        self._rows = {name: np.concatenate([self._rows[name], new[name]]) for name in COLUMNS}
        self.counts.issues += count

    def _nvme_of(self, issues: npt.NDArray[np.void]) -> npt.NDArray[np.uint32]:
        if self._with_nvme:
            return issues["header"].astype(np.uint32)
        return np.zeros(len(issues), np.uint32)

    def _pair(
        self,
        slots: npt.NDArray[np.void],
        types: npt.NDArray[np.uint8],
        late_ends: list[tuple[int, int]],
    ) -> None:
        carried = len(self._open_keys)
        keys = np.concatenate([self._open_keys, slots["key"]])
        types = np.concatenate([np.full(carried, ISSUED, np.uint8), types])
        row_of = np.full(len(keys), -1, np.int64)
        row_of[:carried] = self._open_rows
        fresh = np.flatnonzero(types[carried:] == ISSUED) + carried
        row_of[fresh] = np.arange(len(self._rows["ts_ns"]) - len(fresh), len(self._rows["ts_ns"]))

        order, same_as_next = by_key(keys)
        kind = types[order]  # a copy, which _unmatch may correct
        next_kind = np.append(kind[1:], 255)
        next_kind[~same_as_next] = 255
        after_issue = np.append(False, same_as_next[:-1] & (kind[:-1] == ISSUED))
        issued = kind == ISSUED

        self._unmatch(order, kind, next_kind, row_of, slots, carried)
        paired = np.flatnonzero(issued & (next_kind == ENDED))
        self._close(row_of[order[paired]], slots, order[paired + 1] - carried)
        requeued = order[issued & (next_kind == REQUEUED)]
        self._rows["state"][row_of[requeued]] = DROPPED
        reissued = order[issued & (next_kind == ISSUED)]
        self._presume(row_of[reissued])
        stray = order[(kind == STRAY) | ((kind == ENDED) & ~after_issue)] - carried
        still_open = np.sort(order[issued & (next_kind == 255)])

        left = np.zeros(len(keys), np.int64)
        left[order[1:][after_issue[1:]]] = 1
        self._set_depths(slots, types, carried, left, late_ends)
        self._open_keys, self._open_rows = keys[still_open], row_of[still_open]

        with_data = int(np.count_nonzero(slots["bytes"][stray])) if len(stray) else 0
        self.counts.unpaired_completions += with_data
        self.counts.empty_completions += len(stray) - with_data
        self.counts.completions += int(np.count_nonzero(types[carried:] == ENDED))
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
        first = np.flatnonzero((kind == ISSUED) & (next_kind == ENDED))
        rows, ends = row_of[order[first]], order[first + 1] - carried
        issued_end = self._rows["sector"][rows] + (self._rows["bytes"][rows] >> np.uint32(9))
        sector = slots["kind_sector"][ends] & SECTOR_MASK
        ended = sector + (slots["bytes"][ends] >> np.uint32(9))
        fixed = self._fixed[self._rows["cmd_flags"][rows] & np.uint32(0xFF)]
        if self._with_nvme:
            fixed &= ~nvme.rewritten(self._rows["nvme"][rows])
        wrong = first[fixed & (issued_end != ended)]
        next_kind[wrong] = ISSUED
        kind[wrong + 1] = STRAY

    def _close(
        self, rows: npt.NDArray[np.int64], slots: npt.NDArray[np.void], ends: npt.NDArray[np.int64]
    ) -> None:
        self._rows["latency_ns"][rows] = slots["ts_ns"][ends] - self._rows["ts_ns"][rows]
        self._rows["status"][rows] = slots["pid"][ends]
        self._rows["state"][rows] = CLOSED

    def _presume(self, rows: npt.NDArray[np.int64]) -> None:
        if len(rows):
            self.presumed.append({name: self._rows[name][rows] for name in COLUMNS})
            self._rows["state"][rows] = CLOSED

    def _set_depths(
        self,
        slots: npt.NDArray[np.void],
        types: npt.NDArray[np.uint8],
        carried: int,
        left: npt.NDArray[np.int64],
        late_ends: list[tuple[int, int]],
    ) -> None:
        """Requests in flight at each new issue, itself included, device by device.

        ``left`` marks the events (in stream order, carried ones first) that end the request
        issued before them under the same key; at ``late_ends`` late ones ended.
        """
        fresh = types[carried:] == ISSUED
        count = int(np.count_nonzero(fresh))
        if not count:
            return
        change = fresh.astype(np.int64) - left[carried:]
        devices = slots["dev"]
        depth = np.zeros(len(slots), np.int64)
        open_devices = self._rows["dev"][self._open_rows]
        if len(self._late):
            open_devices = np.concatenate([open_devices, self._late.devices()])
        if (devices == devices[0]).all():
            depth = np.cumsum(change) + np.count_nonzero(open_devices == devices[0])
        else:
            for device in np.unique(devices):
                mine = devices == device
                depth[mine] = np.cumsum(change[mine]) + np.count_nonzero(open_devices == device)
        for device, at in late_ends:
            depth[:at] += devices[:at] == device
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
        """Let rows pass that wait for one old request; it leaves without its latency.

        Until it has left, its latency holds the number by which ``_late`` knows it.
        """
        ages = self._rows["ts_ns"][self._open_rows]
        median = np.partition(self._rows["ts_ns"], MAX_WAITING // 2)[MAX_WAITING // 2]
        old = ages <= median
        rows = self._open_rows[old]
        numbers = self._late.add(
            self._open_keys[old], {name: column[rows] for name, column in self._rows.items()}
        )
        self._rows["state"][rows] = LATE
        self._rows["latency_ns"][rows] = numbers
        self.counts.overtaken += len(rows)
        self.counts.forgotten = self._late.forgotten
        self._open_keys, self._open_rows = self._open_keys[~old], self._open_rows[~old]

    def _ordered(self, rows: Rows) -> Rows | None:
        kept = rows["state"] != DROPPED
        if not kept.all():
            rows = {name: column[kept] for name, column in rows.items()}
        ts_ns = rows["ts_ns"]
        if len(ts_ns) == 0:
            return None
        if (ts_ns[1:] < ts_ns[:-1]).any():
            order = np.argsort(ts_ns, kind="stable")
            rows = {name: column[order] for name, column in rows.items()}
        for at in np.flatnonzero(rows["state"] == LATE):
            self._late.left(int(rows["latency_ns"][at]), self._left_rows + int(at))
            rows["latency_ns"][at] = -1
        self._left_rows += len(rows["ts_ns"])
        early = rows["ts_ns"] < self._left_ns
        if early.any():
            self.counts.moved += int(np.count_nonzero(early))
            rows["ts_ns"] = np.maximum(rows["ts_ns"], self._left_ns)
        self._left_ns = int(rows["ts_ns"][-1])
        return rows

    def open_rows(self) -> Rows:
        """Rows that still wait for their completion."""
        late = self._late.rows()
        return {
            name: np.concatenate([column[self._open_rows], *(rows[name] for rows in late)])
            for name, column in self._rows.items()
        }
