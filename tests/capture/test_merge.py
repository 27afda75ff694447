"""Records of several rings in one order: by time, causes first, none lost and none twice."""

from __future__ import annotations

import json
import os
import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import frames
import numpy as np
import pytest
import rings
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.capture import merge, stream
from harness.capture.merge import Merge
from harness.capture.options import TraceOptions
from harness.capture.probe import LocalProbe
from harness.capture.records import KIND_SHIFT, SLOT_DTYPE, Kind
from harness.capture.stream import FrameReader
from harness.device.loop import LoopDevice
from tests.capture.conftest import fio
from tests.capture.test_rings import Probe, mapped


def payload(*times: int) -> bytes:
    """Records of these times; each carries in ``key`` how many came before it here."""
    slots = np.zeros(len(times), SLOT_DTYPE)
    slots["ts_ns"], slots["key"] = times, np.arange(len(times))
    return slots.tobytes()


def times(slots: merge.Slots) -> list[int]:
    return [int(ts_ns) for ts_ns in slots["ts_ns"]]


def test_records_wait_for_a_mark_that_is_younger() -> None:
    merging = Merge(2)
    merging.add(payload(1, 4, 7))
    assert merging.ready_bytes == 0 and times(merging.take()) == []
    merging.add(payload(2, 5))
    merging.mark(5)
    assert times(merging.take()) == [1, 2, 4]
    merging.add(payload(6))
    merging.mark(8)
    assert times(merging.take()) == [5, 6, 7]
    assert times(merging.rest()) == []


def test_what_is_late_is_not_lost() -> None:
    merging = Merge(2)
    merging.add(payload(3))
    merging.mark(9)
    assert times(merging.take()) == [3]
    merging.add(payload(1, 10))
    merging.mark(10)
    assert times(merging.take()) == [1]
    assert times(merging.rest()) == [10]


def test_one_ring_waits_for_nothing() -> None:
    ring = Merge(1)
    ring.add(payload(1, 2))
    assert ring.ready_bytes == 128
    assert times(ring.take()) == [1, 2]


def test_of_equal_times_the_first_stays_the_first() -> None:
    merging = Merge(2)
    merging.add(payload(5, 5, 5, 4))
    slots = merging.rest()
    assert times(slots) == [4, 5, 5, 5] and slots["key"].tolist() == [3, 0, 1, 2]


def test_without_marks_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "_MOST_HELD_BYTES", 64 * 10)
    merging = Merge(2)
    merging.add(payload(*range(0, 20, 2)))
    assert merging.ready_bytes == 0
    merging.add(payload(*range(1, 21, 2)))
    assert times(merging.take()) == list(range(10))
    assert times(merging.rest()) == list(range(10, 20))


class Machine:
    """CPUs whose programs record the events of requests, one step of one of them at a time.

    A program reads the clock, then gets its place, then finishes its record, and others do so in
    between, also on its CPU. The next event of a request begins when the one before has ended.
    """

    def __init__(self, rng: random.Random, probes: list[Probe], requests: int) -> None:
        self.now_ns = 0
        self.made = 0
        self._rng = rng
        self._probes = probes
        self._idle = dict.fromkeys(range(requests), 0)
        self._begun: list[tuple[int, int, int]] = []
        self._placed: list[tuple[Probe, int, tuple[int, int, int]]] = []

    def step(self) -> None:
        """Something happens, a moment later or long after."""
        self.now_ns += self._rng.choice([0, 1, 2, 50])
        self._rng.choice([self._begin, self._place, self._finish])()

    def stop(self) -> None:
        """No event is recorded any more but those that have their place."""
        self._begun.clear()
        while self._placed:
            self._finish()
        self._idle.clear()

    def _begin(self) -> None:
        if self._idle:
            request = self._rng.choice(list(self._idle))
            self._begun.append((self.now_ns, request, self._idle.pop(request)))

    def _place(self) -> None:
        probe = self._rng.choice(self._probes)
        if self._begun and not probe.full:
            event = self._begun.pop(self._rng.randrange(len(self._begun)))
            self._placed.append((probe, probe.reserve(), event))

    def _finish(self) -> None:
        if self._placed:
            probe, number, event = self._placed.pop(self._rng.randrange(len(self._placed)))
            probe.commit(number, *event)
            self.now_ns += 1  # it takes its time
            self._idle[event[1]] = event[2] + 1
            self.made += 1


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    requests=st.integers(1, 20),
    busy=st.integers(1, 150),
    chunk=st.integers(1, 30),
    batch=st.integers(1, 50),
)
def test_whatever_the_rounds_the_stream_keeps_causes_first_and_loses_nothing(
    seed: int, requests: int, busy: int, chunk: int, batch: int
) -> None:
    rng = random.Random(seed)
    with mapped() as pairs, pytest.MonkeyPatch.context() as patch, tempfile.TemporaryFile() as file:
        patch.setattr(rings, "_CHUNK_BYTES", 64 * chunk)
        patch.setattr(rings, "_CLOCKS_DIFFER_NS", 0)
        patch.setattr(stream, "_BATCH_BYTES", 64 * batch)
        machine = Machine(rng, [probe for probe, _ in pairs], requests)

        def go_on(what: Callable[[rings.Ring], int]) -> Callable[[rings.Ring], int]:
            """The CPUs do not wait while the pump looks at one ring after the other."""

            def look(ring: rings.Ring) -> int:
                for _ in range(rng.randrange(10)):
                    machine.step()
                return what(ring)

            return look

        recorded = rings.Ring.recorded.fget
        patch.setattr(rings.Ring, "recorded", property(go_on(recorded)))
        readers = [reader for _, reader in pairs]
        forwarder = rings.Forwarder(readers, frames.Sender(file.fileno()), lambda: machine.now_ns)
        for _ in range(30):
            for _ in range(rng.randrange(busy)):
                machine.step()
            while forwarder.forward() and rng.random() < 0.9:
                pass
        machine.stop()
        patch.setattr(rings.Ring, "recorded", property(recorded))
        while forwarder.forward():
            pass
        file.seek(0)
        parts = [slots for _, slots in stream.batches(FrameReader(file.fileno()), len(readers))]
    assert sum(len(slots) for slots in parts) == machine.made
    turns: dict[int, int] = {}
    for slots in parts:
        assert (slots["ts_ns"][1:] >= slots["ts_ns"][:-1]).all()
        for request, turn in zip(slots["key"].tolist(), slots["kind_sector"].tolist(), strict=True):
            assert turn == turns.get(request, 0), "an effect came before its cause"
            turns[request] = turn + 1


