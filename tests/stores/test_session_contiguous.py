"""The session-contiguous layout: segments by layer, whole sessions reclaimed, addresses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import UsageError
from harness.core.ops import Op
from harness.stores.base import op_stream
from harness.stores.models import load_model
from harness.stores.ops import ObjectClass
from harness.stores.registry import load_store_spec, make_store
from harness.stores.requests.form import Request, RequestBatch, RequestForm
from harness.stores.requests.load import open_requests
from harness.stores.session_contiguous import (
    MEDIUM_SSD,
    SessionContiguous,
    SessionContiguousStore,
    pack_address,
    unpack_address,
)

FORM = RequestForm(block_tokens=256)
MODEL = "llama-3.1-8b-tp8"
LAYERS = 32
RANGE = 256 * 512  # one chunk in one layer


def request(session: int, turn: int, ids: list[int]) -> Request:
    tokens = 256 * len(ids)
    return Request(
        FORM, 1.0, session, turn, tokens, 0, tokens, np.array(ids, dtype=np.uint64)
    )  # fmt: skip


def store_of(extents: int, tokens: int = 2048, **changes: object) -> SessionContiguousStore:
    spec = load_store_spec("session-contiguous").model_copy(
        update={"extent_tokens": tokens, **changes}
    )
    made = make_store(spec, extents * tokens * 16384, MODEL)
    assert isinstance(made, SessionContiguousStore)
    return made


def test_a_turn_is_one_segment_with_each_layer_in_one_range() -> None:
    ops = store_of(4).serve(request(0, 0, [1, 2, 3]))
    assert ops["op"].tolist() == [Op.WRITE] * LAYERS
    assert ops["layer"].tolist() == list(range(LAYERS))
    assert ops["offset"].tolist() == [layer * 3 * RANGE for layer in range(LAYERS)]
    assert set(ops["length"].tolist()) == {3 * RANGE}


def test_a_restore_reads_layers_times_turns_ranges() -> None:
    store = store_of(4)
    store.serve(request(0, 0, [1, 2, 3]))
    store.serve(request(0, 1, [1, 2, 3, 4, 5]))
    ops = store.serve(request(0, 2, [1, 2, 3, 4, 5]))
    assert ops["op"].tolist() == [Op.READ] * (2 * LAYERS)
    assert int(ops["length"].sum()) == 5 * LAYERS * RANGE
    first = ops[ops["layer"] == 7]
    second = LAYERS * 3 * RANGE  # where the second turn's segment begins
    assert first["offset"].tolist() == [7 * 3 * RANGE, second + 7 * 2 * RANGE]


def test_part_of_a_segment_is_read_from_its_place_in_each_layer() -> None:
    store = store_of(4)
    store.serve(request(0, 0, [1, 2, 3]))
    ops = store.serve(request(1, 0, [1, 2]))
    assert ops["offset"].tolist() == [layer * 3 * RANGE for layer in range(LAYERS)]
    assert set(ops["length"].tolist()) == {2 * RANGE}


def test_a_session_that_outgrows_its_extent_chains_another() -> None:
    store = store_of(4)
    store.serve(request(0, 0, [1, 2, 3, 4, 5, 6]))
    ops = store.serve(request(0, 1, [*range(1, 13)]))
    report = store.report()
    assert (report["chained_extents"], report["used_extents"], report["segments"]) == (1, 2, 3)
    writes = ops[(ops["op"] == Op.WRITE) & (ops["layer"] == 0)]
    assert writes["length"].tolist() == [2 * RANGE, 4 * RANGE]
    assert writes["offset"].tolist()[1] == store.extent_bytes
    again = store.serve(request(0, 2, [*range(1, 13)]))
    assert int(again["length"].sum()) == 12 * LAYERS * RANGE


def test_the_session_that_was_idle_longest_goes_whole() -> None:
    store = store_of(4, high_watermark=0.75)
    for session in range(3):
        store.serve(request(session, 0, [10 * session + 1, 10 * session + 2]))
    store.serve(request(0, 1, [1, 2]))
    store.serve(request(3, 0, [31]))
    assert store.report()["evictions"] == 1
    assert len(store.serve(request(0, 2, [1, 2]))) == LAYERS  # session 0 was read and stays
    gone = store.serve(request(1, 1, [11, 12]))
    assert set(gone["op"].tolist()) == {Op.WRITE}


def test_appends_of_several_sessions_interleave_range_by_range() -> None:
    store = store_of(8, append_streams=2)
    batch = [request(0, 0, [1]), request(1, 0, [11])]
    ops = store.serve_batch(RequestBatch.of(batch))
    assert ops["session"].tolist() == [0, 1] * LAYERS
    assert ops["layer"].tolist() == [layer for layer in range(LAYERS) for _ in range(2)]


def test_a_hybrid_keeps_the_state_behind_the_segment_and_hits_end_there() -> None:
    model = load_model("qwen3.5-27b")
    store = make_store("session-contiguous", 8 << 30, model)
    first = store.serve(request(0, 0, [1, 2, 3]))
    state = first[first["object_class"] == ObjectClass.FIXED_STATE]
    assert len(state) == 1
    assert int(state["length"][0]) == -(-model.state_bytes // 4096) * 4096
    assert int(state["offset"][0]) == 3 * model.chunk_bytes(256)
    part = store.serve(request(1, 0, [1, 2]))  # no state ends after chunk 2
    assert set(part["op"].tolist()) == {Op.WRITE}
    whole = store.serve(request(0, 1, [1, 2, 3, 4]))
    reads = whole[whole["op"] == Op.READ]
    assert sorted(set(reads["object_class"].tolist())) == [0, 1]


def test_a_life_reads_only_what_was_last_written_there() -> None:
    store = store_of(24)
    page_owner = np.full(store.capacity_bytes // 4096, -1, np.int64)
    owners: dict[tuple[int, int], int] = {}
    for ops in op_stream(store, open_requests("chat", seed=9), limit=1500):
        for row in ops:
            pages = slice(int(row["offset"]) // 4096, int(row["offset"] + row["length"]) // 4096)
            if row["op"] == Op.WRITE:
                number = owners.setdefault((int(row["session"]), int(row["key"])), len(owners))
                page_owner[pages] = number * LAYERS + int(row["layer"])
            else:
                assert np.all(page_owner[pages] % LAYERS == int(row["layer"]))
                assert len(np.unique(page_owner[pages])) == 1
    report = store.report()
    assert report["evictions"] > 24
    assert report["failed_puts"] == 0


def test_a_session_lies_where_its_addresses_say() -> None:
    spec = SessionContiguous(layout="session-contiguous", extent_tokens=4096, node=5)
    store = make_store(spec, 64 << 30, MODEL)
    assert isinstance(store, SessionContiguousStore)
    written: dict[int, list[int]] = {}
    for ops in op_stream(store, open_requests("chat", seed=9), limit=60):
        for row in ops[(ops["op"] == Op.WRITE) & (ops["layer"] == 0)]:
            written.setdefault(int(row["session"]), []).append(int(row["offset"]))
    assert len(written) > 10
    for session, offsets in written.items():
        found = [unpack_address(int(address)) for address in store.addresses(session)]
        assert found == [(MEDIUM_SSD, 5, offset) for offset in offsets]
    assert len(store.addresses(10**6)) == 0


def test_a_device_beyond_48_bits_is_refused() -> None:
    with pytest.raises(UsageError, match=r"offset \d+ does not fit 48 bits"):
        make_store("session-contiguous", (1 << 48) + (1 << 40), MODEL)


def test_a_device_too_small_for_an_extent_is_refused() -> None:
    with pytest.raises(UsageError, match="one session's extent"):
        make_store("session-contiguous", 100 << 20, MODEL)


@given(st.integers(0, 15), st.integers(0, 4095), st.integers(0, 2**48 - 1))
def test_addresses_survive_packing(medium: int, node: int, offset: int) -> None:
    address = pack_address(medium, node, offset)
    assert address < 2**64
    assert unpack_address(address) == (medium, node, offset)


def test_an_address_has_4_12_and_48_bits() -> None:
    assert pack_address(MEDIUM_SSD, 0, 0) == 1 << 60
    assert pack_address(0, 1, 0) == 1 << 48
    for bad in ((16, 0, 0), (0, 4096, 0), (0, 0, 1 << 48), (0, 0, -1)):
        with pytest.raises(UsageError, match="does not fit"):
            pack_address(*bad)
