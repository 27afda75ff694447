"""A simulated run as an input of ``harness.endurance``: the layout's writes, pass after pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness.endurance.arrange import as_commands
from harness.endurance.inputs import Batch, Kind
from harness.endurance.store_input import COMMAND_BYTES
from harness.simulator.wearing.events import LogReader
from harness.simulator.wearing.layout import Layout
from harness.stores.ops import CLASS_NAMES, ObjectClass, OpArray

Placement = Literal["none", "class"]
"""Placement ids: none, or 0 full attention, 1 states (their headers with them), 2 metadata."""

METADATA_ID = 2
_PART = 1 << 12
_SAMPLES = 16


@dataclass(frozen=True)
class Pass:
    """What the layout made of the log once.

    ``op_bytes``: int64[classes of ``ObjectClass``], written to the device. ``lost``:
    int64[``Lost``, 2]; ``missing``: int64[2], objects that the policy held at the end and the store
    did not. ``held_bytes`` of the device (and of memory, what waits there) and ``live_bytes`` of
    the objects in them, at the end; ``wasted``: the mean and the most of held less live.
    """

    op_bytes: NDArray[np.int64]
    ops: int
    lost: NDArray[np.int64]
    missing: NDArray[np.int64]
    held_bytes: int
    live_bytes: int
    wasted_mean: float
    wasted_most: int


class RunInput:
    """Writes of a run's SSD log in a layout, endlessly: passes with fresh keys and sessions.

    ``make``: a new reader and an empty layout, each time the input is started. ``passes``: what
    the first start gave so far.
    """

    kind: Kind = "store"
    endless = True
    has_classes = True

    def __init__(
        self, make: Callable[[], tuple[LogReader, Layout]], *, name: str, facts: dict[str, Any],
        placement: Placement = "class", command_bytes: int = COMMAND_BYTES,
    ) -> None:  # fmt: skip
        self.name, self.facts, self.labels = name, facts, list[str]()
        self.class_names = list(CLASS_NAMES)
        self.passes: list[Pass] = []
        self._make, self._placement, self._command_bytes = make, placement, command_bytes
        self._started = 0

    def batches(self) -> Iterator[Batch]:
        """The writes of an empty store from the log's first row on."""
        reader, layout = self._make()
        self._started += 1
        record = self._started == 1
        while True:
            count = _Counter(reader, layout)
            last = None
            for events in reader.one_pass():
                for ops in layout.ops(events):
                    count.add(ops)
                    for batch in self._commands(ops):
                        if last is not None:
                            yield last
                        last = batch
                count.batch()
                if last is not None:
                    last = replace(last, clock_s=float(events["time_s"][-1]))
            if record:
                self.passes.append(count.finish())
            if last is None:
                return
            yield replace(last, ends_repeat=True)

    def _commands(self, ops: OpArray) -> Iterator[Batch]:
        """Calls as the commands that reach the drive, some thousand calls at a time."""
        calls = Batch(
            ops["offset"].copy(),
            ops["length"].copy(),
            ops["op"].copy(),
            placement=placement_ids(ops) if self._placement == "class" else None,
            classes=ops["object_class"].copy(),
        )
        stream = ops["stream"].copy()
        for at in range(0, len(ops), _PART):
            stop = at + _PART
            yield as_commands(calls.part(at, stop), stream[at:stop], self._command_bytes)


class _Counter:
    """Sums over one pass; what is wasted is looked at some times on the way, and at its end."""

    def __init__(self, reader: LogReader, layout: Layout) -> None:
        self._reader, self._layout = reader, layout
        self._before = layout.lost
        self._bytes = np.zeros(len(CLASS_NAMES), np.int64)
        self._ops = self._batches = 0
        self._every = max(1, reader.batches // _SAMPLES)
        self._wasted: list[int] = []

    def add(self, ops: OpArray) -> None:
        self._ops += len(ops)
        length = ops["length"].astype(np.float64)  # exact below 2^53 bytes an array
        by_class = np.bincount(ops["object_class"], length, minlength=len(CLASS_NAMES))
        self._bytes += by_class.astype(np.int64)

    def batch(self) -> None:
        """Reader and layout have come equally far."""
        self._batches += 1
        if self._batches % self._every == 0:
            self._sample()

    def _sample(self) -> tuple[NDArray[np.int64], int, int]:
        """(objects missing, bytes held, bytes of the objects in them)."""
        layout = self._layout
        missing = layout.missing(self._reader.residents())
        held = layout.held_bytes + layout.waiting_bytes
        live = self._reader.live_bytes - int((missing * layout.sizes.by_class).sum())
        self._wasted.append(held - live)
        return missing, held, live

    def finish(self) -> Pass:
        missing, held, live = self._sample()
        return Pass(
            op_bytes=self._bytes,
            ops=self._ops,
            lost=self._layout.lost - self._before,
            missing=missing,
            held_bytes=held,
            live_bytes=live,
            wasted_mean=float(np.mean(self._wasted)),
            wasted_most=max(self._wasted),
        )


def placement_ids(ops: OpArray) -> NDArray[np.uint8]:
    """The placement id of each op, by attention type; a header goes with what it heads."""
    classes = ops["object_class"]
    ids = classes.copy()
    heads = np.flatnonzero(classes == ObjectClass.HEADER)
    ids[heads] = classes[np.minimum(heads + 1, len(ops) - 1)]
    return np.asarray(np.minimum(ids, METADATA_ID), np.uint8)
