from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import UsageError
from harness.core.ops import Op
from harness.endurance.arrange import SWAP_ONE_IN, Looped, Perturbed, Tiled, as_commands
from harness.endurance.inputs import Batch
from tests.endurance.inputs import MIB, Rows, writes

TRACE = Rows([writes(np.arange(4) * 4096, 4096), writes(np.arange(4, 6) * 4096, 4096)])


def test_a_loop_marks_its_seams() -> None:
    looped = Looped(TRACE, 3)
    parts = list(looped.batches())
    assert [part.ends_repeat for part in parts] == [False, True] * 3
    assert not looped.endless
    assert Looped(TRACE, None).endless
    assert looped.labels == ["the trace was repeated: artificial seam at each end"]


def test_a_perturbation_swaps_neighbours_and_keeps_all() -> None:
    rows = 5000
    plain = Rows([writes(np.arange(rows) * 4096, 4096)])
    first, again, other = (
        next(Perturbed(plain, seed).batches()).offset // 4096 for seed in (1, 1, 2)
    )
    assert first.tolist() == again.tolist() != other.tolist()
    assert sorted(first.tolist()) == list(range(rows))
    moved = np.count_nonzero(first != np.arange(rows))
    assert 0 < moved <= 2 * rows / SWAP_ONE_IN
    assert np.abs(first.astype(np.int64) - np.arange(rows)).max() < 5


def test_tiles_lie_side_by_side_each_at_its_phase() -> None:
    tiled = Tiled(TRACE, 4 * MIB + 4096, seed=1)
    assert (tiled.tiles, tiled.tile_bytes) == (4, MIB)
    part = next(tiled.batches())
    rounds = part.offset.reshape(-1, 4)
    assert (rounds // MIB == np.arange(4)).all()
    within = (rounds % MIB // 4096).astype(int)
    assert (np.diff(within, axis=0) % 6 == 1).all()
    assert len(set(within[0].tolist())) > 1
    again = next(Tiled(TRACE, 4 * MIB, seed=1).batches()).offset
    other = next(Tiled(TRACE, 4 * MIB, seed=2).batches()).offset
    assert part.offset.tolist() == again.tolist() != other.tolist()
    assert "4 tiles of 1048576 B at phases of seed 1" in tiled.labels[0]


def test_tiles_go_on_for_ever() -> None:
    tiled = Tiled(TRACE, 2 * MIB, seed=3)
    parts = list(itertools.islice(tiled.batches(), 5))
    assert all(part.ends_repeat for part in parts)
    assert parts[0].offset.tolist() == parts[4].offset.tolist()


def test_a_trace_larger_than_the_namespace_cannot_be_tiled() -> None:
    with pytest.raises(UsageError, match="reaches 24576 B, the namespace ends at 16384 B"):
        Tiled(TRACE, 16384, seed=1)


def test_calls_of_one_worker_follow_each_other_and_those_of_two_take_turns() -> None:
    calls = writes([0, 100 * 4096], 4 * 4096)
    alone = as_commands(calls, np.array([1, 1]), 4096)
    assert (alone.offset // 4096).tolist() == [0, 1, 2, 3, 100, 101, 102, 103]
    both = as_commands(calls, np.array([0, 1]), 4096)
    assert (both.offset // 4096).tolist() == [0, 100, 1, 101, 2, 102, 3, 103]


def test_a_call_waits_for_its_worker_and_not_for_others() -> None:
    offset = np.array([0, 100, 200]) * 4096
    length = np.array([4, 1, 1], np.uint64) * np.uint64(4096)
    calls = Batch(offset.astype(np.uint64), length, np.full(3, Op.WRITE, np.uint8))
    found = as_commands(calls, np.array([0, 1, 0]), 4096)
    assert (found.offset // 4096).tolist() == [0, 100, 1, 2, 3, 200]


@given(
    st.lists(
        st.tuples(st.integers(0, 1000), st.integers(1, 50_000), st.booleans(), st.integers(0, 3)),
        min_size=1,
        max_size=30,
    )
)
def test_cutting_keeps_every_byte(rows: list[tuple[int, int, bool, int]]) -> None:
    offset, length, discard, worker = (np.array(c) for c in zip(*rows, strict=True))
    op = np.where(discard, Op.DISCARD, Op.WRITE).astype(np.uint8)
    kind = np.arange(len(rows), dtype=np.uint8)
    calls = Batch(offset.astype(np.uint64), length.astype(np.uint64), op, classes=kind)
    found = as_commands(calls, worker, 4096)
    assert found.classes is not None
    for row in range(len(rows)):
        mine = found.classes == row
        pieces = sorted(zip(found.offset[mine].tolist(), found.length[mine].tolist(), strict=True))
        assert pieces[0][0] == offset[row]
        assert sum(n for _, n in pieces) == length[row]
        for (start, n), (following, _) in itertools.pairwise(pieces):
            assert start + n == following
            assert n == 4096
        assert discard[row] is not np.True_ or len(pieces) == 1
