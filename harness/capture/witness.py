"""The kernel's own counters of a device, ``/sys/block/DEV/stat``, against the trace.

The counters count completions; so do we, between the two moments at which they were read. They
agree exactly in reads, discards, flushes and all sectors. Write *requests* do not: under fsync
the kernel counts carriers of a flush that were never issued. Write-zeroes count as writes.
Passthrough commands are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# Row of Op -> group of the kernel's statistics; OTHER has none.
READ, WRITE, DISCARD, FLUSH, NONE = 0, 1, 2, 3, 4
_GROUP = np.array([READ, WRITE, DISCARD, FLUSH, WRITE, NONE], np.int64)
_GROUPS = 5

# (name, group, sectors?, column of /sys/block/DEV/stat); see Documentation/block/stat.rst.
_COMPARED = (
    ("reads", READ, False, 0),
    ("read_sectors", READ, True, 2),
    ("write_sectors", WRITE, True, 6),
    ("discards", DISCARD, False, 11),
    ("discard_sectors", DISCARD, True, 13),
    ("flushes", FLUSH, False, 15),
)
_REQUEST_COUNTS = ("reads", "discards", "flushes")

# The kernel counts a request moments after the event that we see; events this close to the
# reading of the counters may be on either side.
_UNSURE_NS = 2_000_000


@dataclass(frozen=True)
class WitnessResult:
    """Outcome for one device. ``equal`` is None if the counters could not be compared.

    ``missing`` is how many requests the kernel counted beyond those in the trace, at least.
    """

    equal: bool | None
    missing: int
    reason: str | None
    counts: dict[str, dict[str, int]]

    def to_dict(self) -> dict[str, Any]:
        """For the trace's metadata: per counter the kernel's figure and the trace's range."""
        return {
            "equal": self.equal,
            "missing": self.missing,
            "reason": self.reason,
            "counts": self.counts,
        }


class Witness:
    """Counts completions of one device between two readings of its counters."""

    def __init__(self, start: Mapping[str, Any], *, sectors_only: bool = False) -> None:
        """``start`` is the first reading; devices without requests count pieces of bios."""
        self._start = start
        self._compared = [row for row in _COMPARED if row[2] or not sectors_only]
        self._bio_based = sectors_only
        self._stop: Mapping[str, Any] | None = None
        self._sure = np.zeros((2, _GROUPS), np.int64)
        self._unsure = np.zeros((2, _GROUPS), np.int64)

    def stop(self, snapshot: Mapping[str, Any]) -> None:
        """Take the reading at the end; what is added afterwards may be younger."""
        self._stop = snapshot

    def add(
        self,
        ts_ns: npt.NDArray[np.int64],
        ops: npt.NDArray[np.uint8],
        size_bytes: npt.NDArray[np.uint32],
        last: npt.NDArray[np.bool_],
    ) -> None:
        """Completion events: ``last`` is False where a request goes on."""
        after = self._start["after_ns"] + _UNSURE_NS
        unsure = (ts_ns < after) & (ts_ns > self._start["before_ns"] - _UNSURE_NS)
        sure = ts_ns >= after
        if self._stop is not None:
            before = self._stop["before_ns"] - _UNSURE_NS
            late = ts_ns > before
            unsure |= late & (ts_ns < self._stop["after_ns"] + _UNSURE_NS)
            sure &= ~late
        for mask, table in ((sure, self._sure), (unsure, self._unsure)):
            self._tally(table, ops[mask], size_bytes[mask], last[mask])

    def presume(
        self, ops: npt.NDArray[np.uint8], size_bytes: npt.NDArray[np.uint32], *, certain: bool
    ) -> None:
        """Requests whose completion was not recorded, but ``certain``-ly happened, or may have."""
        table = self._sure if certain else self._unsure
        self._tally(table, ops, size_bytes, np.ones(len(ops), bool))

    @staticmethod
    def _tally(
        table: npt.NDArray[np.int64],
        ops: npt.NDArray[np.uint8],
        size_bytes: npt.NDArray[np.uint32],
        last: npt.NDArray[np.bool_],
    ) -> None:
        if not len(ops):
            return
        groups = _GROUP[ops]
        table[0] += np.bincount(groups[last], minlength=_GROUPS)
        sectors = (size_bytes >> np.uint32(9)).astype(np.float64)  # exact below 2**53 sectors
        table[1] += np.bincount(groups, sectors, minlength=_GROUPS).astype(np.int64)

    def judge(self) -> WitnessResult:
        """Compare; call once all events are in."""
        start, stop = self._start, self._stop
        if stop is None:
            return _silent("the recording was cut off before the counters were read again")
        if not start["stat"] or not stop["stat"]:
            return _silent("the device has gone, and its counters with it")
        # Some devices without requests count all the same.
        if not start["iostats"] and start["stat"] == stop["stat"]:
            return _silent("the device does not keep counters (queue/iostats is 0)")
        if len(stop["stat"]) < 17:
            return _silent("this kernel's counters lack discards and flushes (before Linux 5.5)")
        counts, wrong, missing = {}, [], 0
        for name, group, sectors, column in self._compared:
            kernel = stop["stat"][column] - start["stat"][column]
            low = int(self._sure[int(sectors), group])
            high = low + int(self._unsure[int(sectors), group])
            rejected_low, rejected_high = self._rejected(group, sectors)
            low, high = low + rejected_low, high + rejected_high
            counts[name] = {"kernel": kernel, "trace_low": low, "trace_high": high}
            if not low <= kernel <= high:
                wrong.append(name)
            if name in _REQUEST_COUNTS:
                missing += max(0, kernel - high)
        writes = counts["write_sectors"]
        if not missing and writes["kernel"] > writes["trace_high"]:
            missing = 1  # some write, of unknown size
        if wrong and self._bio_based and sum(start["inflight"]):
            return _silent("bios were in flight at the start, whose sizes are not known")
        reason = f"the kernel's counters differ in {', '.join(wrong)}" if wrong else None
        return WitnessResult(not wrong, missing, reason, counts)

    def _rejected(self, group: int, sectors: bool) -> tuple[int, int]:
        """Completions that the filters left out between the readings, at least and at most."""
        assert self._stop is not None
        what = "sectors" if sectors else "requests"
        names = [
            f"rejected_{letter}_{what}"
            for letter, its_group in zip("RWDFZ", _GROUP, strict=False)
            if its_group == group
        ]
        start, stop = self._start["counters"], self._stop["counters"]

        def total(when: Mapping[str, Any]) -> int:
            return sum(int(when[name]) for name in names)

        low = total(stop["before"]) - total(start["after"])
        return low, total(stop["after"]) - total(start["before"])


def _silent(reason: str) -> WitnessResult:
    return WitnessResult(None, 0, reason, {})