class Recorded:
    """A stream that has come already."""

    def __init__(self, frames_: list[tuple[int, bytearray | bytes]]) -> None:
        self._frames = frames_

    def frames(self) -> Iterator[tuple[int, bytearray | bytes]]:
        """What came."""
        yield from self._frames

    def waits(self, seconds: float) -> bool:
        """The next one is always there."""
        return False


@pytest.mark.root
def test_what_several_cpus_record_comes_with_causes_first(
    loop: LoopDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    hello, came = busy_stream(loop)
    if hello["rings"] == 1:
        pytest.skip("one CPU here, and so one ring")
    payloads = [np.frombuffer(p, SLOT_DTYPE) for kind, p in came if kind == stream.DATA]
    monkeypatch.setattr(stream, "_BATCH_BYTES", 64)
    parts = [s for k, s in stream.batches(Recorded(came), hello["rings"]) if k == stream.DATA]
    assert all((slots["ts_ns"][1:] >= slots["ts_ns"][:-1]).all() for slots in parts)
    merged, as_it_came = np.concatenate(parts), np.concatenate(payloads)
    for field in ("ts_ns", "key"):
        assert (np.sort(merged[field]) == np.sort(as_it_came[field])).all()
    assert effects_before_causes(merged) == 0
    assert effects_before_causes(as_it_came) > 0


def busy_stream(loop: LoopDevice) -> tuple[dict[str, Any], list[tuple[int, bytearray | bytes]]]:
    """The loader's HELLO and what follows while jobs on all CPUs read."""
    probe = LocalProbe(TraceOptions((loop.path,)))
    came: list[tuple[int, bytearray | bytes]] = []
    try:
        incoming = FrameReader(probe.stdout.fileno()).frames()
        hello = next(payload for kind, payload in incoming if kind == stream.HELLO)
        thread = threading.Thread(target=lambda: came.extend(incoming))
        thread.start()
        cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        fio(loop.path, "--rw=randread", "--bs=4k", "--iodepth=4", "--time_based", "--runtime=1",
            "--numjobs=4", f"--cpus_allowed={cpus}", "--cpus_allowed_policy=split")  # fmt: skip
        probe.stop()
        thread.join()
    finally:
        probe.close()
    return json.loads(bytes(hello)), came


def effects_before_causes(slots: merge.Slots) -> int:
    """Completions that follow another of the same request: their issue, or the other's, does later.

    Not issues that follow another, since some kernels lose a completion (``verdict.Evidence``).
    """
    order = np.argsort(slots["key"], kind="stable")
    ended = (slots["kind_sector"][order] >> KIND_SHIFT) == Kind.COMPLETE
    same = slots["key"][order][1:] == slots["key"][order][:-1]
    return int(np.count_nonzero(same & ended[1:] & ended[:-1]))
