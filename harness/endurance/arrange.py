"""Ways to make more, or something else, of an input: cut, repeat, tile, perturb."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from harness.core.errors import UsageError
from harness.core.jit import kernels
from harness.endurance.inputs import Batch, Input, Kind
from harness.ftl.workloads import SplitMix64

kernel = kernels("endurance/arrange.py")

SWAP_ONE_IN = 500
"""Share of neighbours that a perturbation swaps."""
_ROUNDS = 4096


class _Wrapped:
    """An input made of another one."""

    def __init__(self, inner: Input) -> None:
        self.inner = inner

    @property
    def kind(self) -> Kind:
        return self.inner.kind

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def endless(self) -> bool:
        return self.inner.endless

    @property
    def has_classes(self) -> bool:
        return self.inner.has_classes

    @property
    def class_names(self) -> list[str]:
        return self.inner.class_names

    @property
    def labels(self) -> list[str]:
        return self.inner.labels

    @property
    def facts(self) -> dict[str, Any]:
        return self.inner.facts


class Looped(_Wrapped):
    """An input over and over, ``times`` or (None) endlessly."""

    def __init__(self, inner: Input, times: int | None) -> None:
        super().__init__(inner)
        self.times = times

    @property
    def endless(self) -> bool:
        return self.times is None

    @property
    def labels(self) -> list[str]:
        return [*self.inner.labels, "the trace was repeated: artificial seam at each end"]

    def batches(self) -> Iterator[Batch]:
        done = 0
        while self.times is None or done < self.times:
            last = None
            for batch in self.inner.batches():
                if last is not None:
                    yield last
                last = batch
            if last is not None:
                yield replace(last, ends_repeat=True)
            done += 1


class Perturbed(_Wrapped):
    """An input in which some neighbours have changed places."""

    def __init__(self, inner: Input, seed: int) -> None:
        super().__init__(inner)
        self.seed = seed

    def batches(self) -> Iterator[Batch]:
        rng = SplitMix64(self.seed)
        for batch in self.inner.batches():
            rows = len(batch.op)
            order = np.arange(rows)
            if rows > 1:
                swaps = -(-rows // SWAP_ONE_IN)
                for at in rng.picks(swaps, rows - 1).astype(np.int64):
                    order[at], order[at + 1] = order[at + 1], order[at]
            yield batch.taken(order)


class Tiled(_Wrapped):
    """A trace side by side as often as it fits, each tile at a phase of its own, endlessly.

    In turn each tile issues one request; the phases (by ``seed``) decide how the tiles' bursts
    meet, and so the WAF: use several seeds and quote the range.
    """

    def __init__(self, inner: Input, namespace_bytes: int, seed: int) -> None:
        super().__init__(inner)
        if inner.endless:
            raise UsageError("an endless input cannot be tiled")
        self.seed = seed
        parts = list(inner.batches())
        self._offset = np.concatenate([part.offset for part in parts])
        self._length = np.concatenate([part.length for part in parts])
        self._op = np.concatenate([part.op for part in parts])
        self._placement = _joined([part.placement for part in parts])
        self._classes = _joined([part.classes for part in parts])
        span = int((self._offset + self._length).max())
        self.tile_bytes = -(-span // (1 << 20)) << 20
        self.tiles = namespace_bytes // self.tile_bytes
        if self.tiles < 1:
            raise UsageError(
                f"{inner.name} reaches {span} B, the namespace ends at {namespace_bytes} B",
                fix="bring the trace to the drive's size with: harness trace scale",
            )

    @property
    def endless(self) -> bool:
        return True

    @property
    def labels(self) -> list[str]:
        tiled = f"{self.tiles} tiles of {self.tile_bytes} B at phases of seed {self.seed}"
        return [*self.inner.labels, f"{tiled}: not a trace of a store of this size"]

    def batches(self) -> Iterator[Batch]:
        rows, rng = len(self._op), SplitMix64(self.seed)
        phase = rng.picks(self.tiles, rows).astype(np.int64)
        base = np.arange(self.tiles, dtype=np.uint64) * np.uint64(self.tile_bytes)
        rounds = max(1, min(rows, _ROUNDS * 64 // self.tiles))
        at = 0
        while True:
            stop = min(at + rounds, rows)
            index = (np.arange(at, stop)[:, None] + phase) % rows
            flat = index.ravel()
            yield Batch(
                (self._offset[index] + base).ravel(),
                self._length[flat],
                self._op[flat],
                None if self._placement is None else self._placement[flat],
                None if self._classes is None else self._classes[flat],
                ends_repeat=stop == rows,
            )
            at = stop % rows


def _joined(parts: list[np.ndarray | None]) -> np.ndarray | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if known and len(known) == len(parts) else None


def as_commands(batch: Batch, worker: np.ndarray, command_bytes: int) -> Batch:
    """Calls of several workers as the commands that reach the drive.

    A call is cut into commands of ``command_bytes``; calls of one worker follow each other,
    those of different workers overlap and take turns. ``worker``: uint16[n].
    """
    start = np.empty(len(batch.length), np.int64)
    free = np.zeros(int(worker.max(initial=0)) + 1, np.int64)
    _set_starts(batch.length, worker.astype(np.int64), free, start)
    cut = np.where(batch.op == 1, -(-batch.length.astype(np.int64) // command_bytes), 1)
    rows = np.repeat(np.arange(len(cut)), cut)
    step = (np.arange(len(rows)) - np.repeat(np.cumsum(cut) - cut, cut)) * command_bytes
    order = np.argsort(start[rows] + step, kind="stable")
    rows, step = rows[order], step[order].astype(np.uint64)
    pieces = batch.taken(rows)
    left = pieces.length - step
    length = np.where(pieces.op == 1, np.minimum(left, np.uint64(command_bytes)), left)
    return replace(pieces, offset=pieces.offset + step, length=length)


@kernel
def _set_starts(
    length: np.ndarray, worker: np.ndarray, free: np.ndarray, start: np.ndarray
) -> None:
    """Virtual start of each call, in bytes written by each worker at an equal pace.

    A call starts once its worker is free, and not before the call issued ahead of it.
    """
    now: Any = np.int64(0)
    for i in range(len(length)):
        now = max(now, free[worker[i]])
        start[i] = now
        free[worker[i]] = now + np.int64(length[i])
