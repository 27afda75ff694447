"""Every layout driven from outside: known op streams, conservation, nothing overwritten early."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.core.ops import PAGE_BYTES, Op
from harness.simulator.requestlog import SsdLog
from harness.simulator.sizes import ObjectSizes
from harness.simulator.wearing.events import FREE, PUT, USE, LogReader, class_of
from harness.simulator.wearing.layout import Layout
from harness.simulator.wearing.source import placement_ids
from harness.simulator.wearing.state import Lost
from harness.stores.names import workload_names
from harness.stores.ops import ObjectClass, OpArray
from tests.simulator.wearing.logs import (
    EVICT,
    FULL,
    HYBRID,
    MIB,
    READ,
    SIZES,
    STATE,
    WRITE,
    churn,
    clock,
    rows,
    small_layout,
)

STORES = workload_names("stores")
KEEPING = (
    "kvbm", "lmcache-raw-block", "mooncake-offset", "session-contiguous", "sglang-file-bounded"
)  # fmt: skip
"""A layout of each family in which objects that fit are on the device at once."""
SLOT = 4096 + (256 << 10)


def layout(name: str, capacity: int = 256 * MIB, sizes: ObjectSizes = SIZES, **more: Any) -> Layout:
    return Layout(small_layout(name), capacity, sizes, **more)


def reader(log: SsdLog, sizes: ObjectSizes, requests: int, per: int, turns: int = 4) -> LogReader:
    made = clock(requests, per, turns)
    nodes = made.first_request
    return LogReader(log, made.time_s, made.session[nodes], made.turn[nodes], sizes)


def events_of(log: SsdLog, sizes: ObjectSizes = SIZES, per: int = 4) -> NDArray[np.void]:
    requests = int(log["request"].max()) + 1
    made = reader(log, sizes, requests, max(per, int((log["node"] + log["count"]).max())))
    return np.concatenate([events.copy() for events in made.one_pass()])


def ops_of(of: Layout, events: NDArray[np.void]) -> OpArray:
    found = [ops.copy() for ops in of.ops(events)]
    return np.concatenate(found) if found else np.empty(0, found)


def calls(ops: OpArray) -> list[tuple[int, int, int]]:
    return ops[["offset", "length", "object_class"]].tolist()


def test_slots_lie_back_to_back_and_the_slot_freed_last_is_reused_first() -> None:
    log = rows([
        (0, WRITE, FULL, 0, 3), (0, EVICT, FULL, 1, 2), (0, WRITE, FULL, 3, 3),
    ])  # fmt: skip
    header, chunk = ObjectClass.HEADER, ObjectClass.FULL_ATTENTION
    expected = []
    # Node 2 is evicted before node 1, so node 1's slot comes first, then 2's, then a new one.
    for slot in (0, 1, 2, 1, 2, 3):
        start = MIB + slot * SLOT
        expected += [(start, 4096, header), (start + 4096, 256 << 10, chunk)]
    assert calls(ops_of(layout("lmcache-raw-block"), events_of(log))) == expected


def test_a_state_larger_than_a_slot_is_cut_into_pieces() -> None:
    made = layout("lmcache-raw-block", sizes=HYBRID)
    room = 102_400  # 100,000 B in whole pages
    assert made.unit_bytes == 4096 + room
    ops = ops_of(made, events_of(rows([(0, WRITE, STATE, 0, 1)]), HYBRID))
    payload = ops[ops["object_class"] == ObjectClass.FIXED_STATE]
    assert payload["length"].tolist() == [room] * 9 + [81_920]  # 78,401 B in whole pages
    assert np.diff(payload["offset"].astype(np.int64)).tolist() == [4096 + room] * 9


def test_a_chunk_of_another_size_than_a_slot_is_cut_or_leaves_the_rest_unused() -> None:
    events = events_of(rows([(0, WRITE, FULL, 0, 2)]))
    small = layout("lmcache-raw-block", unit_tokens=16)
    assert small.unit_bytes == 4096 + (64 << 10)
    assert ops_of(small, events)["length"].tolist() == [4096, 64 << 10] * 8
    large = layout("kvbm", unit_tokens=256)
    assert large.unit_bytes == 1 << 20
    assert calls(ops_of(large, events)) == [(0, 256 << 10, FULL), (1 << 20, 256 << 10, FULL)]
    assert large.held_bytes == 2 << 20
    with pytest.raises(UsageError, match="objects of any size"):
        layout("vllm-fs", unit_tokens=16)


@pytest.mark.parametrize("name", ["kvbm", "vllm-disk"])
def test_places_are_first_all_used_then_reused_in_the_order_of_freeing(name: str) -> None:
    log = rows([
        (0, WRITE, FULL, 0, 3), (0, EVICT, FULL, 2, 1), (0, EVICT, FULL, 0, 1),
        (0, WRITE, FULL, 3, 3),
    ])  # fmt: skip
    made = layout(name, 4 * (256 << 10))
    places = (ops_of(made, events_of(log))["offset"] // (256 << 10)).tolist()
    assert places == [0, 1, 2, 3, 2, 0]
    assert made.lost.sum() == 0


def test_a_full_pool_gives_up_what_was_used_least_recently_and_says_so() -> None:
    made = layout("kvbm", 3 * (256 << 10))
    log = rows([(0, WRITE, FULL, 0, 3), (1, WRITE, FULL, 3, 1), (2, EVICT, FULL, 0, 1)])
    assert (ops_of(made, events_of(log))["offset"] // (256 << 10)).tolist() == [0, 1, 2, 0]
    assert made.lost[Lost.FREED].tolist() == [1, 0]


def test_records_carry_a_header_page_and_are_joined_when_freed() -> None:
    made = layout("mooncake-offset", 2 * MIB)
    record = 4096 + (256 << 10)
    log = rows([
        (0, WRITE, FULL, 0, 4), (1, EVICT, FULL, 1, 1), (1, WRITE, FULL, 4, 1),
        (2, EVICT, FULL, 2, 1), (2, WRITE, FULL, 5, 1),
    ])  # fmt: skip
    ops = ops_of(made, events_of(log))
    assert ops["length"].tolist() == [record] * 6
    # 65 pages are asked of the bin of 72: a hole of one record is too small, one of two is not.
    assert (ops["offset"] // record).tolist() == [0, 1, 2, 3, 4, 1]
    assert made.held_bytes == 4 * record


def test_a_bucket_comes_back_with_its_last_object_or_whole_when_the_disk_is_full() -> None:
    made = layout("mooncake-bucket", 256 * MIB)
    per, log = 16, []  # 15 objects of 256 KiB and their keys are a bucket of 4 MiB
    for r in range(8):
        log.append((r, WRITE, FULL, r * per, per))
    log.append((8, EVICT, FULL, 0, per))
    log.append((9, EVICT, FULL, 0 + per, 1))
    made_events = events_of(rows(log), per=per)
    before = made_events[made_events["request"] < 8]
    ops_of(made, before)
    bucket = (961 + 1) * PAGE_BYTES  # 15 records of 64 B and 256 KiB, and a page of metadata
    assert made.held_bytes == 7 * bucket  # what the last request brought waits
    ops_of(made, made_events[made_events["request"] == 8])
    # A bucket more was written, and the first one is empty now: its place is free.
    assert made.held_bytes == 7 * bucket
    ops_of(made, made_events[made_events["request"] == 9])
    assert made.held_bytes == 7 * bucket
    assert made.lost.sum() == 0


def test_an_object_that_leaves_before_its_bucket_is_made_is_never_written() -> None:
    made = layout("mooncake-bucket")
    log = rows([(0, WRITE, FULL, 0, 4), (0, EVICT, FULL, 2, 1), (1, WRITE, FULL, 4, 12),
                (2, WRITE, FULL, 16, 1), (3, WRITE, FULL, 17, 1)])  # fmt: skip
    events = events_of(log)
    ops = ops_of(made, events)
    chunks = ops[ops["object_class"] == FULL]
    freed = events["key"][events["action"] == FREE]
    assert len(np.unique(chunks["key"])) == 15
    assert not np.isin(freed, chunks["key"]).any()
    assert made.lost[Lost.UNWRITTEN].tolist() == [1, 0]


def test_a_full_disk_of_buckets_loses_survivors_and_counts_the_hits_on_them() -> None:
    made = layout("mooncake-bucket", 128 * MIB)
    per, entries = 16, []
    for r in range(38):
        if r:  # two of the last request's objects stay: no bucket is ever empty
            entries.append((r, EVICT, FULL, (r - 1) * per, per - 2))
        entries.append((r, WRITE, FULL, r * per, per))
    entries += [(38, READ, FULL, 14, 1), (38, READ, FULL, 37 * per, 1)]
    ops_of(made, events_of(rows(entries), per=per))
    assert made.lost[Lost.USED].tolist() == [1, 0]


def test_a_session_is_one_extent_that_comes_back_with_its_last_object() -> None:
    made = layout("session-contiguous", 32 * MIB)
    extent = 16 * (256 << 10)
    log = rows([
        (0, WRITE, FULL, 0, 4), (4, WRITE, FULL, 16, 4), (5, WRITE, FULL, 4, 4),
        (6, EVICT, FULL, 0, 8), (7, EVICT, FULL, 17, 3),
    ])  # fmt: skip
    made_clock = clock(8, 4, 4)
    nodes = made_clock.first_request
    read = LogReader(
        log, made_clock.time_s, made_clock.session[nodes], made_clock.turn[nodes], SIZES
    )
    events = np.concatenate([e.copy() for e in read.one_pass()])
    ops = ops_of(made, events)
    # Nodes 0 to 7 are of session 0: two segments in its extent. Node 16 begins session 1.
    assert calls(ops) == [(0, MIB, FULL), (extent, MIB, FULL), (MIB, MIB, FULL)]
    assert made.held_bytes == extent


def test_the_longest_idle_session_goes_whole_when_no_extent_is_left() -> None:
    made = layout("session-contiguous", 8 * MIB)  # two extents of 4 MiB
    log = rows([
        (0, WRITE, FULL, 0, 4), (1, WRITE, FULL, 4, 4), (2, READ, FULL, 0, 1),
        (3, WRITE, FULL, 8, 4), (4, EVICT, FULL, 4, 4), (4, EVICT, FULL, 0, 4),
    ])  # fmt: skip
    made_clock = clock(5, 4, 1)
    nodes = made_clock.first_request
    read = LogReader(
        log, made_clock.time_s, made_clock.session[nodes], made_clock.turn[nodes], SIZES
    )
    ops = ops_of(made, np.concatenate([e.copy() for e in read.one_pass()]))
    # Session 0 was read, so session 1 gives its extent to session 2.
    assert (ops["offset"] // (4 * MIB)).tolist() == [0, 1, 1]
    assert made.lost[Lost.FREED].tolist() == [4, 0]


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("sizes", [SIZES, HYBRID], ids=["growing", "hybrid"])
def test_what_is_kept_is_never_overwritten_and_bytes_are_conserved(
    name: str, sizes: ObjectSizes
) -> None:
    capacity = 256 * MIB
    made = layout(name, capacity, sizes)
    read = reader(_mixed(sizes), sizes, 400, 4)
    owner = np.zeros(capacity // PAGE_BYTES, np.uint64)
    written = np.zeros(4, np.int64)
    end = 0
    for _ in range(2):
        for events in read.one_pass():
            for ops in made.ops(events):
                assert (ops["op"] == Op.WRITE).all()
                assert int(ops["stream"].max()) < made.streams
                for offset, length, key in ops[["offset", "length", "key"]].tolist():
                    assert offset % PAGE_BYTES == length % PAGE_BYTES == 0
                    end = max(end, offset + length)
                    owner[offset // PAGE_BYTES : (offset + length) // PAGE_BYTES] = key
                np.add.at(written, ops["object_class"], ops["length"].astype(np.int64))
    assert end <= capacity
    assert made.held_bytes <= capacity
    _conserved(made, read, written, sizes)
    if made.spec.layout not in ("mooncake-bucket", "session-contiguous"):
        # Nothing comes back late: what fits is kept.
        assert made.lost.sum() == 0
        assert made.missing(read.residents()).tolist() == [0, 0]
        _still_there(made, read, owner, sizes)


def _mixed(sizes: ObjectSizes) -> SsdLog:
    """Chunks and, where the model has them, a state a request; random ones leave."""
    log = churn(400, 4, 300, "random")
    if not sizes.state_bytes:
        return log
    parts = [log]
    for r in range(400):
        parts.append(rows([(r, WRITE, STATE, 4 * r + 3, 1)]))
        if r >= 20:
            parts.append(rows([(r, EVICT, STATE, 4 * (r - 20) + 3, 1)]))
    return np.sort(np.concatenate(parts), order="request", kind="stable")


def _conserved(
    made: Layout, read: LogReader, written: NDArray[np.int64], sizes: ObjectSizes
) -> None:
    """Bytes in the op stream are those of the objects and what the layout is known to add."""
    objects = 2 * read.written - made.lost[Lost.UNWRITTEN]
    size = np.array(sizes.by_class)
    whole = -(-size // PAGE_BYTES) * PAGE_BYTES
    kind = made.spec.layout
    full, state, header, meta = written.tolist()
    if kind == "lmcache-raw-block":
        pieces = -(-size // 102_400) if sizes is HYBRID else np.array([1, 0])
        assert header == (objects * pieces).sum() * 4096
        assert [full, state] == (objects * whole).tolist()
    elif kind == "mooncake-offset":
        assert [full, state] == (objects * (whole + np.where(size > 0, 4096, 0))).tolist()
        assert header == meta == 0
    elif kind == "mooncake-bucket":
        waiting = made._store.report()["waiting_in_memory"]
        assert meta > 0
        # A record's key of 64 B, pages at both ends of a bucket, and what still waits.
        least = (objects * size).sum() - waiting * size.max()
        assert least <= full + state <= (objects * (size + 64)).sum() * 1.02
    elif kind == "session-contiguous":
        assert state == objects[STATE] * whole[STATE]
        assert objects[FULL] * size[FULL] <= full <= objects[FULL] * whole[FULL]
    else:
        assert [full, state] == (objects * whole).tolist()
        assert header == meta == 0


def _still_there(
    made: Layout, read: LogReader, owner: NDArray[np.uint64], sizes: ObjectSizes
) -> None:
    """All pages of every object that the policy holds are still its own."""
    from harness.stores.index import mix_pair

    kept = read.residents()
    pieces = made._driven.cut.pieces
    pages = {int(k): int(n) for k, n in zip(*np.unique(owner, return_counts=True), strict=True)}
    extra = 1 if made.spec.layout in ("lmcache-raw-block", "mooncake-offset") else 0
    for key, cls in zip(kept.tolist(), class_of(kept).tolist(), strict=True):
        count = int(pieces[cls])
        names = [key] if count == 1 else [int(mix_pair(np.uint64(key), np.uint64(i)))
                                          for i in range(count)]  # fmt: skip
        found = sum(pages.get(name, 0) for name in names)
        assert found == -(-sizes.by_class[cls] // PAGE_BYTES) + extra * count


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_log_that_fits_is_kept_whole(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(KEEPING))
    live: set[tuple[int, int]] = set()
    entries = []
    for r in range(data.draw(st.integers(1, 12))):
        for _ in range(data.draw(st.integers(0, 4))):
            what = (data.draw(st.integers(0, 1)), data.draw(st.integers(0, 15)))
            if what in live:
                action = data.draw(st.sampled_from([EVICT, READ]))
                entries.append((r, action, *what, 1))
                live -= {what} if action == EVICT else set()
            else:
                entries.append((r, WRITE, *what, 1))
                live |= {what}
    made = layout(name, 256 * MIB, HYBRID)
    read = reader(rows(entries), HYBRID, 12, 2, 3)
    puts = 0
    for _ in range(3):
        for events in read.one_pass():
            puts += int(np.count_nonzero(events["action"] == PUT))
            for ops in made.ops(events):
                assert int((ops["offset"] + ops["length"]).max()) <= 256 * MIB
    assert puts == 3 * read.written.sum()
    assert made.lost.sum() == 0
    assert made.missing(read.residents()).sum() == 0
    assert made.held_bytes >= read.live_bytes


def test_headers_go_with_what_they_head_and_metadata_apart() -> None:
    made = layout("lmcache-raw-block", sizes=HYBRID)
    log = rows([(0, WRITE, FULL, 0, 1), (0, WRITE, STATE, 0, 1), (9, WRITE, FULL, 1, 1)])
    ops = ops_of(made, events_of(log, HYBRID))
    ids = placement_ids(ops)
    assert ids[:2].tolist() == [0, 0]
    assert ids[2:22].tolist() == [1] * 20
    # 180 s without I/O: the store writes its index in two calls, then the next chunk.
    assert ops["object_class"][22:24].tolist() == [ObjectClass.METADATA] * 2
    assert ids[22:].tolist() == [2, 2, 0, 0]


def test_actions_have_the_codes_of_the_log() -> None:
    assert (PUT, FREE, USE) == (1, 2, 3)
