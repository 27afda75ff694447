from __future__ import annotations

import numpy as np
import pytest

from harness.core.ops import Op
from harness.endurance.inputs import Batch
from harness.endurance.shape import Shape
from tests.endurance.inputs import MIB, writes


def test_one_sequential_writer() -> None:
    shape = Shape(64 * MIB)
    shape.add(writes(np.arange(64) * MIB, MIB))
    assert shape.chunk_bytes == 64 * MIB
    assert shape.append_streams == pytest.approx(1, abs=0.05)
    assert shape.touched_share == 1.0


@pytest.mark.parametrize("streams", [2, 8])
def test_several_writers_at_once(streams: int) -> None:
    shape = Shape(64 * MIB)
    steps = np.arange(0, 4 * MIB, 65536)
    shape.add(writes((steps[:, None] + np.arange(streams) * 8 * MIB).ravel(), 65536))
    assert shape.append_streams == pytest.approx(streams, rel=0.05)
    assert shape.chunk_bytes == 4 * MIB
    assert shape.touched_share == pytest.approx(streams * 4 / 64)


def test_the_median_byte_is_in_the_longer_runs() -> None:
    shape = Shape(64 * MIB)
    scattered = np.arange(1000) * 8192  # a thousand lone pages
    shape.add(writes(scattered, 4096))
    shape.add(writes(np.array([32 * MIB]), 16 * MIB))
    assert shape.chunk_bytes == 16 * MIB
    assert shape.writes == 1001


def test_what_is_not_a_write_is_counted_apart() -> None:
    shape = Shape(MIB)
    assert shape.append_streams is None
    assert shape.chunk_bytes is None
    op = np.array([Op.READ, Op.DISCARD, Op.DISCARD, Op.FLUSH], np.uint8)
    shape.add(Batch(np.zeros(4, np.uint64), np.full(4, 4096, np.uint64), op))
    assert (shape.reads, shape.discards, shape.writes) == (1, 2, 0)
    assert shape.touched_share == 0.0
