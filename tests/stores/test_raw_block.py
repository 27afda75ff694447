"""The raw_block model: placement, reuse, eviction, and that it says what it did."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from harness.core.errors import UsageError
from harness.core.ops import Op
from harness.stores.base import op_stream
from harness.stores.lmcache_raw_block import RawBlockStore
from harness.stores.models import load_model
from harness.stores.ops import ObjectClass
from harness.stores.registry import load_store_spec, make_store
from harness.stores.requests.form import Request, RequestForm
from harness.stores.requests.load import open_requests

FORM = RequestForm(block_tokens=256)
CHUNK = 4 << 20
SLOT = CHUNK + 4096
META = 256 << 20
MODEL = "llama-3.1-8b-tp8"


def request(time_s: float, session: int, turn: int, ids: list[int]) -> Request:
    tokens = 256 * len(ids)
    return Request(FORM, time_s, session, turn, tokens, 0, tokens, np.array(ids, dtype=np.uint64))


def store_of(slots: int, name: str = "lmcache-raw-block") -> RawBlockStore:
    meta = 128 << 20 if name.endswith("legacy") else META
    made = make_store(name, meta + slots * SLOT, MODEL)
    assert isinstance(made, RawBlockStore)
    return made


def payload_slots(ops: np.ndarray, op: Op) -> list[int]:
    rows = ops[(ops["op"] == op) & (ops["object_class"] == ObjectClass.FULL_ATTENTION)]
    assert np.all((rows["offset"] - META - 4096) % SLOT == 0)
    return ((rows["offset"] - META - 4096) // SLOT).tolist()


def test_a_chunk_is_a_header_and_a_payload_in_ascending_slots() -> None:
    store = store_of(10)
    assert len(store.serve(request(1, 0, 0, [1, 2, 3]))) == 0  # the workers have it
    ops = store.close()
    data = ops[ops["object_class"] != ObjectClass.METADATA]
    assert data["offset"].tolist() == [
        META, META + 4096, META + SLOT, META + SLOT + 4096, META + 2 * SLOT,
        META + 2 * SLOT + 4096,
    ]  # fmt: skip
    assert data["length"].tolist() == [4096, CHUNK] * 3
    assert data["key"].tolist() == [1, 1, 2, 2, 3, 3]
    meta = ops[ops["object_class"] == ObjectClass.METADATA]
    assert meta["offset"].tolist() == [4096, 0]  # copy A: JSON, then its header block


def test_hits_are_read_whole_and_never_written_again() -> None:
    store = store_of(10)
    store.serve(request(1, 0, 0, [1, 2, 3]))
    ops = store.serve(request(5, 0, 1, [1, 2, 3, 4]))
    assert payload_slots(ops, Op.READ) == [0, 1, 2]
    assert payload_slots(ops, Op.WRITE) == [0, 1, 2]
    assert payload_slots(store.close(), Op.WRITE) == [3]
    assert store.report()["chunks_hit"] == 3


def test_two_workers_interleave_slot_by_slot() -> None:
    store = store_of(12)
    store.serve(request(1, 0, 0, [1, 2, 3]))
    early = store.serve(request(1, 1, 0, [11, 12, 13]))
    ops = np.concatenate((early, store.close()))
    headers = ops[ops["object_class"] == ObjectClass.HEADER]
    slots = ((headers["offset"] - META) // SLOT).tolist()
    assert slots == [0, 1, 2, 3, 4, 5]
    assert headers["key"].tolist() == [1, 11, 2, 12, 3, 13]
    assert len(set(headers["stream"].tolist())) == 2


def test_freed_slots_are_reused_last_freed_first_and_later_chunks_go_first() -> None:
    store = store_of(10)
    store.serve(request(1.0, 0, 0, [1, 2, 3, 4]))
    store.serve(request(3.0, 1, 0, [11, 12, 13, 14]))
    # 8 of 10 slots: at the next tick one key (20 % of 8) goes, the last chunk of session 0
    store.serve(request(5.5, 2, 0, [21, 22, 23]))
    report = store.report()
    assert (report["evicted"], report["evictions"]) == (1, 1)
    assert payload_slots(store.close(), Op.WRITE) == [3, 8, 9]
    hit = store.serve(request(5.8, 0, 1, [1, 2, 3, 4]))
    assert payload_slots(hit, Op.READ) == [0, 1, 2]


def test_without_eviction_puts_fail_once_full() -> None:
    store = store_of(3, "lmcache-raw-block-legacy")
    store.serve(request(1, 0, 0, [1, 2, 3, 4, 5]))
    store.serve(request(100, 1, 0, [6]))
    store.close()
    report = store.report()
    assert (report["failed_puts"], report["used_slots"], report["evicted"]) == (3, 3, 0)
    assert report["writes"]["by_class"]["full-attention"]["ops"] == 3


def test_of_a_uring_batch_that_does_not_fit_the_chunks_without_a_slot_fail() -> None:
    store = store_of(4, "lmcache-raw-block-uring")
    store.serve(request(1.0, 0, 0, [1, 2]))
    store.serve(request(1.1, 1, 0, [11, 12, 13]))
    ops = store.close()
    report = store.report()
    assert (report["failed_puts"], report["used_slots"]) == (1, 4)
    assert not (ops["key"] == 13).any()


def test_uring_takes_the_slots_of_a_batch_in_order_and_begins_them_in_about_that_order() -> None:
    store = store_of(200, "lmcache-raw-block-uring")
    store.serve(request(1.0, 0, 0, list(range(1, 61))))
    ops = store.close()
    headers = ops[ops["object_class"] == ObjectClass.HEADER]
    slots = (headers["offset"].astype(int) - META) // SLOT
    assert slots.tolist() == (headers["key"].astype(int) - 1).tolist()
    late = np.abs(slots - np.arange(60))
    assert 0 < int(late.max()) <= 2


def test_a_hybrid_hit_must_end_where_the_state_is() -> None:
    model = load_model("qwen3.5-27b")
    store = make_store("lmcache-raw-block", 20 << 30, model)
    form = RequestForm(block_tokens=256)
    first = Request(form, 1, 0, 0, 512, 0, 512, np.array([1, 2], dtype=np.uint64))
    other = Request(form, 9, 1, 0, 512, 0, 256, np.array([1, 7], dtype=np.uint64))
    again = Request(form, 19, 0, 1, 768, 0, 256, np.array([1, 2, 3], dtype=np.uint64))
    store.serve(first)
    store.serve(other)  # chunk 1 is there, but no state ends at it
    store.serve(again)
    store.close()
    report = store.report()
    assert report["chunks_hit"] == 2
    assert report["chunks_lost_to_missing_state"] == 1
    states = report["writes"]["by_class"]["fixed-state"]
    assert states["bytes"] == pytest.approx(3 * model.state_bytes, rel=1e-3)


def test_too_small_a_device_and_too_small_a_slot_are_refused() -> None:
    with pytest.raises(UsageError, match="too small") as caught:
        make_store("lmcache-raw-block", META + SLOT - 1, MODEL)
    assert "larger device" in str(caught.value.fix)
    spec = load_store_spec("lmcache-raw-block").model_copy(update={"slot_bytes": 1 << 20})
    with pytest.raises(UsageError, match="does not fit slot_bytes") as caught:
        make_store(spec, 1 << 40, MODEL)
    assert f"slot_bytes: {SLOT} or more" in str(caught.value.fix)
    with pytest.raises(UsageError, match=r"did you mean .*lmcache-raw-block"):
        make_store("lmcache-rawblock", 1 << 40, MODEL)


@pytest.mark.parametrize("name", ["lmcache-raw-block", "lmcache-raw-block-uring"])
def test_a_whole_life_stays_inside_the_device_and_never_overlaps(name: str) -> None:
    store = store_of(60, name)
    owner: dict[int, int] = {}
    written = 0
    for ops in islice(op_stream(store, open_requests("chat", seed=3), limit=3000), None):
        assert int((ops["offset"] + ops["length"]).max()) <= store.capacity_bytes
        for row in ops[ops["object_class"] == ObjectClass.FULL_ATTENTION]:
            offset, key = int(row["offset"]), int(row["key"])
            assert (offset - META - 4096) % SLOT == 0
            if row["op"] == Op.READ:
                assert owner[offset] == key  # what is read is what was last written there
            else:
                owner[offset] = key
                written += 1
    report = store.report()
    assert written == report["writes"]["by_class"]["full-attention"]["ops"] > 5 * 60
    assert report["evicted"] > 60
    assert report["used_slots"] <= 60


def test_reads_left_out_change_nothing_that_is_written() -> None:
    streams = []
    for reads in (True, False):
        store = store_of(60)
        ops = np.concatenate(
            list(op_stream(store, open_requests("chat", seed=3), limit=500, reads=reads))
        )
        streams.append(ops[ops["op"] == Op.WRITE])
    assert np.array_equal(streams[0], streams[1])
