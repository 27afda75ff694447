"""Sorting and merging streams: the same as one stable sort, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.trace.columns import batch_from_arrays
from harness.trace.merging import merge_streams, sort_batch
from harness.trace.ordering import OutOfWindow, sort_externally, sort_window

streams_of_times = st.lists(st.lists(st.integers(0, 20), max_size=12), max_size=12)


def batch(times: list[int], first: int) -> pa.RecordBatch:
    """Rows whose LBA numbers them, so that stability can be seen."""
    count = len(times)
    return batch_from_arrays(
        {
            "ts_ns": np.array(times, np.int64),
            "op": np.zeros(count, np.uint8),
            "lba": np.arange(first, first + count, dtype=np.uint64),
            "bytes": np.full(count, 512, np.uint64),
            "comm": [f"p{time % 3}" for time in times],
        }
    )


def batches(parts: list[list[int]]) -> list[pa.RecordBatch]:
    firsts = np.cumsum([0, *map(len, parts)])
    return [batch(times, int(first)) for times, first in zip(parts, firsts[:-1], strict=True)]


def pairs(rows: Iterator[pa.RecordBatch]) -> list[tuple[int, int, str]]:
    return [(row["ts_ns"], row["lba"], row["comm"]) for part in rows for row in part.to_pylist()]


def stable(parts: list[list[int]]) -> list[tuple[int, int, str]]:
    flat = [time for times in parts for time in times]
    numbered = [(time, number, f"p{time % 3}") for number, time in enumerate(flat)]
    return sorted(numbered, key=lambda row: row[0])


@given(parts=streams_of_times)
@settings(max_examples=50, deadline=None)
def test_window_sorts_what_fits_in_it(parts: list[list[int]]) -> None:
    assert pairs(sort_window(iter(batches(parts)), "here", window_rows=1000)) == stable(parts)


@given(parts=streams_of_times, run_rows=st.integers(1, 30))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_external_sort_is_one_stable_sort(
    tmp_path: Path, parts: list[list[int]], run_rows: int
) -> None:
    rows = sort_externally(iter(batches(parts)), tmp_path, run_rows)
    assert pairs(rows) == stable(parts)
    assert list(tmp_path.iterdir()) == []


@given(parts=streams_of_times, window_rows=st.integers(1, 30))
@settings(max_examples=50, deadline=None)
def test_a_small_window_sorts_or_refuses(parts: list[list[int]], window_rows: int) -> None:
    try:
        got = pairs(sort_window(iter(batches(parts)), "here", window_rows))
    except OutOfWindow as refusal:
        assert "here: a row lies" in str(refusal)
    else:
        assert got == stable(parts)


def test_sorted_batches_pass_through_untouched() -> None:
    parts = batches([[1, 2], [2, 3], [3, 9]])
    got = list(sort_window(iter(parts), "here", window_rows=1))
    assert [id(one) for one in got] == [id(one) for one in parts]


def test_a_late_row_is_refused_and_says_how_late() -> None:
    parts = batches([[10_000_000_000], [20_000_000_000], [30_000_000_000], [5_000_000_000]])
    with pytest.raises(OutOfWindow, match="5 s before rows that came more than 2 rows earlier"):
        list(sort_window(iter(parts), "here", window_rows=2))


@given(streams=st.lists(streams_of_times, max_size=4))
@settings(max_examples=50, deadline=None)
def test_merging_equals_sorting_all(streams: list[list[list[int]]]) -> None:
    numbered: list[list[pa.RecordBatch]] = []
    expected: list[tuple[int, int, str]] = []
    first = 0
    for parts in streams:
        ascending = sorted(time for times in parts for time in times)
        sizes = np.cumsum([len(times) for times in parts])[:-1]
        made = []
        for times in np.split(np.array(ascending, np.int64), sizes) if parts else []:
            made.append(batch(times.tolist(), first))
            expected += [(t, first + i, f"p{t % 3}") for i, t in enumerate(times.tolist())]
            first += len(times)
        numbered.append(made)
    got = pairs(merge_streams([iter(made) for made in numbered]))
    assert got == sorted(expected, key=lambda row: row[0])


def test_sort_batch_is_stable() -> None:
    assert pairs(iter([sort_batch(batch([3, 1, 3, 1], 0))])) == [
        (1, 1, "p1"),
        (1, 3, "p1"),
        (3, 0, "p0"),
        (3, 2, "p0"),
    ]
