"""Heap, histograms, distances, lag floor and shapes against plain Python."""

from __future__ import annotations

import heapq

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.replay.depth import Shape
from harness.replay.floor import LagFloor, service_times
from harness.replay.heap import pop, push
from harness.replay.histogram import BINS, Histogram, bin_of, distance, lower_edges

NS = st.integers(0, 2**43)


@settings(deadline=None)
@given(st.lists(NS, max_size=60))
def test_heap_gives_values_in_order_of_their_keys(keys: list[int]) -> None:
    room, size = np.zeros((2, 64), np.int64), np.zeros(1, np.int64)
    for value, key in enumerate(keys):
        push(room[0], room[1], size, key, value)
    assert [keys[pop(room[0], room[1], size)] for _ in keys] == sorted(keys)
    assert size[0] == 0


@settings(deadline=None)
@given(NS)
def test_a_bin_holds_its_value_within_two_percent(value: int) -> None:
    edges, place = lower_edges(), bin_of(value)
    assert edges[place] <= value
    assert place + 1 == BINS or value < edges[place + 1]
    if value >= 128 and place + 1 < BINS:
        assert edges[place + 1] - edges[place] <= value / 63


@settings(deadline=None)
@given(st.lists(NS, min_size=1, max_size=200), st.floats(0.01, 1))
def test_quantiles_are_those_of_the_values(values: list[int], share: float) -> None:
    histogram = Histogram()
    histogram.add(np.array(values, np.int64))
    exact = float(np.quantile(values, share, method="inverted_cdf"))
    found = histogram.quantile(share)
    assert found is not None
    assert abs(found - exact) <= max(1, exact / 63)
    assert histogram.summary()["max"] == max(values)
    assert histogram.n == len(values)
    assert sum(count for _, count in histogram.bins()) == len(values)


def test_merged_histograms_are_the_histogram_of_both() -> None:
    one, other, both = Histogram(), Histogram(), Histogram()
    one.add(np.array([1, 5_000], np.int64))
    other.add(np.array([70_000], np.int64))
    both.add(np.array([1, 5_000, 70_000], np.int64))
    one.merge(other)
    assert one.summary() == both.summary()
    assert Histogram().summary()["p50"] is None


def test_distance_is_the_largest_gap_of_the_distributions() -> None:
    one, other = np.array([1, 1, 2, 0]), np.array([0, 0, 0, 8])
    assert distance(one, other) == 1.0
    assert distance(one, one * 3) == 0.0
    assert distance(np.array([2, 2]), np.array([3, 1])) == 0.25
    assert distance(one, np.zeros(4, np.int64)) is None


def test_service_time_is_what_the_device_was_busy_with_each() -> None:
    """Three at once on a device that needs 10 each; one later, alone, that takes 7."""
    issued, done = np.array([0, 0, 0, 100]), np.array([10, 20, 30, 107])
    assert service_times(issued, done).tolist() == [10, 10, 10, 7]
    assert service_times(np.array([0]), np.array([10]), last_done=4).tolist() == [6]


def test_the_floor_of_a_burst_is_what_the_depth_and_the_device_force() -> None:
    """Ten commands due at once, two in flight, 5 ns each: the k-th waits for the (k-2)-th."""
    floor = LagFloor(depth=2)
    issue, done = floor.add(np.zeros(10, np.int64), np.full(10, 5))
    assert issue.tolist() == [0, 0, 5, 10, 15, 20, 25, 30, 35, 40]
    assert done.tolist() == [5, 10, 15, 20, 25, 30, 35, 40, 45, 50]
    assert floor.last == 40
    assert floor.longest_backlog == 40


def test_the_floor_of_an_unhurried_trace_is_nothing() -> None:
    floor = LagFloor(depth=1)
    floor.add(np.arange(0, 1000, 10), np.full(100, 9))
    floor.add(np.arange(1000, 2000, 10), np.full(100, 9))
    assert floor.lag.maximum == 0
    assert floor.longest_backlog == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60)), min_size=1, max_size=50))
def test_depth_counts_those_in_flight(requests: list[tuple[int, int]]) -> None:
    issued = np.cumsum([gap for gap, _ in requests])
    done = issued + np.array([latency for _, latency in requests])
    shape, expected = Shape(), []
    half = len(issued) // 2
    shape.add(issued[:half], done[:half])
    shape.add(issued[half:], done[half:])
    outstanding: list[int] = []
    for at, end in zip(issued, done, strict=True):
        while outstanding and outstanding[0] <= at:
            heapq.heappop(outstanding)
        heapq.heappush(outstanding, int(end))
        expected.append(len(outstanding))
    assert shape.depth.sum() == len(expected)
    assert shape.summary()["max"] == max(expected)
    assert shape.summary()["mean"] == np.mean(expected)
    assert shape.gaps.n == len(issued) - 1
