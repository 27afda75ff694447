"""Disciplines by hand, their limit of no load, and what must hold for any traffic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.simulator.loading.alone import load_s, prefetched_s
from harness.simulator.loading.options import LoadOptions
from harness.simulator.loading.priority import Preparing, priority
from harness.simulator.loading.result import LoadResult, under_load
from harness.simulator.loading.servers import serve
from tests.simulator.loading.cases import GB, rates, work

REQUEST = st.tuples(
    st.floats(0, 20), st.sampled_from([0, 0, 0.5, 1, 4]), st.sampled_from([0, 0.5, 2]),
    st.integers(0, 3000),
)  # fmt: skip
TRAFFIC = st.lists(REQUEST, min_size=1, max_size=25).map(sorted)
OPTIONS = st.builds(
    LoadOptions,
    scheduler=st.sampled_from(["one-queue", "two-queues", "prefetch"]),
    path=st.sampled_from(["staged", "direct"]),
    gpus=st.integers(1, 3),
    gpu_bytes=st.sampled_from([None, 10**9]),
    staging_bytes=st.sampled_from([None, 2 * 10**9]),
    deadline_s=st.sampled_from([None, 1.5]),
)


def test_priority_of_the_worked_example() -> None:
    """1 GB and 4 GB after 2 s: 3 and 1.5."""
    found = priority(np.array([2.0, 2.0]), np.array([1 * GB, 4 * GB]))
    assert found.tolist() == [3.0, 1.5]


def test_small_reads_first_and_equals_by_arrival() -> None:
    preparing = Preparing(4)
    for row, (arrival, size) in enumerate([(0.0, 4.0), (0.0, 1.0), (0.0, 1.0), (1.0, 0.25)]):
        preparing.add(row, arrival, size * GB)
    taken = [preparing.take(2.0, float("inf")) for _ in range(4)]
    assert taken == [3, 1, 2, 0]
    preparing.add(0, 0.0, 4 * GB)
    assert preparing.take(3.0, 1 * GB) is None
    assert len(preparing) == 1


@pytest.mark.parametrize("path", ["staged", "direct"])
@pytest.mark.parametrize("scheduler", ["one-queue", "two-queues", "prefetch"])
@pytest.mark.parametrize("layers", [0, 8])
def test_without_load_every_discipline_is_the_closed_form(
    scheduler: str, path: str, layers: int
) -> None:
    apart = work((0, 1, 2, 100), (100, 0, 3, 0), (200, 2, 0, 9000), (300, 0, 0, 50), (400, 4, 1, 0))
    if layers and scheduler != "one-queue":
        layers = 0  # they load whole, before or beside
    options = LoadOptions(scheduler=scheduler, path=path, layers=layers)  # type: ignore[arg-type]
    record = serve(apart, rates(5), options)
    if scheduler == "two-queues":
        expected = prefetched_s(apart, rates(5), options.path)
    else:
        expected = load_s(apart, rates(5), options.path, layers)
    assert (record.done_s - record.arrival_s).tolist() == pytest.approx(expected.tolist())
    assert not record.lost.any()


def test_one_queue_lets_a_large_read_block_a_small_request() -> None:
    """4 s of reads, then a request of 10 ms: it waits for all of them; with two queues it runs."""
    traffic = work((0, 4, 0, 0), (0.1, 0, 0.1, 0))
    one = serve(traffic, rates(2), LoadOptions(scheduler="one-queue"))
    assert one.done_s.tolist() == pytest.approx([4.4, 4.41])
    two = serve(traffic, rates(2), LoadOptions(scheduler="two-queues"))
    assert two.done_s.tolist() == pytest.approx([4.4, 0.11])


def test_what_was_prefetched_runs_at_its_original_place() -> None:
    """Request 0 is read while 1 occupies the GPU for 3 s; 2 came after 0 and stays behind it."""
    traffic = work((0, 1, 0, 1000), (0, 0, 0, 3000), (0.5, 0, 0, 1000))
    record = serve(traffic, rates(3), LoadOptions(scheduler="two-queues"))
    assert record.start_s.tolist() == pytest.approx([3, 0, 4])


def test_room_on_the_gpu_makes_prefetches_wait_and_cancels_none() -> None:
    """Room for one: the second read begins when the first request is done."""
    traffic = work((0, 1, 0, 2000), (0, 1, 0, 2000))
    record = serve(traffic, rates(2), LoadOptions(scheduler="two-queues", gpu_bytes=int(GB)))
    assert record.prefetch_s.tolist() == pytest.approx([1, 4])
    assert record.done_s.tolist() == pytest.approx([3, 6])
    assert not record.lost.any()


def test_a_full_staging_buffer_cancels_and_recomputes() -> None:
    """Room for 1 GB: the second restore is lost, and its 1000 tokens take a second."""
    traffic = work((0, 1, 0, 0), (0, 1, 0, 0))
    options = LoadOptions(scheduler="prefetch", staging_bytes=int(GB))
    result = under_load(traffic, rates(2), options)
    assert result.cancelled == 1
    assert (result.ceiling, result.delivered) == (1.0, 0.5)
    record = serve(traffic, rates(2), options)
    assert record.done_s.tolist() == pytest.approx([1.1, 2.1])
    assert record.read_bytes.tolist() == [GB, 0]


def test_a_restore_past_its_deadline_wastes_what_it_read() -> None:
    """Two reads of 1 s, 1.5 s allowed: half of the second was read for nothing."""
    traffic = work((0, 1, 0, 0), (0, 1, 0, 0))
    options = LoadOptions(scheduler="prefetch", deadline_s=1.5, gpus=2)
    record = serve(traffic, rates(2), options)
    assert record.lost.tolist() == [False, True]
    assert record.read_bytes.tolist() == pytest.approx([GB, GB / 2])
    assert record.done_s.tolist() == pytest.approx([1.1, 2.5])
    assert under_load(traffic, rates(2), options).read_share == pytest.approx(1.5)


def test_a_cancelled_restore_is_recomputed_after_what_was_missed_anyway() -> None:
    """2 s of missed tokens run from the start; at 1.5 s another second's worth is added."""
    options = LoadOptions(scheduler="prefetch", deadline_s=1.5)
    record = serve(work((0, 4, 0, 2000)), rates(1), options)
    assert record.done_s.tolist() == pytest.approx([3.0])


