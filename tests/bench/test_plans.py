"""Read plans: every wanted byte once, in commands of the right size, in the right order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.bench.plans import Ranges, by_layer, interleave, make_plan
from harness.core.errors import UsageError
from harness.core.ops import PAGE_BYTES, Op
from harness.stores.models import load_model
from harness.stores.ops import ALL_LAYERS, ObjectClass, empty_ops

KIB = 1024


def ranges(*rows: tuple[int, int, int]) -> Ranges:
    offset, length, layer = zip(*rows, strict=True)
    return Ranges(
        np.array(offset, np.uint64), np.array(length, np.uint64), np.array(layer, np.int64)
    )


rows = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=40
)


@given(rows, st.sampled_from([0, 64 * KIB]), st.sampled_from([16 * KIB, 1 << 20]))
def test_every_wanted_byte_is_read_by_some_command_of_its_layer(
    units: list[tuple[int, int, int]], gap: int, longest: int
) -> None:
    wanted = ranges(*((start * 3000, size * 1000, layer) for start, size, layer in units))
    for access in ("whole", "layers"):
        plan = make_plan(wanted, access, gap_bytes=gap, read_bytes=longest)  # type: ignore[arg-type]
        assert int(plan.length.max()) <= longest
        assert not np.any(plan.offset % np.uint64(PAGE_BYTES))
        assert not np.any(plan.length % np.uint64(PAGE_BYTES))
        assert list(plan.layer) == sorted(plan.layer)
        names = sorted(set(wanted.layer.tolist()))
        for start, size, layer in zip(wanted.offset, wanted.length, wanted.layer, strict=True):
            mine = plan.layer == (0 if access == "whole" else names.index(int(layer)))
            low, high = plan.offset[mine], plan.offset[mine] + plan.length[mine]
            page = int(start) // PAGE_BYTES * PAGE_BYTES
            while page < int(start) + int(size):
                assert np.sum((low <= page) & (page + PAGE_BYTES <= high)) == 1
                page += PAGE_BYTES


def test_neighbours_join_and_small_gaps_are_read_through() -> None:
    wanted = ranges(
        (0, 64 * KIB, 0), (64 * KIB, 64 * KIB, 0),  # neighbours
        (160 * KIB, 4 * KIB, 0),  # behind a gap of 32 KiB
        (228 * KIB, 4 * KIB, 0),  # behind a gap of exactly 64 KiB
    )  # fmt: skip
    plan = make_plan(wanted, "whole", gap_bytes=64 * KIB, read_bytes=1 << 20)
    assert plan.offset.tolist() == [0, 228 * KIB]
    assert plan.length.tolist() == [164 * KIB, 4 * KIB]
    assert plan.wanted_bytes == 136 * KIB
    assert plan.amplification == pytest.approx(168 / 136)
    without = make_plan(wanted, "whole", gap_bytes=0, read_bytes=1 << 20)
    assert without.amplification == 1.0
    assert len(without) == 3


def test_long_ranges_are_cut_in_order() -> None:
    plan = make_plan(ranges((0, 10 * KIB * 4, 0)), "whole", gap_bytes=0, read_bytes=16 * KIB)
    assert plan.offset.tolist() == [0, 16 * KIB, 32 * KIB]
    assert plan.length.tolist() == [16 * KIB, 16 * KIB, 8 * KIB]


def test_a_chunk_with_keys_before_values_is_two_ranges_a_layer() -> None:
    model = load_model("llama-3.1-8b-tp8")
    chunk = model.chunk_bytes(256)
    ops = empty_ops(2)
    ops["offset"], ops["length"] = [4096, 1 << 30], chunk
    ops["op"], ops["layer"], ops["key"] = Op.READ, ALL_LAYERS, [1, 2]
    ops["object_class"] = ObjectClass.FULL_ATTENTION
    found = by_layer(ops, "lmcache-raw-block", model, 256)
    assert found.wanted_bytes == 2 * chunk
    half = chunk // 64  # K or V of one of 32 layers
    third = found.layer == 3
    assert sorted(found.offset[third].tolist()) == sorted(
        base + part + 3 * half for base in (4096, 1 << 30) for part in (0, chunk // 2)
    )
    assert set(found.length[third].tolist()) == {half}
    # A store that keeps K and V of a layer together has one range a layer and chunk.
    together = by_layer(ops, "kvbm", model, 256)
    assert np.sum(together.layer == 3) == 2


def test_states_come_after_the_layers_and_named_layers_stay() -> None:
    model = load_model("qwen3.5-27b")
    ops = empty_ops(2)
    ops["offset"], ops["length"] = [0, 1 << 20], [64 * KIB, 128 * KIB]
    ops["op"], ops["layer"] = Op.READ, [5, ALL_LAYERS]
    ops["object_class"] = [ObjectClass.FULL_ATTENTION, ObjectClass.FIXED_STATE]
    found = by_layer(ops, "session-contiguous", model, 256)
    assert found.layer.tolist() == [5, len(model.layer_bytes)]


def test_a_chunk_in_pieces_is_cut_across_them() -> None:
    model = load_model("llama-3.1-8b-tp8")
    chunk = model.chunk_bytes(16)  # 256 KiB: 8 KiB a layer
    ops = empty_ops(3)
    ops["offset"], ops["length"] = [1 << 20, 1 << 30, 5 << 30], [20480, chunk - 20480, chunk]
    ops["op"], ops["layer"], ops["key"] = Op.READ, ALL_LAYERS, [7, 7, 8]
    ops["object_class"] = ObjectClass.FULL_ATTENTION
    found = by_layer(ops, "mooncake-bucket", model, 16)
    assert found.wanted_bytes == 2 * chunk
    third = found.layer == 2  # bytes 16384 to 24576: half in each piece
    rows = sorted(zip(found.offset[third].tolist(), found.length[third].tolist(), strict=True))
    assert rows == [((1 << 20) + 16384, 4096), (1 << 30, 4096), ((5 << 30) + 16384, 8192)]


def test_an_unaligned_value_is_cut_from_where_it_starts() -> None:
    model = load_model("llama-3.1-8b-tp8")
    chunk = model.chunk_bytes(16)  # 8 KiB a layer
    head = 1000
    ops = empty_ops(3)
    ops["offset"] = [1 << 20, 1 << 30, 5 << 30]
    # One object in one piece, one that its file's extents cut after 20 KiB.
    ops["length"] = [chunk + PAGE_BYTES, 20480, chunk + PAGE_BYTES - 20480]
    ops["op"], ops["layer"], ops["key"] = Op.READ, ALL_LAYERS, [7, 8, 8]
    ops["object_class"] = ObjectClass.FULL_ATTENTION
    heads = np.array([head, head, head])
    found = by_layer(ops, "mooncake-bucket", model, 16, heads)
    assert found.wanted_bytes == 2 * chunk
    third = found.layer == 2  # bytes 16384 to 24576 of the value
    rows = sorted(zip(found.offset[third].tolist(), found.length[third].tolist(), strict=True))
    assert rows == [
        ((1 << 20) + head + 16384, 8192),
        ((1 << 30) + head + 16384, 20480 - head - 16384),
        (5 << 30, 8192 - (20480 - head - 16384)),
    ]
    # O_DIRECT fetches the three pages that each 8 KiB touch.
    plan = make_plan(found, "layers", gap_bytes=0, read_bytes=1 << 20)
    mine = plan.layer == 2
    assert plan.length[mine].tolist() == [12288, 4096, 8192]
    with pytest.raises(UsageError, match="less than a chunk"):
        by_layer(ops[:1], "mooncake-bucket", model, 16, np.array([5000]))


def test_token_major_chunks_come_whole_with_the_first_layer() -> None:
    model = load_model("llama-3.1-8b-tp8")
    ops = empty_ops(2)
    ops["offset"], ops["length"] = [0, 1 << 20], model.chunk_bytes(64)
    ops["op"], ops["layer"], ops["key"] = Op.READ, ALL_LAYERS, [1, 2]
    ops["object_class"] = ObjectClass.FULL_ATTENTION
    found = by_layer(ops, "sglang-file", model, 64)
    assert found.layer.tolist() == [0, 0]
    assert found.length.tolist() == [model.chunk_bytes(64)] * 2


def test_part_of_a_chunk_cannot_be_cut() -> None:
    model = load_model("llama-3.1-8b-tp8")
    ops = empty_ops(1)
    ops["offset"], ops["length"], ops["layer"], ops["key"] = 0, 4096, ALL_LAYERS, 1
    ops["object_class"] = ObjectClass.FULL_ATTENTION
    with pytest.raises(UsageError, match="less than a chunk"):
        by_layer(ops, "lmcache-raw-block", model, 256)


def test_sessions_take_turns_layer_after_layer() -> None:
    one = make_plan(
        ranges((0, 8192, 0), (1 << 20, 4096, 1)), "layers", gap_bytes=0, read_bytes=4096
    )
    two = make_plan(ranges((1 << 30, 4096, 0)), "layers", gap_bytes=0, read_bytes=4096)
    both = interleave([one, two])
    assert both.offset.tolist() == [0, 1 << 30, 4096, 1 << 20]
    assert both.layer.tolist() == [0, 0, 0, 1]
    assert both.wanted_bytes == one.wanted_bytes + two.wanted_bytes
