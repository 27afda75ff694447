"""The drive: feed it commands, read its counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from harness.core.errors import HarnessError, MachineError, MeasurementError, UsageError
from harness.core.memory import available_bytes
from harness.core.profiles import DeviceProfile
from harness.core.units import format_size
from harness.ftl import drive, femu
from harness.ftl.pages import table_bytes
from harness.ftl.policy import (
    EMPTY_WRITE,
    ERASED,
    FREE,
    GC_PAGES,
    HOST_BYTES,
    HOST_PAGES,
    OPS,
    OUTSIDE,
    SNAPSHOT,
    STOPPED,
    TRIMMED,
)

PAGES_AT_A_TIME = 1 << 26
"""Pages programmed before control comes back, so that Ctrl-C and progress bars work."""


@dataclass(frozen=True)
class Counters:
    """What the drive has done so far; ``tag`` is that of a SNAP, None otherwise."""

    ops_done: int
    host_pages: int
    gc_pages: int
    erased_lines: int
    free_lines: int
    foreground_gc: int
    background_gc: int
    trimmed_pages: int
    host_bytes: int
    tag: int | None = None

    @property
    def waf(self) -> float | None:
        """(host + GC) / host pages since the start; None before the first write."""
        return (self.host_pages + self.gc_pages) / self.host_pages if self.host_pages else None

    def to_json(self) -> dict[str, int | float | None]:
        """The fields of ``wear --json``'s ``snapshots``."""
        return {**self.__dict__, "waf": self.waf}


class Ftl:
    """One simulated drive. Raises MachineError when its tables do not fit into memory.

    ``by_class`` keeps the class of every page, for ``pages_by_class``.
    """

    def __init__(self, profile: DeviceProfile, by_class: bool = False) -> None:
        self.profile = profile
        self.policy: ModuleType = femu if profile.is_femu else drive
        size = table_bytes(profile.namespace_pages, profile.lines, profile.pages_per_line, by_class)
        free = available_bytes()
        if size > free:  # Linux would promise it, and end the process while it is filled
            raise MachineError(
                f"the mapping tables of {profile.name or 'this profile'} need {format_size(size)}, "
                f"{format_size(free)} are available",
                fix="use a smaller profile, or a machine with more memory",
            )
        self.state = self.policy.create(profile, by_class)
        self._dead = False

    def apply(
        self,
        offset: np.ndarray,
        length: np.ndarray,
        op: np.ndarray,
        stream: np.ndarray | None = None,
        kind: np.ndarray | None = None,
        tick: Callable[[], None] | None = None,
        first: int = 0,
    ) -> list[Counters]:
        """Serve commands in order; returns the counters at each SNAP.

        ``offset`` and ``length`` are bytes (any integer type), ``op`` codes of ``Op``,
        ``stream`` the host stream of each and ``kind`` the class of its data (below 256; 0 where
        not given). ``tick`` is called now and then; ``first`` is the number that messages
        give the first command. UsageError for a command outside the namespace or a write of
        nothing; MeasurementError where the drive runs out of lines, after which it serves
        nothing.
        """
        offset = np.ascontiguousarray(offset, np.uint64)
        length = np.ascontiguousarray(length, np.uint64)
        op = np.ascontiguousarray(op, np.uint8)
        nothing = np.zeros(len(op) if stream is None or kind is None else 0, np.uint8)
        streams = nothing if stream is None else np.ascontiguousarray(stream, np.uint8)
        kinds = nothing if kind is None else np.ascontiguousarray(kind, np.uint8)
        if self._dead:
            raise MeasurementError("this drive ran out of lines before; make a new one")
        snapshots, at = [], 0
        while at < len(op):
            at, reason = self.policy.serve(
                self.state, offset, length, op, streams, kinds, at, len(op), PAGES_AT_A_TIME
            )
            if reason == SNAPSHOT:
                snapshots.append(self._counters(tag=int(offset[at])))
                at += 1
            elif reason != STOPPED:
                raise self._refused(first + at, int(offset[at]), int(length[at]), reason)
            if tick is not None:
                tick()
        return snapshots

    def counters(self) -> Counters:
        """The counters now."""
        return self._counters()

    @property
    def erases(self) -> np.ndarray:
        """int64[lines]: how often each line was erased."""
        return np.asarray(self.state.pages.erases)

    @property
    def pages_by_class(self) -> np.ndarray:
        """int64[2, 256]: pages programmed for the host and by GC, by class of their data."""
        return np.asarray(self.state.pages.tally)

    @property
    def mapped_pages(self) -> int:
        """Logical pages that hold data."""
        return int(self.state.pages.valid.sum())

    def line_states(self) -> dict[str, int]:
        """Number of lines open, free, full and waiting as victims."""
        return dict(self.policy.line_states(self.state))

    def _counters(self, tag: int | None = None) -> Counters:
        stats = self.state.stats
        return Counters(
            ops_done=int(stats[OPS]),
            host_pages=int(stats[HOST_PAGES]),
            gc_pages=int(stats[GC_PAGES]),
            erased_lines=int(stats[ERASED]),
            free_lines=int(stats[FREE]),
            foreground_gc=int(stats[self.policy.FG]),
            background_gc=int(stats[self.policy.BG]),
            trimmed_pages=int(stats[TRIMMED]),
            host_bytes=int(stats[HOST_BYTES]),
            tag=tag,
        )

    def _refused(self, index: int, offset: int, length: int, reason: int) -> HarnessError:
        if reason == EMPTY_WRITE:
            return UsageError(f"request {index} writes 0 bytes")
        if reason == OUTSIDE:
            end = self.profile.namespace_bytes
            return UsageError(
                f"request {index} (offset {offset}, length {length}) ends beyond the namespace "
                f"of {end} B ({format_size(end)})",
                fix="bring the trace to the drive's size with: harness trace scale",
            )
        self._dead = True
        return MeasurementError(self._out_of_lines(index, length))

    def _out_of_lines(self, index: int, length: int) -> str:
        p = self.profile
        pages = -(-length // p.lpn_bytes)
        spare = 100 * p.over_provisioning
        if not p.is_femu:
            return (
                f"no free lines left while serving request {index} ({pages} pages): no line that "
                f"is closed holds an invalid page, with {p.spare_lines} of {p.lines} lines spare "
                f"(over-provisioning {spare:.1f} %). Give more over-provisioning or smaller lines"
            )
        limit = (
            f"forced GC keeps {p.gc_thres_lines_high} free "
            f"(gc_thres_pcent_high {p.gc_thres_pcent_high})"
        )
        return (
            f"no free lines left while serving request {index} ({pages} pages, "
            f"{pages / p.pages_per_line:.3g} lines of {p.pages_per_line} pages): {limit} of "
            f"{p.lines} lines, {p.spare_lines} of them spare (over-provisioning "
            f"{spare:.1f} %). FEMU aborts here. Give more over-provisioning "
            "or larger lines, start forced GC earlier, or write in smaller commands"
        )
