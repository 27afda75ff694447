"""The two-layer double buffer of FlatCake's reader, over any kvikio-like reader.

Two buffers of a layer each are used in turn: layer l + 2 is asked for only once layer l has
arrived and has been scattered into its pages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from harness.bench.plans import Plan
from harness.core.errors import MeasurementError

WINDOW_LAYERS = 2


class Future(Protocol):
    """What kvikio's ``pread`` returns."""

    def get(self) -> int: ...


class Reader(Protocol):
    """kvikio's ``CuFile``, ``HostReader``, or a fake."""

    def pread(self, buf: Any, size: int | None = None, file_offset: int = 0) -> Future: ...


@dataclass(frozen=True)
class Layer:
    """The reads of one layer: (file offset, bytes), packed one after the other in its buffer."""

    reads: tuple[tuple[int, int], ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all reads."""
        return sum(length for _, length in self.reads)


def layers_of(plan: Plan) -> list[Layer]:
    """A layered plan as one list of reads a layer."""
    starts = np.searchsorted(plan.layer, np.arange(plan.layers + 1))
    offset, length = plan.offset.tolist(), plan.length.tolist()
    return [
        Layer(tuple(zip(offset[a:b], length[a:b], strict=True)))
        for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    ]


def restore(
    reader: Reader,
    layers: Sequence[Layer],
    buffers: Sequence[Any],
    scatter: Callable[[int, Any], None],
) -> float:
    """Read all layers through ``buffers`` (two, each as large as a layer); seconds it took.

    ``scatter(layer, filled)`` moves a layer that has arrived to where it is used and must be done
    with the buffer when it returns. MeasurementError for a short read.
    """
    flights: list[list[tuple[Future, int]]] = []
    start = time.perf_counter()
    for number, layer in enumerate(layers):
        if number >= WINDOW_LAYERS:
            _land(flights, number - WINDOW_LAYERS, layers, buffers, scatter)
        buffer, at, flight = buffers[number % WINDOW_LAYERS], 0, []
        for offset, length in layer.reads:
            future = reader.pread(buffer[at : at + length], length, offset)
            flight.append((future, length))
            at += length
        flights.append(flight)
    for number in range(max(0, len(layers) - WINDOW_LAYERS), len(layers)):
        _land(flights, number, layers, buffers, scatter)
    return time.perf_counter() - start


def _land(
    flights: list[list[tuple[Future, int]]],
    number: int,
    layers: Sequence[Layer],
    buffers: Sequence[Any],
    scatter: Callable[[int, Any], None],
) -> None:
    for future, length in flights[number]:
        got = future.get()
        if got != length:
            raise MeasurementError(f"short read in layer {number}: {got} of {length} bytes")
    scatter(number, buffers[number % WINDOW_LAYERS][: layers[number].size_bytes])
