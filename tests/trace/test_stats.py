"""Statistics in one pass against plain counting, and what people get to see."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from harness.core.errors import UsageError
from harness.trace.parquet import open_trace
from harness.trace.schema import NO_CLOCK_NOTE, TraceMeta
from harness.trace.stats import collect
from harness.trace.stats.depth import QueueDepth
from harness.trace.stats.histogram import ExactCounts, LogHistogram
from harness.trace.stats.plots import write_plots
from harness.trace.stats.regions import SAMPLE_ROWS, Regions, Sample, split
from harness.trace.stats.tables import headline, tables
from harness.trace.stats.timeline import BINS, Timeline
from harness.trace.stats.view import View
from tests.trace.helpers import write_trace
from tests.trace.samples import MIB, D, F, R, W, Z

SECOND = 10**9


def view(rows: list[tuple[int, int, int, int, int]], dev: list[int] | None = None) -> View:
    """(ts_ns, op, start, size, latency_ns or -1) rows."""
    ts_ns, op, start, size, latency_ns = (
        np.array(column) for column in (zip(*rows, strict=True) if rows else [[]] * 5)
    )
    zeros = np.zeros(len(rows))
    return View(
        ts_ns=ts_ns.astype(np.int64),
        op=op.astype(np.uint8),
        start=start.astype(np.uint64),
        size=size.astype(np.uint64),
        latency_ns=latency_ns.astype(np.int64),
        flags=zeros.astype(np.uint16),
        dev=np.array(dev, np.uint32) if dev else zeros.astype(np.uint32),
        error=zeros.astype(np.int32),
    )


def stats_of(path: Path, rows: list[tuple[Any, ...]], meta: TraceMeta | None = None) -> Any:
    return collect(open_trace(write_trace(path, rows, meta)))


@given(values=st.lists(st.integers(0, 2**50), min_size=1), percent=st.floats(0.1, 100))
@settings(max_examples=50, deadline=None)
def test_percentiles_are_within_one_percent(values: list[int], percent: float) -> None:
    histogram = LogHistogram()
    for part in np.array_split(np.array(values, np.int64), 3):
        histogram.add(part)
    rank = max(1, int(np.ceil(len(values) * percent / 100)))
    right = sorted(values)[rank - 1]
    got = histogram.percentile(percent)
    assert got is not None
    assert abs(got - right) <= right * 0.01 + 1
    assert (histogram.low, histogram.high, histogram.count) == (
        min(values),
        max(values),
        len(values),
    )
    assert histogram.total == pytest.approx(sum(values))


def test_an_empty_histogram_has_no_figures() -> None:
    assert LogHistogram().summary()["p50"] is None


def test_exact_counts_keep_a_limit() -> None:
    counts = ExactCounts(limit=2)
    counts.add(np.array([5, 5, 7, 9]))
    counts.add(np.array([7, 7, 11]))
    assert counts.most_common(5) == [(7, 3), (5, 2)]
    assert counts.rest == 2


page_requests = st.lists(
    st.tuples(st.sampled_from([R, W, D, Z]), st.integers(0, 40), st.integers(1, 30)), max_size=60
)


@given(drawn=page_requests, cut=st.integers(0, 60))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_fates_of_written_pages_equal_counting_them(
    tmp_path: Path, drawn: list[tuple[int, int, int]], cut: int
) -> None:
    # Sectors, so that many requests cover pages only in part; some far away, in another chunk.
    rows = [
        (number, op, first + (number % 2) * (1 << 20), count * 512)
        for number, (op, first, count) in enumerate(drawn)
    ]
    expected = fates([(op, lba * 512, size) for _, op, lba, size in rows])
    if not rows:
        return
    found = stats_of(tmp_path / "t.parquet", rows).data["rewrites"]
    assert {name: found[f"{name}_bytes"] // 4096 for name in expected} == expected


def fates(requests: list[tuple[int, int, int]]) -> dict[str, int]:
    live: set[int] = set()
    ever: set[int] = set()
    counts = dict.fromkeys(("written", "overwritten", "discarded", "read", "read_of_written"), 0)
    for op, start, size in requests:
        touched = set(range(start // 4096, -(-(start + size) // 4096)))
        covered = set(range(-(-start // 4096), (start + size) // 4096))
        if op == W:
            counts["written"] += len(touched)
            counts["overwritten"] += len(touched & live)
            live |= touched
            ever |= touched
        elif op == R:
            counts["read"] += len(touched)
            counts["read_of_written"] += len(touched & live)
        else:
            counts["discarded"] += len(covered & live)
            live -= covered
    return counts | {"never_rewritten": len(live), "distinct_written": len(ever)}


@given(
    drawn=st.lists(st.tuples(st.integers(0, 50), st.integers(-1, 200)), min_size=1, max_size=80),
    size=st.integers(1, 30),
)
@settings(max_examples=50, deadline=None)
def test_queue_depth_equals_counting_overlaps(drawn: list[tuple[int, int]], size: int) -> None:
    now, requests = 0, []
    for gap, latency in drawn:
        now += gap + 1  # no two at the same time: then a completion may come first
        requests.append((now, latency if latency != 0 else 1))
    counter = QueueDepth()
    got: list[int] = []
    for first in range(0, len(requests), size):
        part = requests[first : first + size]
        got += counter.add(view([(ts, R, 0, 512, latency) for ts, latency in part])).tolist()
    for (issued, latency), depth in zip(requests, got, strict=True):
        flying = [1 for ts, taken in requests if taken >= 0 and ts <= issued < ts + taken]
        assert depth == (sum(flying) if latency >= 0 else 0)
    assert counter.unplaced == sum(latency < 0 for _, latency in requests)


def test_sequentiality_counts_each_operation_and_device_on_its_own(tmp_path: Path) -> None:
    rows = [
        (0, W, 0, 4096, None, 1),
        (1, R, 800, 4096, None, 1),
        (2, W, 8, 4096, None, 1),  # continues the first write
        (3, W, 16, 4096, None, 2),  # first of its device
        (4, R, 0, 4096, None, 1),  # jump back by 808 sectors
        (5, W, 1000, 4096, None, 1),  # jump forward by 984 sectors
        (6, W, 16, 4096, None, 1),  # a stream, but not the last one
        (7, D, 24, 4096, None, 1),
    ]
    locality = stats_of(tmp_path / "t.parquet", rows).data["locality"]
    write, read = locality["write"], locality["read"]
    assert write["sequential_share"] == 1 / 5
    assert write["sequential_share_8_streams"] == 2 / 5
    assert write["jump_bytes"]["count"] == 2
    assert write["jump_bytes"]["max"] == 992 * 512
    assert write["jump_bytes"]["min"] == 984 * 512
    assert write["jumps_forward_share"] == 0.5
    assert (read["sequential_share"], read["jumps_forward_share"]) == (0.0, 0.0)
    assert read["jump_bytes"]["max"] == 808 * 512


def test_interleaved_streams_are_recognised(tmp_path: Path) -> None:
    rows = [(i, W, (i % 6) * 100_000 + (i // 6) * 8, 4096) for i in range(600)]
    locality = stats_of(tmp_path / "t.parquet", rows).data["locality"]["write"]
    assert locality["sequential_share"] == 0.0
    assert locality["sequential_share_8_streams"] == pytest.approx(594 / 600)


def test_timeline_doubles_its_bins_and_keeps_the_sums() -> None:
    line = Timeline()
    depth = np.array([3])
    for second in range(0, 3000, 3):
        line.add(view([(second * SECOND, W if second % 2 else R, 0, 4096, 5)]), depth)
    got = line.result()
    assert len(got["reads"]) <= BINS
    assert got["bin_s"] * BINS >= 2997
    assert (sum(got["reads"]), sum(got["writes"])) == (500, 500)
    assert sum(got["read_bytes"]) == 500 * 4096
    assert set(got["depth_max"]) <= {0, 3}
    bins = int(1500 // got["bin_s"])
    assert sum(got["reads"][:bins]) == pytest.approx(250, abs=2)


def test_regions_split_requests_and_grow() -> None:
    regions = Regions()
    regions.add(view([(0, W, 16 * MIB - 4096, 8192, -1), (1, R, 0, 4096, -1)]))
    found = regions.result()
    assert found["region_bytes"] == 16 * MIB
    assert [(each["offset"], each["write_bytes"]) for each in found["hottest"]] == [
        (0, 4096),
        (16 * MIB, 4096),
    ]
    regions.add(view([(2 + i, W, i * 16 * MIB, 4096, -1) for i in range(20_000)]))
    found = regions.result()
    assert found["region_bytes"] == 32 * MIB
    assert found["touched_regions"] == 10_000
    total = sum(each["write_bytes"] for each in found["hottest"])
    assert total == 10 * 2 * 4096 + 8192


@given(
    extents=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 5000)), min_size=1),
    piece=st.integers(1, 3000),
)
@settings(max_examples=50, deadline=None)
def test_split_covers_every_byte_once(extents: list[tuple[int, int]], piece: int) -> None:
    start, size = (np.array(column, np.uint64) for column in zip(*extents, strict=True))
    row, number, length = split(start, size, piece)
    for index, (first, count) in enumerate(extents):
        mine = row == index
        assert length[mine].sum() == count
        assert number[mine].tolist() == list(
            range(first // piece, (first + count - 1) // piece + 1)
        )
        assert (length[mine] > 0).all()
        assert (length[mine] <= piece).all()


def test_the_sample_is_bounded_even_and_repeatable() -> None:
    def drawn() -> dict[str, Any]:
        sample = Sample()
        for first in range(0, 100_000, 10_000):
            sample.add(view([(first + i, R, 0, 512, -1) for i in range(10_000)]))
        return sample.arrays()

    one, two = drawn(), drawn()
    assert len(one["ts_ns"]) == SAMPLE_ROWS
    assert np.array_equal(one["ts_ns"], two["ts_ns"])
    assert np.all(np.diff(one["ts_ns"]) > 0)
    halves = np.count_nonzero(one["ts_ns"] < 50_000)
    assert abs(halves - SAMPLE_ROWS / 2) < 500


def mixed(tmp_path: Path, meta: TraceMeta | None = None) -> Any:
    rows: list[tuple[Any, ...]] = []
    for i in range(400):
        op = (W, R, W, R, D, F)[i % 6]
        size = 0 if op == F else (4096, 131_072)[i % 2]
        latency = None if i % 50 == 0 else 1000 * (1 + i)
        rows.append((i * 10_000_000, op, (i * 37 % 100) * 256, size, latency, i % 2))
    return stats_of(tmp_path / "t.parquet", rows, meta)


def test_totals(tmp_path: Path) -> None:
    data = mixed(tmp_path).data
    assert data["requests"] == 400
    assert data["duration_s"] == 3.99
    operations = data["operations"]
    assert {name: each["requests"] for name, each in operations.items()} == {
        "read": 134,
        "write": 134,
        "discard": 66,
        "flush": 66,
    }
    assert operations["read"]["without_latency"] + operations["write"]["without_latency"] == 6
    assert operations["flush"]["bytes"] == 0
    assert data["bytes"] == sum(each["bytes"] for each in operations.values())
    assert [each["requests"] for each in data["devices"]] == [200, 200]
    assert data["queue_depth"]["unplaced"] == 8


def test_tables_show_the_figures(tmp_path: Path) -> None:
    data = mixed(tmp_path).data
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for table in tables(data):
        console.print(table)
    text = console.export_text()
    for expected in ("write", "134", "queue depth", "overwrite factor", "0:1", "128 KiB x"):
        assert expected in text
    assert headline(data).startswith("400 requests, ")
    assert "over 3.99 s" in headline(data)


def test_a_trace_without_a_clock_says_so(tmp_path: Path) -> None:
    found = mixed(tmp_path, TraceMeta(source="oplist", notes=[NO_CLOCK_NOTE]))
    assert found.data["has_clock"] is False
    assert "no clock" in headline(found.data)
    names = {path.stem for path in write_plots(found, tmp_path / "plots")}
    assert "throughput" not in names
    assert "addresses" in names


@pytest.mark.parametrize("form", ["svg", "png"])
def test_plots_are_drawn_and_repeatable(tmp_path: Path, form: str) -> None:
    found = mixed(tmp_path)
    first = write_plots(found, tmp_path / "a", form)
    assert [path.name for path in first] == [
        f"{name}.{form}"
        for name in (
            "addresses",
            "throughput",
            "queue-depth",
            "request-sizes",
            "latency",
            "jumps",
            "rewrites",
        )
    ]
    second = write_plots(found, tmp_path / "b", form)
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    if form == "svg":
        for path in first:
            root = ElementTree.parse(path).getroot()
            assert root.tag.endswith("svg")
        text = (tmp_path / "a" / "latency.svg").read_text()
        assert "latency (ms)" in text
        assert "http://" not in text.replace("http://www.w3.org", "").replace(
            "http://purl.org", ""
        ).replace("http://creativecommons.org", "")


def test_an_empty_trace_has_no_statistics(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no requests"):
        collect(open_trace(write_trace(tmp_path / "t.parquet", [])))
