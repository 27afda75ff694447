"""Scaling, slicing and merging: what stays the same, what is said, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from harness.core.errors import UsageError
from harness.trace.clock import common_offsets, shifted_start, started_ns
from harness.trace.convert import write_source
from harness.trace.merge import MergedTrace
from harness.trace.parquet import open_trace
from harness.trace.scale import ScaledTrace, Scaling
from harness.trace.schema import NO_CLOCK_NOTE, DeviceMeta, TraceMeta
from harness.trace.slicing import Cut, SlicedTrace, device_number
from tests.trace.helpers import read_rows, rows_of, table_of, write_trace
from tests.trace.samples import MIB, D, F, R, W

GIB = 1 << 30
Row = tuple[Any, ...]

sector_requests = st.lists(
    st.tuples(st.sampled_from([R, W, D]), st.integers(0, 200_000), st.integers(1, 5000)),
    min_size=1,
    max_size=30,
)


def sectors(rows: list[Row]) -> list[list[int]]:
    """The sectors each request touches, in order."""
    return [list(range(lba, lba + size // 512)) for _, _, lba, size, *_ in rows]


def scaled(folder: Path, rows: list[Row], scaling: Scaling) -> tuple[list[Row], ScaledTrace]:
    trace = ScaledTrace(open_trace(write_trace(folder / "in.parquet", rows)), scaling)
    return rows_of(table_of(trace)), trace


def numbered(drawn: list[tuple[int, int, int]]) -> list[Row]:
    return [(i, op, lba, count * 512, None, 0) for i, (op, lba, count) in enumerate(drawn)]


def test_time_is_scaled_and_latencies_are_not(tmp_path: Path) -> None:
    rows = [(0, W, 0, 512, 700, 0), (1001, R, 8, 512, None, 0)]
    got, trace = scaled(tmp_path, rows, Scaling(time=0.5))
    assert got == [(0, W, 0, 512, 700, 0), (500, R, 8, 512, None, 0)]
    assert trace.meta.history == ["scale time x0.5 (latencies as measured)"]
    assert not trace.meta.stretched


@given(drawn=sector_requests)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_compacting_keeps_identity_order_and_requests(
    tmp_path: Path, drawn: list[tuple[int, int, int]]
) -> None:
    rows = numbered(drawn)
    pages = {sector // 8 for each in sectors(rows) for sector in each}
    # The smallest size that holds what is touched, in whole granules for the check of sizes.
    size = max(len(pages) * 4096, MIB)
    got, trace = scaled(tmp_path, rows, Scaling(size_bytes=size, mode="compact"))
    moved: dict[int, int] = {}
    for before, after in zip(sectors(rows), sectors(got), strict=True):
        assert len(before) == len(after)
        for old, new in zip(before, after, strict=True):
            assert moved.setdefault(old, new) == new
    assert len(set(moved.values())) == len(moved)
    assert max(moved.values()) < size // 512
    assert sorted(moved) == sorted(moved, key=lambda old: moved[old])
    assert trace.report.aliased_pages == 0
    assert not trace.meta.stretched


@given(drawn=sector_requests, factor=st.sampled_from([1, 1.3, 2, 7.7]))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_stretching_a_device_aliases_nothing(
    tmp_path: Path, drawn: list[tuple[int, int, int]], factor: float
) -> None:
    rows = numbered(drawn)
    top = max(max(each) for each in sectors(rows)) * 512 + 512
    granules = -(-top // (64 * 1024))
    size = int(granules * factor) * 64 * 1024 + 64 * 1024
    scaling = Scaling(size_bytes=size, mode="stretch", granule_bytes=64 * 1024)
    got, trace = scaled(tmp_path, rows, scaling)
    before = [sector for each in sectors(rows) for sector in each]
    after = [sector for each in sectors(got) for sector in each]
    moved: dict[int, int] = {}
    for old, new in zip(before, after, strict=True):
        assert moved.setdefault(old, new) == new
    assert len(set(moved.values())) == len(moved)
    assert max(after) < size // 512
    assert trace.report.aliased_pages == 0
    assert trace.report.cut_requests == len(got) - len(rows)
    assert trace.meta.stretched


def test_shrinking_aliases_only_when_asked_and_counts_it(tmp_path: Path) -> None:
    # 4 MiB written once, page by page; folded to 1 MiB three of four pages share a place.
    rows = [(i, W, i * 8, 4096, None, 0) for i in range(1024)]
    for mode in ("fold", "stretch"):
        scaling = Scaling(size_bytes=MIB, mode=mode)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="768 distinct 4 KiB pages on top of others"):
            scaled(tmp_path, rows, scaling)
        allowed = Scaling(size_bytes=MIB, mode=mode, allow_alias=True)  # type: ignore[arg-type]
        got, trace = scaled(tmp_path, rows, allowed)
        assert trace.report.aliased_pages == 768
        assert max(row[2] * 512 + row[3] for row in got) <= MIB
        assert trace.meta.stretched
        assert "768 pages aliased" in trace.meta.history[-1]


def test_auto_keeps_what_fits_and_compacts_what_does_not(tmp_path: Path) -> None:
    rows = [(0, W, 0, 4096, None, 0), (1, W, (GIB - 4096) // 512, 4096, None, 0)]
    got, trace = scaled(tmp_path, rows, Scaling(size_bytes=2 * GIB))
    assert (got, trace.report.mode) == (rows, "keep")
    assert trace.meta.device == DeviceMeta(size_bytes=2 * GIB)
    got, trace = scaled(tmp_path, rows, Scaling(size_bytes=MIB))
    assert ([row[2] for row in got], trace.report.mode) == ([0, 8], "compact")
    assert trace.report.touched_bytes == 8192


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    rows = [(i, W, i * 2048, MIB, None, 0) for i in range(3)]
    with pytest.raises(UsageError, match="reaches 3 MiB, beyond the new size 2 MiB"):
        scaled(tmp_path, rows, Scaling(size_bytes=2 * MIB, mode="keep"))
    with pytest.raises(UsageError, match="touches 3 MiB, more than the new size 2 MiB"):
        scaled(tmp_path, rows, Scaling(size_bytes=2 * MIB))
    two = [(0, W, 0, 512, None, 1), (1, W, 0, 512, None, 2)]
    with pytest.raises(UsageError, match="2 devices"):
        scaled(tmp_path, two, Scaling(size_bytes=2 * MIB))


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        (Scaling(time=0), "time factor"),
        (Scaling(align=100), "multiple of 512"),
        (Scaling(granule_bytes=512), "multiple of 4096"),
        (Scaling(size_bytes=4096), "at least a granule"),
        (Scaling(size_bytes=2 * MIB + 512, align=4096), "multiple of the alignment"),
    ],
)
def test_scalings_that_make_no_sense(tmp_path: Path, scaling: Scaling, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        scaled(tmp_path, [(0, W, 0, 512)], scaling)


def test_alignment_widens_and_says_so(tmp_path: Path) -> None:
    rows = [(0, W, 9, 512, None, 0), (1, R, 8, 4096, None, 0), (2, F, 0, 0, None, 0)]
    got, trace = scaled(tmp_path, rows, Scaling(align=4096))
    assert got == [(0, W, 8, 4096, None, 0), rows[1], rows[2]]
    assert trace.report.widened_requests == 1
    assert trace.meta.history == ["scale align 4096, 1 requests widened"]
    assert table_of(trace)["pages"].to_pylist() == [1, 1, 0]


TEN = [(i * 100, (R, W, D)[i % 3], i * 8, 4096, None, i % 2) for i in range(10)]


def sliced(folder: Path, cut: Cut, meta: TraceMeta | None = None) -> tuple[list[Row], TraceMeta]:
    trace = SlicedTrace(open_trace(write_trace(folder / "in.parquet", TEN, meta)), cut)
    rows = rows_of(table_of(trace))
    return rows, trace.meta


def test_slices(tmp_path: Path) -> None:
    def lbas(cut: Cut) -> list[int]:
        return [row[2] // 8 for row in sliced(tmp_path, cut)[0]]

    assert lbas(Cut(from_ns=200, to_ns=500)) == [2, 3, 4]
    assert lbas(Cut(ops="WD")) == [1, 2, 4, 5, 7, 8]
    assert lbas(Cut(devices=(1,))) == [1, 3, 5, 7, 9]
    assert lbas(Cut(low=4096 * 3 + 1, high=4096 * 5)) == [3, 4]
    assert lbas(Cut(first=3, ops="R")) == [0, 3, 6]
    rows, meta = sliced(tmp_path, Cut(from_ns=250))
    assert [row[0] for row in rows] == [i * 100 for i in range(7)]
    assert meta.history == ["slice from_ns=250"]


def test_slices_move_the_start(tmp_path: Path) -> None:
    meta = TraceMeta(started="2026-11-29T23:59:59.999999900Z", clock_zero_ns=1000)
    _, after = sliced(tmp_path, Cut(from_ns=200), meta)
    assert after.started == "2026-11-30T00:00:00.000000100Z"
    assert after.clock_zero_ns == 1200


def test_slices_that_make_no_sense(tmp_path: Path) -> None:
    for cut, message in (
        (Cut(ops="RX"), "not an operation: X"),
        (Cut(from_ns=5, to_ns=5), "time range is empty"),
        (Cut(low=8, high=4), "address range is empty"),
        (Cut(from_ns=10**12), "holds no request"),
    ):
        with pytest.raises(UsageError, match=message):
            sliced(tmp_path, cut)


def test_device_numbers() -> None:
    assert (device_number("259:3"), device_number("77")) == (259 << 20 | 3, 77)
    for wrong in ("nvme0n1", "a:1", "1:", "9999:0", "-1"):
        with pytest.raises(UsageError):
            device_number(wrong)


def merged(folder: Path, parts: list[tuple[list[Row], TraceMeta]], align: str = "auto") -> Any:
    paths = [
        write_trace(folder / f"{number}.parquet", rows, meta)
        for number, (rows, meta) in enumerate(parts)
    ]
    return MergedTrace([open_trace(path) for path in paths], align)  # type: ignore[arg-type]


def meta(**values: Any) -> TraceMeta:
    return TraceMeta(source="test", **values)


def test_merging_on_the_recorders_clock(tmp_path: Path) -> None:
    one = ([(0, W, 0, 512, 7, 1), (50, W, 8, 512, 7, 1)], meta(host="a", clock_zero_ns=1000))
    two = ([(0, R, 0, 512, None, 2), (10, R, 8, 512, 7, 2)], meta(host="a", clock_zero_ns=970))
    trace = merged(tmp_path, [one, two])
    assert rows_of(table_of(trace)) == [
        (0, R, 0, 512, None, 2),
        (10, R, 8, 512, 7, 2),
        (30, W, 0, 512, 7, 1),
        (80, W, 8, 512, 7, 1),
    ]
    assert (trace.meta.host, trace.meta.clock_zero_ns) == ("a", 970)
    assert trace.meta.history[-1] == "merge of 2 traces, aligned by: recorder's clock"


def test_merging_hosts_on_the_wall_clock(tmp_path: Path) -> None:
    # Monotonic clocks of two hosts have nothing in common, whatever they show.
    one = ([(0, W, 0, 512)], meta(host="a", clock_zero_ns=5, started="2026-01-01T00:00:01Z"))
    two = ([(0, R, 0, 512)], meta(host="b", clock_zero_ns=900, started="2026-01-01T00:00:00.5Z"))
    trace = merged(tmp_path, [one, two])
    assert [row[:3] for row in rows_of(table_of(trace))] == [(0, R, 0), (500_000_000, W, 0)]
    assert trace.meta.host == "a, b"
    assert trace.meta.clock_zero_ns is None
    assert table_of(trace)["dev"].to_pylist() == [1 << 20, 0]
    assert "dev 1:0 is 0:0 of 1.parquet" in trace.meta.notes


def test_merging_needs_a_common_clock(tmp_path: Path) -> None:
    parts = [([(0, W, 0, 512)], meta()), ([(5, R, 0, 512)], meta(clock_zero_ns=5))]
    with pytest.raises(UsageError, match="2 of the traces do not say when they started"):
        merged(tmp_path, parts)
    with pytest.raises(UsageError, match="1 of the traces do not say when they started"):
        merged(tmp_path, parts, "clock")
    trace = merged(tmp_path, parts, "start")
    assert [row[0] for row in rows_of(table_of(trace))] == [0, 5]
    with pytest.raises(UsageError, match="two traces or more"):
        merged(tmp_path, parts[:1])


def test_the_worst_verdict_and_all_losses_are_kept(tmp_path: Path) -> None:
    def verdict(*given: tuple[str | None, int | None]) -> tuple[str | None, int | None]:
        parts = [([(0, W, 0, 512)], meta(verdict=said, events_lost=lost)) for said, lost in given]
        found = merged(tmp_path, parts, "start").meta
        return found.verdict, found.events_lost

    assert verdict(("LOSSLESS", 0), ("LOSSLESS", 0)) == ("LOSSLESS", 0)
    assert verdict(("LOSSLESS", 0), ("UNKNOWN", 2)) == ("UNKNOWN", 2)
    assert verdict(("LOSSY", 3), ("UNKNOWN", 2)) == ("LOSSY", 5)
    assert verdict(("LOSSLESS", 0), (None, None)) == ("UNKNOWN", None)
    assert verdict((None, 1), (None, 1)) == (None, 2)


def test_a_merge_keeps_order_only_notes_and_stretches(tmp_path: Path) -> None:
    parts = [
        ([(0, W, 0, 512)], meta(notes=[NO_CLOCK_NOTE])),
        ([(0, W, 0, 512)], meta(history=["scale stretch 1 -> 2 bytes, 0 pages aliased"])),
    ]
    found = merged(tmp_path, parts, "start").meta
    assert (found.has_clock, found.stretched) == (False, True)


times = st.lists(st.integers(0, 100), min_size=1, max_size=30).map(sorted)


@given(parts=st.lists(times, min_size=2, max_size=4), offsets=st.lists(st.integers(0, 50)))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_merging_is_one_stable_sort(
    tmp_path: Path, parts: list[list[int]], offsets: list[int]
) -> None:
    assume(len(offsets) >= len(parts))
    zeros = offsets[: len(parts)]
    given_parts = [
        (
            [(ts, W, i, 512, None, part) for i, ts in enumerate(each)],
            meta(host="h", clock_zero_ns=z),
        )
        for part, (each, z) in enumerate(zip(parts, zeros, strict=True))
    ]
    trace = merged(tmp_path, given_parts)
    write_source(trace, tmp_path / "out.parquet", "parquet")
    expected = sorted(
        (
            (ts + zero - min(zeros), W, i, 512, None, part)
            for part, (each, zero) in enumerate(zip(parts, zeros, strict=True))
            for i, ts in enumerate(each)
        ),
        key=lambda row: (row[0], row[5], row[2]),
    )
    assert read_rows(tmp_path / "out.parquet") == expected


def test_starts_keep_nanoseconds() -> None:
    assert started_ns(meta(started="1970-01-01T00:00:01.5Z")) == 1_500_000_000
    assert started_ns(meta(started="2026-11-29T12:00:00+00:00")) is not None
    assert started_ns(meta()) is None
    with pytest.raises(UsageError, match="not a UTC time"):
        started_ns(meta(started="yesterday"))
    assert shifted_start(meta(), 5) == meta()
    offsets, what = common_offsets([meta(started="1970-01-01T00:00:01.000000001Z")] * 2, "auto")
    assert (offsets, what) == ([0, 0], "wall clock")


def test_footprint_of_a_terabyte_is_small(tmp_path: Path) -> None:
    rows = [(i, W, i * (1 << 31), 4096, None, 0) for i in range(8)]
    got, trace = scaled(tmp_path, rows, Scaling(size_bytes=MIB))
    assert [row[2] for row in got] == [8 * i for i in range(8)]
    assert trace.report.source_bytes == 7 * (1 << 40) + 4096
    assert np.all(np.diff([row[2] for row in got]) > 0)
