"""Eviction writes in the background: a store that goes on living while sessions are read."""

from __future__ import annotations

import threading
import time

from harness.bench.drive import Engine
from harness.bench.placed import WRITE_BYTES, Placed, write_ops
from harness.device.buffers import PayloadPool
from harness.device.guard import Target

DEPTH = 4
_SEED = 0x6368


class Churn:
    """Others' requests written into the placement's store, flat out at a small depth.

    Use as a context manager around a measurement; ``gbps`` afterwards is what was written
    meanwhile. Its writes may reclaim the sessions' places: what is read is then other data of the
    same layout, which costs the device the same.
    """

    def __init__(self, target: Target, placed: Placed) -> None:
        self._target, self._placed = target, placed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="churn", daemon=True)
        self._error: BaseException | None = None
        self._bytes, self._seconds = 0, 0.0

    @property
    def gbps(self) -> float:
        """Decimal gigabytes written a second."""
        return self._bytes / self._seconds / 1e9 if self._seconds else 0.0

    def __enter__(self) -> Churn:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        start = time.perf_counter()
        try:
            pool = PayloadPool(DEPTH, WRITE_BYTES, seed=_SEED)
            with Engine(self._target.fd, DEPTH, WRITE_BYTES, pool) as engine:
                for ops in self._placed.write_ops(self._placed.traffic.churn(), batch_size=1):
                    self._bytes += write_ops(engine, ops)
                    if self._stop.is_set():
                        break
        except BaseException as error:  # handed to the thread that measures
            self._error = error
        self._seconds = time.perf_counter() - start
