"""Allocators: nothing is given out twice, and what is freed joins again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.stores.file_space import GROUP_PAGES, mark_pages, new_space, take_run
from harness.stores.index import (
    ABSENT,
    index_arrays,
    index_get,
    index_put,
    index_remove,
    recency_add,
    recency_arrays,
    recency_oldest,
    recency_remove,
    recency_touch,
)
from harness.stores.offset_allocator import allocate, new_allocator, release, size_bin

STEPS = st.lists(st.tuples(st.booleans(), st.integers(1, 90)), max_size=120)


@settings(deadline=None, max_examples=80)
@given(STEPS)
def test_the_offset_allocator_never_overlaps_and_joins_what_is_freed(
    steps: list[tuple[bool, int]],
) -> None:
    allocator = new_allocator(1000, 1000)
    live: dict[int, range] = {}
    for take, number in steps:
        if take or not live:
            node = allocate(allocator, number)
            if node >= 0:
                start = int(allocator.offset[node])
                taken = range(start, start + number)
                assert taken.stop <= 1000
                assert all(taken.stop <= o.start or o.stop <= taken.start for o in live.values())
                live[node] = taken
        else:
            node = sorted(live)[number % len(live)]
            release(allocator, node)
            del live[node]
        assert int(allocator.ints[2]) == 1000 - sum(len(r) for r in live.values())
    for node in live:
        release(allocator, node)
    whole = allocate(allocator, 896)  # the largest size whose bin the joined range is in
    assert whole >= 0
    assert int(allocator.offset[whole]) == 0


@pytest.mark.parametrize("size", [1, 7, 8, 9, 15, 16, 17, 18, 31, 100, 12345, 2**31])
def test_bins_round_by_at_most_an_eighth(size: int) -> None:
    def least(which: int) -> int:
        return which if which < 8 else (8 + (which & 7)) << ((which >> 3) - 1)

    assert least(size_bin(size, False)) <= size <= least(size_bin(size, True))
    assert least(size_bin(size, True)) <= size * 1.125 or size < 8


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9000)), max_size=60))
def test_a_file_system_never_gives_a_page_twice(steps: list[tuple[bool, int]]) -> None:
    space = new_space(400 << 20)
    total = (400 << 20) // 4096
    start_free = int(space.ints[2])
    live: list[range] = []
    for take, number in steps:
        if take or not live:
            page, got = take_run(space, number)
            if got:
                taken = range(page, page + got)
                assert taken.stop <= total
                assert got <= number
                assert all(taken.stop <= o.start or o.stop <= taken.start for o in live)
                live.append(taken)
        else:
            gone = live.pop(number % len(live))
            mark_pages(space, gone.start, len(gone), False)
        assert int(space.ints[2]) == start_free - sum(len(r) for r in live)


def test_the_search_goes_on_where_it_ended_and_takes_whole_runs_first() -> None:
    space = new_space(1 << 30)
    runs = [take_run(space, 8192) for _ in range(6)]
    assert all(got == 8192 for _, got in runs)
    starts = [page for page, _ in runs]
    assert starts == sorted(starts)
    mark_pages(space, starts[0], 8192, False)
    page, got = take_run(space, 8192)
    assert page > starts[-1]  # the freed range behind waits until the walk comes round
    assert got == 8192
    assert page // GROUP_PAGES == (page + got - 1) // GROUP_PAGES


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=300))
def test_the_index_is_a_dictionary(steps: list[tuple[int, int]]) -> None:
    keys, values = index_arrays(41)
    plain: dict[int, int] = {}
    for what, number in steps:
        key = np.uint64((number * 0x9E3779B97F4A7C15) % 2**64)
        if what == 0:
            index_put(keys, values, key, number)
            plain[int(key)] = number
        elif what == 1:
            assert index_remove(keys, values, key) == (plain.pop(int(key), None) is not None)
        assert index_get(keys, values, key) == plain.get(int(key), ABSENT)
    for key_, value in plain.items():
        assert index_get(keys, values, np.uint64(key_)) == value


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=100))
def test_the_recency_list_is_ordered(touches: list[int]) -> None:
    nxt, prv = recency_arrays(10)
    order: list[int] = []
    for slot in touches:
        if slot in order:
            recency_touch(nxt, prv, slot)
            order.remove(slot)
        else:
            recency_add(nxt, prv, slot)
        order.append(slot)
        assert recency_oldest(nxt, prv) == order[0]
    for slot in order:
        assert recency_oldest(nxt, prv) == slot
        recency_remove(nxt, prv, slot)
    assert recency_oldest(nxt, prv) == -1
