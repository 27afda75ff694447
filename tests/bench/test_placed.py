"""Sessions laid out by real stores: complete, where the store says, in the promised shape."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from harness.bench.drive import Engine
from harness.bench.grid import Placement
from harness.bench.placed import WRITE_BYTES, Placed, Region, needed_bytes, session_bytes
from harness.bench.plans import make_plan
from harness.bench.traffic import BLOCK_TOKENS, Traffic
from harness.core.errors import UsageError
from harness.device.buffers import PayloadPool
from harness.device.guard import open_guarded
from harness.device.loop import LoopDevice
from harness.stores.models import load_model

MIB = 1 << 20


def placement(store: str, **changes: object) -> Placement:
    facts = {"store": store, "model": "llama-3.1-8b-tp8", "context_tokens": 2048, "turns": 1,
             "sessions": 1, "age": 1.0}  # fmt: skip
    return Placement.model_validate({**facts, **changes})


class Nowhere:
    """An engine that writes nothing, for what the store alone decides."""

    def run(self, offset: np.ndarray, length: np.ndarray, *, write: bool) -> None:
        self.end = int((offset + length).max())


@pytest.fixture
def nowhere() -> Iterator[Engine]:
    yield Nowhere()  # type: ignore[misc]


def test_a_contiguous_session_is_one_range_a_layer_and_turn(nowhere: Engine) -> None:
    for turns in (1, 4):
        where = placement("session-contiguous", turns=turns)
        placed = Placed(where, Region(8 * MIB, needed_bytes(where)), seed=3)
        placed.write(nowhere)
        (found,) = placed.sessions
        assert len(found.offset) == 32 * turns  # layers x turns
        assert found.wanted_bytes == session_bytes(where, placed.model) == 32 * MIB
        assert int(found.offset.min()) >= 8 * MIB


def test_a_slot_store_scatters_layers_x_blocks_and_by_age(nowhere: Engine) -> None:
    plans = {}
    for age in (0.0, 2.0):
        where = placement("lmcache-raw-block", age=age)
        placed = Placed(where, Region(0, needed_bytes(where)), seed=3)
        placed.write(nowhere)
        (found,) = placed.sessions
        assert len(found.offset) == 32 * 8 * 2  # layers x chunks x (K, V)
        plans[age] = make_plan(found, "whole", gap_bytes=64 << 10, read_bytes=1 << 40)
    # In a fresh store the slots follow each other and one read (through headers) fetches all.
    assert len(plans[0.0]) == 1
    assert len(plans[2.0]) > 1


def test_age_is_what_others_wrote(nowhere: Engine) -> None:
    where = placement("lmcache-raw-block", age=1.5)
    region = Region(0, needed_bytes(where))
    placed = Placed(where, region, seed=1)
    placed.write(nowhere)
    own = session_bytes(where, placed.model)
    assert placed.written_bytes - own == pytest.approx(1.5 * region.size_bytes, rel=0.1)
    assert placed.report()["written_bytes"] == placed.written_bytes


@pytest.mark.parametrize("store", ["session-contiguous", "lmcache-raw-block"])
@pytest.mark.parametrize(("sessions", "turns"), [(1, 1), (3, 5)])
def test_sessions_survive_others_at_the_needed_size(
    nowhere: Engine, store: str, sessions: int, turns: int
) -> None:
    where = placement(store, sessions=sessions, turns=turns, age=2.0)
    placed = Placed(where, Region(0, needed_bytes(where)), seed=5)
    placed.write(nowhere)
    each = session_bytes(where, placed.model) // sessions
    assert [found.wanted_bytes for found in placed.sessions] == [each] * sessions
    spans = np.concatenate([found.offset for found in placed.sessions])
    assert len(np.unique(spans)) == len(spans)  # no two sessions share a byte


def test_a_region_that_is_too_small_says_what_was_kept(nowhere: Engine) -> None:
    where = placement("lmcache-raw-block", context_tokens=8192)
    with pytest.raises(UsageError, match=r"kept only|too small"):
        Placed(where, Region(0, 64 * MIB), seed=1).write(nowhere)


def test_equal_seeds_give_equal_requests_and_prefixes_chain() -> None:
    where = placement("lmcache-raw-block", turns=2)

    def requests(seed: int) -> list:
        return list(Traffic(where, 1 << 28, 16384.0, seed).requests())

    one, again, other = requests(1), requests(1), requests(2)
    assert all(np.array_equal(a.ids, b.ids) for a, b in zip(one, again, strict=True))
    assert not np.array_equal(one[0].ids, other[0].ids)
    first, second = (r for r in one if r.session == 1)
    assert len(second.ids) == 2048 // BLOCK_TOKENS
    assert np.array_equal(second.ids[: len(first.ids)], first.ids)
    whole = np.concatenate([r.ids for r in one if r.turn == 0])
    assert len(np.unique(whole)) == len(whole)  # no block is shared by accident
    assert all(a.time_s < b.time_s for a, b in pairwise(one))


@pytest.mark.root
def test_what_a_plan_reads_was_written(tmp_path: Path) -> None:
    """Every page of the plan holds data: reading unmapped flash would be free, and false."""
    where = placement("lmcache-raw-block")
    size = needed_bytes(where)
    with LoopDevice(size, tmp_path) as loop, open_guarded(loop.path, own=True) as target:
        pool = PayloadPool(8, WRITE_BYTES, seed=1)
        with Engine(target.fd, 8, WRITE_BYTES, pool) as engine:
            placed = Placed(where, Region(0, size), seed=1)
            placed.write(engine)
        plan = make_plan(placed.sessions[0], "whole", gap_bytes=64 << 10, read_bytes=MIB)
        with open(loop.path, "rb") as file:
            for offset, length in zip(plan.offset.tolist(), plan.length.tolist(), strict=True):
                file.seek(offset)
                data = np.frombuffer(file.read(length), np.uint8)
                # Headers between the chunks are read along; they were written too.
                assert pool.wrong_sectors(data, offset) == 0


def test_states_of_hybrid_models_are_part_of_the_plan(nowhere: Engine) -> None:
    where = placement("session-contiguous", model="qwen3.5-27b", context_tokens=512, age=0.5)
    placed = Placed(where, Region(0, needed_bytes(where)), seed=1)
    placed.write(nowhere)
    (found,) = placed.sessions
    model = load_model("qwen3.5-27b")
    state = found.layer == len(model.layer_bytes)
    assert int(found.length[state].sum()) >= model.state_bytes


def shipped_stores() -> list[str]:
    from harness.core.assets import asset_dir

    return sorted(path.stem for path in (asset_dir("workloads") / "stores").glob("*.yaml"))


NEVER_EVICT = {"lmcache-raw-block-legacy", "sglang-file", "vllm-fs"}
"""Once these are full they store nothing more: an aged one cannot hold a fresh session."""


@pytest.mark.parametrize("store", shipped_stores())
def test_every_shipped_store_can_be_benchmarked_or_says_why(nowhere: Engine, store: str) -> None:
    where = placement(store, turns=2, age=1.0)
    size = needed_bytes(where)
    placed = Placed(where, Region(0, size), seed=2)
    if store in NEVER_EVICT:
        with pytest.raises(UsageError, match="kept only 0 B"):
            placed.write(nowhere)
        return
    placed.write(nowhere)
    assert nowhere.end <= size  # type: ignore[attr-defined]
    (found,) = placed.sessions
    assert found.wanted_bytes >= session_bytes(where, placed.model)
    layered = make_plan(found, "layers", gap_bytes=64 << 10, read_bytes=MIB)
    whole = make_plan(found, "whole", gap_bytes=64 << 10, read_bytes=MIB)
    assert layered.wanted_bytes == whole.wanted_bytes
    assert len(layered) >= len(whole)


def test_a_bucket_store_s_layers_are_cut_where_its_values_lie(nowhere: Engine) -> None:
    """Read pages cover every value, whose start the store alone knows, and are more than it."""
    where = placement("mooncake-bucket")
    placed = Placed(where, Region(0, needed_bytes(where)), seed=2)
    placed.write(nowhere)
    (found,) = placed.sessions
    assert found.wanted_bytes == session_bytes(where, placed.model)
    # Keys of 64 bytes before each value: hardly one starts on a page.
    assert np.mean(found.offset % np.uint64(4096) != 0) > 0.9
    chunk_bytes = placed.model.chunk_bytes(placed.spec.chunk_tokens)
    starts = np.sort(found.offset[found.layer == 0].astype(np.int64))
    # Values of one bucket are a record apart.
    assert (chunk_bytes + 64) in np.diff(starts)
    plan = make_plan(found, "layers", gap_bytes=0, read_bytes=MIB)
    each = chunk_bytes // 32
    assert plan.amplification == pytest.approx((each + 4096) / each, rel=0.05)
