"""Serve an input to a drive and keep what its counters say on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from harness.core.errors import UsageError
from harness.core.ops import Op
from harness.endurance.inputs import Batch, Input, written_bytes
from harness.endurance.shape import Shape
from harness.endurance.steady import Window, is_steady
from harness.ftl import Counters, Ftl

FILL_BYTES = 1 << 20


@dataclass(frozen=True)
class Limits:
    """When to stop an input: at steady state, after so many bytes or windows, at a time.

    ``repeats``: passes of a repeated input that must be over before steady state counts.
    """

    steady: bool = True
    repeats: int = 0
    host_bytes: float | None = None
    windows: int | None = None
    deadline: float | None = None  # of time.monotonic


@dataclass(frozen=True)
class Snapshot:
    """Counters since the measurement began, and why they were taken."""

    event: str
    counters: Counters


@dataclass
class Measured:
    """All that one pass of an input over a drive gave."""

    stopped: str = ""
    snapshots: list[Snapshot] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    total: Counters | None = None
    clock: list[tuple[int, float]] = field(default_factory=list)
    """(bytes written so far, time of the input's clock) where the input told the time."""
    new_tokens: int = 0
    new_token_bytes: int = 0
    """Bytes written when the tokens were last counted."""
    repeats: int = 0


def precondition(ftl: Ftl, fills: int, tick: Callable[[], None]) -> None:
    """Write the whole namespace from start to end, ``fills`` times."""
    end = ftl.profile.namespace_bytes
    offset = np.arange(0, end, FILL_BYTES, dtype=np.uint64)
    length = np.minimum(FILL_BYTES, np.uint64(end) - offset)
    for _ in range(fills):
        ftl.apply(offset, length, np.full(len(offset), Op.WRITE, np.uint8), tick=tick)


class _Pass:
    """The loop over batches; its fields are the state that windows and snapshots need."""

    def __init__(self, ftl: Ftl, source: Input, limits: Limits, shape: Shape) -> None:
        self.ftl, self.source, self.limits, self.shape = ftl, source, limits, shape
        self.base = ftl.counters()
        self.last = self.base
        self.found = Measured()
        self.window_bytes = ftl.profile.namespace_bytes
        self.written = self.commands = 0

    def run(self, progress: Callable[[Measured, int], None]) -> Measured:
        for batch in self.source.batches():
            for piece in self._pieces(batch):
                self._serve(piece)
                progress(self.found, self.written)
                if self._done():
                    return self._finish()
            self._after(batch)
        self.found.stopped = "the input ended"
        return self._finish()

    def _pieces(self, batch: Batch) -> Iterator[Batch]:
        """The batch, cut where a window ends."""
        self.shape.add(batch)
        running, start = written_bytes(batch), 0
        while start < len(batch.op):
            before = int(running[start - 1]) if start else 0
            left = self.window_bytes - self.written % self.window_bytes
            stop = int(np.searchsorted(running, np.uint64(before + left))) + 1
            stop = min(stop, len(batch.op))
            piece = batch.part(start, stop) if start or stop < len(batch.op) else batch
            yield piece
            start = stop

    def _serve(self, piece: Batch) -> None:
        drive = self.ftl.profile.drive
        by = {"none": None, "placement": piece.placement, "class": piece.classes}
        snaps = self.ftl.apply(
            piece.offset,
            piece.length,
            piece.op,
            by[drive.streams],
            piece.classes,
            first=self.commands,
        )
        self.commands += len(piece.op)
        for counters in snaps:
            self._snapshot("snap", counters)
        before = self.written // self.window_bytes
        now = self.ftl.counters()
        self.written = now.host_bytes - self.base.host_bytes
        if self.written // self.window_bytes > before:
            self._close_window(now)

    def _close_window(self, now: Counters) -> None:
        window = since(now, self.last)
        self.found.windows.append(
            Window(window.host_bytes, window.host_pages, window.gc_pages, window.erased_lines)
        )
        self.last = now
        if self.source.kind != "oplist":
            self._snapshot("window", now)

    def _after(self, batch: Batch) -> None:
        if batch.clock_s is not None:
            self.found.clock.append((self.written, batch.clock_s))
        if batch.new_tokens:
            self.found.new_tokens += batch.new_tokens
            self.found.new_token_bytes = self.written
        if batch.ends_repeat:
            if self.written == 0:
                raise UsageError(
                    f"{self.source.name} writes nothing, however often it is repeated",
                    fix="give a trace with writes",
                )
            self.found.repeats += 1
            self._snapshot("repeat", self.ftl.counters())

    def _done(self) -> bool:
        limits, found = self.limits, self.found
        if limits.host_bytes is not None and self.written >= limits.host_bytes:
            found.stopped = "all that was asked for is written"
        elif limits.steady and found.repeats >= limits.repeats and is_steady(found.windows):
            found.stopped = "steady"
        elif limits.windows is not None and len(found.windows) >= limits.windows:
            found.stopped = f"{limits.windows} namespaces are written"
        elif limits.deadline is not None and time.monotonic() >= limits.deadline:
            found.stopped = "the time budget is spent"
        return bool(found.stopped)

    def _snapshot(self, event: str, counters: Counters) -> None:
        self.found.snapshots.append(Snapshot(event, since(counters, self.base)))

    def _finish(self) -> Measured:
        self.found.total = total = since(self.ftl.counters(), self.base)
        last = self.found.snapshots[-1] if self.found.snapshots else None
        if last is None or last.event == "snap" or last.counters.ops_done != total.ops_done:
            self._snapshot("end", self.ftl.counters())
        return self.found


def measure(
    ftl: Ftl,
    source: Input,
    limits: Limits,
    shape: Shape,
    progress: Callable[[Measured, int], None],
) -> Measured:
    """Serve ``source`` to ``ftl`` until a limit is met or it ends.

    ``progress`` is called after each batch with what was found so far and the bytes written.
    """
    return _Pass(ftl, source, limits, shape).run(progress)


def since(now: Counters, before: Counters) -> Counters:
    """Counters of the work between two moments; free lines are those of now."""
    return replace(
        now,
        **{
            name: getattr(now, name) - getattr(before, name)
            for name in (
                "ops_done",
                "host_pages",
                "gc_pages",
                "erased_lines",
                "foreground_gc",
                "background_gc",
                "trimmed_pages",
                "host_bytes",
            )
        },
    )
