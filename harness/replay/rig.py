"""Everything an engine thread needs, built and taken down: rings, buffers, lanes, threads."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from harness.device.buffers import AlignedPool, PayloadPool
from harness.device.guard import Target
from harness.device.info import DeviceInfo
from harness.device.ring import Ring
from harness.replay.closed import Loop, make_loop, run_closed
from harness.replay.engine import run_schedule
from harness.replay.lane import At, Flight, Lane, make_flight
from harness.replay.options import ReplayOptions
from harness.replay.punctual import (
    ALWAYS,
    FOR_NOW,
    NORMAL,
    SPIN_NS,
    prioritise,
    served_by_threads,
    spare_processor,
)
from harness.replay.verify import make_truth
from harness.replay.window import I64, U64, Control, Meter, Window

POOL_BYTES = 512 << 20
_DEEPEST = 1024
_PAGE = 4096
_PLUGGED, _UNPLUGGED = 32, 2


@dataclass(frozen=True)
class Sizing:
    """Depth in all, buffers in bytes, and why the depth is what it is."""

    depth: int
    read_bytes: int
    write_bytes: int
    note: str | None


def size_up(options: ReplayOptions, info: DeviceInfo, read_bytes: int, write_bytes: int) -> Sizing:
    """How deep a replay may go: below the queue's requests, and as far as buffers reach.

    A queue that runs out of requests makes the kernel refuse or reorder; a request's tag is
    given back a little after its completion is seen, hence the margin.
    """
    spare = min(max(8, info.nr_requests // 16), info.nr_requests // 4)
    queue = max(info.nr_requests - spare, 1)
    memory = max(POOL_BYTES // max(read_bytes + write_bytes, _PAGE), options.queues)
    limit = min(queue, memory, _DEEPEST)
    wanted = options.depth or limit
    note = None
    if wanted > limit:
        why = "the queue's nr_requests" if limit == queue else "the memory for buffers"
        note = f"depth {wanted} was lowered to {limit} by {why}"
    depth = max(min(wanted, limit) // options.queues * options.queues, options.queues)
    return Sizing(depth, max(read_bytes, _PAGE), max(write_bytes, _PAGE), note)


def batch_limit(release: str | None = None) -> int:
    """Commands in one system call that reach the device in order.

    Batches of more than two are plugged, 32 requests at most at a time, and before Linux 6.13 the
    block layer took a plug's requests in reverse (its commit e70c301faece put that right).
    """
    return _PLUGGED if kernel_version(release) >= (6, 13) else _UNPLUGGED


def has_ring_discard(release: str | None = None) -> bool:
    """Whether io_uring can discard on block devices (Linux 6.12)."""
    return kernel_version(release) >= (6, 12)


def kernel_version(release: str | None = None) -> tuple[int, int]:
    """``6.18.44-x`` as (6, 18)."""
    numbers = (release or os.uname().release).split("-")[0].split(".")
    return int(numbers[0]), int(numbers[1])


class Rig:
    """Lanes over one device, and the threads that run them. Use as a context manager."""

    def __init__(
        self,
        target: Target,
        options: ReplayOptions,
        sizing: Sizing,
        window: Window,
        unit_bytes: int,
    ) -> None:
        self._options = options
        self._window = window
        self._stack = ExitStack()
        self.control: I64 = np.zeros(len(Control), np.int64)
        self.truth: U64 = np.zeros(0, np.uint64)
        if options.verify:
            self.truth = make_truth(target.size_bytes, unit_bytes)
        self.loop: Loop | None = None
        if options.mode == "closed-loop":
            self.loop = make_loop(window.size, target.size_bytes, unit_bytes, options.speed)
        self.huge = True
        # Flat out there is no time to keep, and a meeker engine reaps more at a time.
        self._punctual = options.realtime and options.mode != "flat-out"
        self._by_threads = served_by_threads(target.name)
        self._priority = "normal"
        self.failures: list[BaseException] = []
        self.lanes: list[Lane] = []
        self.meters: list[I64] = []
        self._flights: list[Flight] = []
        self._rings: list[Ring] = []
        self._pools: list[AlignedPool] = []
        self._threads: list[threading.Thread] = []
        try:
            for number in range(options.queues):
                self._add_lane(target, sizing, number, unit_bytes)
        except BaseException:
            self._stack.close()
            raise

    def _add_lane(self, target: Target, sizing: Sizing, number: int, unit_bytes: int) -> None:
        options, depth = self._options, sizing.depth // self._options.queues
        ring = Ring(max(depth, 8), files=[target.fd], deferred=True)
        self._rings.append(self._stack.enter_context(ring))
        reads = AlignedPool(depth, sizing.read_bytes)
        writes: AlignedPool
        if options.zero:
            writes = AlignedPool(depth, sizing.write_bytes)
        else:
            writes = PayloadPool(
                depth, sizing.write_bytes, options.seed + number, block_bytes=unit_bytes
            )
        ring.register_buffers([reads.span(), writes.span()])
        self._pools += [reads, writes]
        self.huge = self.huge and reads.huge and writes.huge
        self.lanes.append(
            Lane(
                ring_fd=ring.fd,
                sq_tail=ring.sq_tail.ctypes.data,
                cq_head=ring.cq_head.ctypes.data,
                cq_tail=ring.cq_tail.ctypes.data,
                sqes=ring.sqes.view(np.uint64).reshape(-1, 8),
                cqes=ring.cqes.view(np.uint64).reshape(-1, 2),
                first=number,
                stride=options.queues,
                depth=depth,
                batch=min(batch_limit(), depth),
                paced=options.mode != "flat-out",
                spin_ns=SPIN_NS,
                spins_busy=not self._by_threads or spare_processor(options.queues),
                modest=self._by_threads and self._punctual,
                device_fd=target.fd,
                ring_discard=has_ring_discard(),
                read_address=reads.address,
                read_slot=reads.slot_bytes,
                write_address=writes.address,
                write_slot=writes.slot_bytes,
                reads=reads.words,
                payload=writes.words,
                tag=writes.tag if isinstance(writes, PayloadPool) else np.uint64(0),
                stamped=not options.zero,
                truth=self.truth,
                unit_bytes=unit_bytes,
            )
        )
        self.meters.append(np.zeros(len(Meter), np.int64))
        self._flights.append(make_flight(self._window.size, depth, number))

    def warm_up(self) -> None:
        """Compile the engine (or load it) by a run that finds nothing to do."""
        control = np.zeros(len(Control), np.int64)
        control[Control.FINISHED] = 1
        flight = make_flight(self._window.size, self.lanes[0].depth, 0)
        self._engine(self.lanes[0], flight, control, np.zeros(len(Meter), np.int64))

    def _engine(self, lane: Lane, flight: Flight, control: I64, meter: I64) -> None:
        if self.loop is None:
            run_schedule(lane, flight, self._window, control, meter)
        else:
            run_closed(lane, flight, self._window, control, meter, self.loop)

    def start(self) -> None:
        """Start one thread an engine."""
        for number in range(len(self.lanes)):
            thread = threading.Thread(
                target=self._run, args=(number,), name=f"replay-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _run(self, number: int) -> None:
        try:
            lane, flight = self.lanes[number], self._flights[number]
            self._priority = prioritise(self._punctual, modest=lane.modest)
            flight.at[At.REALTIME] = ALWAYS if self._priority == "real-time" else NORMAL
            self._rings[number].enable()
            self._engine(lane, flight, self.control, self.meters[number])
        except BaseException as error:
            self.failures.append(error)

    @property
    def priority(self) -> str:
        """What the engines run at, and for how long in all the modest ones were real-time."""
        realtime_ns = self.meter(Meter.REALTIME_NS)
        for flight in self._flights:
            if flight.at[At.REALTIME] == FOR_NOW:
                realtime_ns += int(flight.at[At.LOOKED] - flight.at[At.PROMOTED])
        if realtime_ns > 0:
            return f"{self._priority}, real-time for {realtime_ns / 1e9:.3f} s"
        return self._priority

    @property
    def refused(self) -> bool:
        """Whether an engine wanted to be real-time and was not permitted to."""
        if not self._punctual:
            return False
        if self._priority == "normal" and self._by_threads:
            return self.meter(Meter.REFUSED) > 0
        return self._priority != "real-time"

    def running(self) -> bool:
        """Whether any engine is still at work."""
        return any(thread.is_alive() for thread in self._threads)

    def join(self, timeout_s: float) -> bool:
        """Wait for the engines; whether all have ended."""
        for thread in self._threads:
            thread.join(timeout_s)
        return not self.running()

    def stop(self, how: int) -> None:
        """Set ``Control.STOP``."""
        self.control[Control.STOP] = how

    def meter(self, word: Meter) -> int:
        """A counter summed over the engines."""
        return int(sum(meter[word] for meter in self.meters))

    def close(self) -> None:
        """Give the rings back; requests still in flight keep their memory until they are done."""
        self._stack.close()

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
