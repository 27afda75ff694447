"""LMCache's host memory before the slots: room for all of a request or for none, and who leaves."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.ops import Op
from harness.stores.lmcache_raw_block import LmcacheRawBlock, Memory, RawBlockStore
from harness.stores.ops import OpArray
from harness.stores.registry import load_store_spec, make_store
from harness.stores.requests.form import Request, RequestForm

FORM = RequestForm(block_tokens=256)
CHUNK = 4 << 20


def store_of(chunks: int, **changes: object) -> RawBlockStore:
    """A store whose memory holds so many chunks; it loses half of them at three quarters."""
    memory = Memory(size_bytes=chunks * CHUNK, watermark=0.75, ratio=0.5)
    spec = load_store_spec("lmcache-raw-block")
    assert isinstance(spec, LmcacheRawBlock)
    made = make_store(
        spec.model_copy(update={"memory": memory, **changes}), 2 << 30, "llama-3.1-8b-tp8"
    )
    assert isinstance(made, RawBlockStore)
    return made


def ask(store: RawBlockStore, time_s: float, session: int, ids: list[int]) -> OpArray:
    tokens = 256 * len(ids)
    keys = np.array(ids, np.uint64)
    return store.serve(Request(FORM, time_s, session, 0, tokens, 0, tokens, keys))


def reads(ops: OpArray) -> list[int]:
    return sorted(ops["key"][ops["op"] == Op.READ].tolist())


def test_a_request_that_memory_cannot_hold_whole_is_not_stored_at_all() -> None:
    store = store_of(8)
    ask(store, 0.1, 0, [1, 2, 3, 4, 5])
    ask(store, 0.2, 1, [11, 12, 13, 14])
    store.close()
    report = store.report()
    assert report["not_stored_for_want_of_memory"] == 4
    assert report["used_slots"] == 5


def test_hits_that_memory_cannot_load_whole_are_dropped_to_those_it_holds() -> None:
    store = store_of(8)
    ask(store, 0.1, 0, [1, 2, 3, 4, 5, 6])
    ask(store, 1.5, 1, [11, 12, 13, 14])  # three of six are forgotten, four come
    again = ask(store, 1.6, 0, [1, 2, 3, 4, 5, 6])
    report = store.report()
    assert reads(again) == []
    assert report["hits_in_memory"] == 3
    assert report["hits_dropped_for_want_of_memory"] == 3


def test_later_chunks_of_a_request_leave_memory_first() -> None:
    store = store_of(8)
    ask(store, 0.1, 0, [1, 2, 3, 4, 5, 6])
    again = ask(store, 1.5, 0, [1, 2, 3, 4, 5, 6])
    assert reads(again) == [4, 5, 6]


def test_what_is_still_to_be_stored_does_not_leave_memory() -> None:
    # At 1 MB/s a chunk takes more than 8 s, so five of six are not on the device after 1 s.
    store = store_of(8, drain_mbps=1.0)
    ask(store, 0.1, 0, [1, 2, 3, 4, 5, 6])
    again = ask(store, 1.5, 0, [1, 2, 3, 4, 5, 6])
    assert reads(again) == [1]
    assert store.report()["hits_in_memory"] == 5


@pytest.mark.parametrize(("load_mbps", "left"), [(None, 4), (1.0, 1)])
def test_chunks_being_loaded_count_as_memory_used(load_mbps: float | None, left: int) -> None:
    store = store_of(8, load_mbps=load_mbps)
    ask(store, 0.1, 0, [1, 2, 3, 4, 5, 6])
    ask(store, 1.5, 0, [1, 2, 3, 4, 5, 6])  # three are loaded, over 12 s at 1 MB/s
    ask(store, 1.6, 1, [11])
    ask(store, 2.5, 2, [21])
    held = store.report()["hits_in_memory"]
    ask(store, 2.6, 0, [1, 2, 3])
    ask(store, 2.6, 1, [11])
    assert store.report()["hits_in_memory"] - held == left