@settings(max_examples=100, deadline=None)
@given(rows=TRAFFIC, options=OPTIONS)
def test_whatever_comes_is_served_once_and_never_before_its_time(
    rows: list[tuple[float, float, float, float]], options: LoadOptions
) -> None:
    traffic = work(*rows)
    record = serve(traffic, rates(len(rows)), options)
    assert not np.isnan(record.done_s).any()
    assert (record.start_s >= record.arrival_s).all()
    assert (record.done_s >= record.start_s).all()
    if options.scheduler != "prefetch":
        assert not record.lost.any()
        assert record.read_bytes.tolist() == traffic.ssd_bytes.tolist()
    kept = ~record.lost & (traffic.ssd_bytes > 0)
    assert np.isnan(record.prefetch_s[~kept]).all()
    least = traffic.ssd_bytes / GB
    assert (record.done_s - record.arrival_s >= least * ~record.lost - 1e-9).all()
    busy = under_load(traffic, rates(len(rows)), options).busy
    assert all(0 <= share <= 1 + 1e-9 for share in busy.values())


def test_a_rising_load_delivers_less_through_staging_and_all_with_two_queues() -> None:
    """The published contrast, in kind: cancelled restores against waiting ones."""
    rng = np.random.default_rng(3)
    arrivals = np.sort(rng.uniform(0, 4000, 400))
    traffic = work(*[(float(t), 2.0, 0.0, 100) for t in arrivals])

    def at_both_loads(options: LoadOptions) -> list[LoadResult]:
        return [
            under_load(traffic, rates(400), options.model_copy(update={"requests_per_s": load}))
            for load in (0.05, 0.5)
        ]

    staged = LoadOptions(scheduler="prefetch", staging_bytes=int(4 * GB), deadline_s=10.0)
    flat = LoadOptions(scheduler="two-queues", path="direct")
    low, high = at_both_loads(staged)
    assert low.requests_per_s == pytest.approx(0.05)
    assert high.delivered < low.delivered - 0.05
    assert all(one.delivered == one.ceiling for one in at_both_loads(flat))
