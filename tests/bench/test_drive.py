"""Our ring as an engine: right data, right order, every error named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.bench.drive import Engine, window_barriers
from harness.bench.plans import Plan
from harness.core.errors import MeasurementError
from harness.device.buffers import PayloadPool
from harness.device.guard import Target, open_guarded
from harness.device.loop import LoopDevice

pytestmark = pytest.mark.root

MIB = 1 << 20
BLOCK = 64 << 10


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with (
        LoopDevice(16 * MIB, tmp_path_factory.mktemp("drive")) as loop,
        open_guarded(loop.path, own=True) as target,
    ):
        yield target


def blocks(*numbers: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array(numbers, np.uint64) * np.uint64(BLOCK), np.full(len(numbers), BLOCK, np.uint64)


def test_what_is_written_is_read_back_at_its_place(target: Target) -> None:
    pool = PayloadPool(4, BLOCK, seed=9)
    offset, length = blocks(3, 0, 2, 1, 7, 5, 6, 4)
    with Engine(target.fd, 4, BLOCK, pool) as engine:
        engine.run(offset, length, write=True)
    staging = np.zeros(8 * BLOCK, np.uint8)
    with Engine(target.fd, 1, BLOCK) as engine:
        engine.run(*blocks(*range(8)), staging=staging)
    for place in range(8):
        data = staging[place * BLOCK : (place + 1) * BLOCK]
        assert pool.wrong_sectors(data, place * BLOCK) == 0
    # Every write was stamped as its own: nothing for a drive to deduplicate.
    stamps = staging.view(np.uint64).reshape(8, -1)[:, 2]
    assert len(set(stamps.tolist())) == 8


@pytest.mark.parametrize("depth", [1, 3, 32])
def test_every_command_completes_once_with_a_latency(target: Target, depth: int) -> None:
    offset, length = blocks(*(i % 200 for i in range(500)))
    with Engine(target.fd, depth, BLOCK) as engine:
        driven = engine.run(offset, length)
    assert len(driven.latency_s) == 500
    assert np.all(driven.latency_s > 0)
    assert driven.latency_s.max() <= driven.seconds
    points = driven.latency_us()
    assert points["p50"] <= points["p99"] <= points["max"]


def test_the_window_waits_for_the_layer_before_the_last() -> None:
    layer = np.array([0, 0, 1, 2, 2, 3, 3])
    # Layers 0 and 1 start at once; 2 waits for both reads of 0; 3 for the read of 1 as well.
    assert window_barriers(layer).tolist() == [0, 0, 0, 2, 2, 3, 3]


def test_barriers_are_respected(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen from the submissions: no command of layer l + 2 before all of layer l ended."""
    layer = np.repeat(np.arange(6), 5)
    offset, length = blocks(*range(30))
    plan = Plan(offset, length, layer, int(length.sum()))
    with Engine(target.fd, 32, BLOCK) as engine:
        ended: set[int] = set()
        reap, submit = engine.ring.reap, engine.submit

        def watched_reap(*args: int, **kwargs: float) -> np.ndarray:
            done = reap(*args, **kwargs)
            ended.update(done["user_data"].tolist())
            return done

        def watched_submit(batch: np.ndarray) -> None:
            for index in batch["user_data"].tolist():
                waited = np.flatnonzero(layer <= layer[index] - 2)
                assert ended.issuperset(waited.tolist())
            submit(batch)

        monkeypatch.setattr(engine.ring, "reap", watched_reap)
        monkeypatch.setattr(engine, "submit", watched_submit)
        engine.run_plan(plan, window=True)
    assert len(ended) == 30


def test_a_read_error_is_named(tmp_path: Path) -> None:
    with LoopDevice(4 * MIB, tmp_path) as loop, open_guarded(loop.path, own=True) as target:
        os.ftruncate(loop.backing_fd, MIB)
        offset, length = blocks(40)
        with (
            Engine(target.fd, 1, BLOCK) as engine,
            pytest.raises(MeasurementError, match="read failed: Input/output error"),
        ):
            engine.run(offset, length)


def test_reads_beyond_the_end_are_short_and_an_error(target: Target) -> None:
    offset = np.array([16 * MIB - 4096], np.uint64)
    with (
        Engine(target.fd, 1, BLOCK) as engine,
        pytest.raises(MeasurementError, match="short read: 4096 of 65536"),
    ):
        engine.run(offset, np.array([BLOCK], np.uint64))
