"""What every store must keep, whatever its layout: a whole life at a small capacity."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import UsageError
from harness.core.ops import PAGE_BYTES, Op
from harness.device.guard import open_guarded
from harness.device.loop import LoopDevice
from harness.stores.base import op_stream
from harness.stores.emit import emit
from harness.stores.names import workload_names
from harness.stores.ops import CLASS_NAMES, ObjectClass
from harness.stores.registry import load_store_spec, make_store
from harness.stores.requests.form import RequestBatch
from harness.stores.requests.load import open_requests

STORES = workload_names("stores")
UNBOUNDED = {"lmcache-raw-block-legacy", "sglang-file", "vllm-fs"}
CAPACITY = 3 << 30


def small(name: str, capacity: int = CAPACITY, model: str = "llama-3.1-8b-tp8"):  # type: ignore[no-untyped-def]
    """The store with objects small enough that a test sees several generations of them."""
    spec = load_store_spec(name)
    changes: dict[str, object] = {}
    if spec.layout == "session-contiguous":
        changes["extent_tokens"] = 2048
    if spec.layout == "mooncake-bucket":
        changes["bucket_bytes"] = 32 << 20
    return make_store(spec.model_copy(update=changes), capacity, model)


@pytest.mark.parametrize("name", STORES)
def test_a_life_reads_what_was_last_written_and_stays_inside_the_device(name: str) -> None:
    store = small(name)
    owner = np.zeros(CAPACITY // PAGE_BYTES, np.uint64)
    layer = np.zeros(CAPACITY // PAGE_BYTES, np.int64)
    ops_seen = 0
    for ops in op_stream(store, open_requests("chat", seed=11), limit=900):
        ops_seen += len(ops)
        assert np.all(ops["offset"] % PAGE_BYTES == 0)
        assert np.all(ops["length"] % PAGE_BYTES == 0)
        assert np.all(ops["length"] > 0)
        assert int((ops["offset"] + ops["length"]).max()) <= CAPACITY
        assert int(ops["stream"].max()) < store.streams
        assert int(ops["length"].max()) <= store.largest_op_bytes
        for offset, length, op, cls, where, key in ops[
            ["offset", "length", "op", "object_class", "layer", "key"]
        ].tolist():
            pages = slice(offset // PAGE_BYTES, (offset + length) // PAGE_BYTES)
            if op == Op.WRITE:
                # A segment holds several chunks, but each layer of it is one range.
                owner[pages] = key if store.name != "session-contiguous" else 1
                layer[pages] = where
            elif store.name == "session-contiguous":
                assert np.all(layer[pages] == where)
            elif store.name == "mooncake-bucket":
                # Values are not aligned: the first and the last page hold a neighbour's end too.
                assert np.all(owner[pages][1:-1] == key)
            else:
                assert np.all(owner[pages] == key), (cls, key)
    report = store.report()
    assert report["requests"] == 900
    assert ops_seen == report["writes"]["ops"] + report["reads"]["ops"]
    assert 0 < report["chunks_hit"] <= report["chunks_wanted"]
    written = report["writes"]["bytes"]
    if name in UNBOUNDED:
        assert report["failed_puts"] > 0
        assert report["evicted"] == 0
        assert written <= CAPACITY
    else:
        assert report["evicted"] > 0
        assert written > 1.5 * CAPACITY


@pytest.mark.parametrize("name", STORES)
def test_a_hybrid_keeps_states_as_objects_of_their_own(name: str) -> None:
    capacity = 16 << 30
    store = make_store(name, capacity, "qwen3.5-27b")
    for ops in op_stream(store, open_requests("chat", seed=2), limit=250):
        assert int((ops["offset"] + ops["length"]).max()) <= capacity
    report = store.report()
    written = report["writes"]["by_class"]
    if name == "kvbm":
        # A prompt's end is new each time, so the filter never sees a state twice.
        assert "fixed-state" not in written
        assert report["chunks_hit"] == 0 < report["chunks_lost_to_missing_state"]
        return
    assert written["fixed-state"]["bytes"] > 100 << 20
    assert written["full-attention"]["bytes"] > 100 << 20
    assert report["reads"]["by_class"]["fixed-state"]["bytes"] > 0


@pytest.mark.parametrize("name", STORES)
def test_the_same_requests_give_the_same_ops_one_by_one_or_in_batches(name: str) -> None:
    batch = next(open_requests("chat", seed=3).batches()).part(0, 120)
    whole = small(name)
    together = np.concatenate((whole.serve_batch(batch), whole.close()))
    single = small(name)
    apart = [single.serve_batch(RequestBatch.of([request])) for request in batch]
    apart.append(single.close())
    joined = np.concatenate(apart)
    if whole.name == "session-contiguous":
        # Requests of a batch write side by side: the same ranges, interleaved.
        assert np.array_equal(np.sort(together["offset"]), np.sort(joined["offset"]))
    else:
        assert np.array_equal(together, joined)


@pytest.mark.parametrize("name", STORES)
def test_a_device_too_small_for_one_object_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"too small|holds no file|one session's extent"):
        make_store(name, 1 << 20, "llama-3.1-70b")


@pytest.mark.root
@pytest.mark.parametrize(
    "name",
    [n for n in STORES
     if load_store_spec(n).layout not in ("lmcache-raw-block", "session-contiguous")],
)  # fmt: skip
def test_real_io_of_every_other_layout_verifies(name: str, tmp_path: Path) -> None:
    with (
        LoopDevice(1 << 30, tmp_path) as loop,
        open_guarded(loop.path, own=True) as target,
    ):
        store = small(name, target.size_bytes)
        limit = 48 if store.name == "mooncake-bucket" else 12  # a bucket takes a while to fill
        result = emit(store, open_requests("chat", seed=5), target, seed=5, limit=limit)
        data = result.as_json()
    assert data["verify_errors"] == 0
    assert data["bytes_verified"] == data["bytes_read"] == result.report["reads"]["bytes"] > 0
    assert data["bytes_written"] == result.report["writes"]["bytes"]


def test_kvbm_writes_a_block_at_its_second_sight_only() -> None:
    batch = next(open_requests("chat", seed=3).batches()).part(0, 1)
    store = make_store("kvbm", 8 << 30, "llama-3.1-8b-tp8")
    assert len(store.serve_batch(batch)) == 0
    again = store.serve_batch(batch)
    assert set(again["op"].tolist()) == {Op.WRITE}
    assert len(again) == int(batch.input_tokens[0]) // 64 * 4
    reads = store.serve_batch(batch)
    assert set(reads["op"].tolist()) == {Op.READ}


def test_a_bucket_holds_its_objects_in_hash_order_without_padding() -> None:
    store = make_store("mooncake-bucket", 8 << 30, "llama-3.1-8b-tp8")
    batches = open_requests("chat", seed=3).batches()
    written = [ops for ops in (store.serve_batch(next(batches)),) if len(ops)]
    ops = written[0]
    first = ops[ops["op"] == Op.WRITE]
    bucket = first[: int(np.argmax(first["object_class"] == ObjectClass.METADATA)) + 1]
    data = bucket[bucket["object_class"] == ObjectClass.FULL_ATTENTION]
    turns = data["turn"].tolist()
    assert turns != sorted(turns)
    ends = (data["offset"] + data["length"])[:-1]
    jumps = np.count_nonzero(ends != data["offset"][1:])
    assert jumps <= 3  # one file, cut only where a group of the file system ends
    unaligned = 256 * (1 << 20) // (64 + 64 * 16384)
    assert len(set(data["key"].tolist())) == unaligned


def test_local_disk_walks_the_whole_device_below_its_cap() -> None:
    """Measured on ext4: a cap of 5 GiB touched 7,552 of 8,192 MiB, mostly one extent a file."""
    spec = load_store_spec("lmcache-local-disk").model_copy(
        update={"cap_bytes": 5 << 30, "cap_share": 1.0}
    )
    store = make_store(spec, 8 << 30, "llama-3.1-8b")
    for _ in op_stream(store, open_requests("chat", seed=3), limit=600):
        pass
    report = store.report()
    assert report["used_bytes"] <= 5 << 30
    assert report["touched_bytes"] / (8 << 30) == pytest.approx(7552 / 8192, abs=0.06)
    assert 1.0 <= report["extents_per_file"] < 1.4


def test_the_class_names_are_those_of_traces() -> None:
    assert CLASS_NAMES == ("full-attention", "fixed-state", "header", "metadata")
