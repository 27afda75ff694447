"""Survey and plan: what fits, what is issued when, and in which parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.errors import UsageError
from harness.core.ops import Op
from harness.device.info import DeviceInfo
from harness.replay.options import ReplayOptions
from harness.replay.plan import Limits, Planner, limits_of
from harness.replay.rig import batch_limit, has_ring_discard, size_up
from harness.replay.survey import survey
from harness.replay.window import PART_FIRST, PART_LAST, Window, make_window
from harness.trace.parquet import open_trace

from .traces import MIB, write_trace

INFO = DeviceInfo(
    name="x0",
    path="/dev/x0",
    model=None,
    serial=None,
    wwid=None,
    backing_path=None,
    size_bytes=64 * MIB,
    logical_block=512,
    physical_block=512,
    max_sectors_kb=1280,
    max_segments=128,
    max_segment_size=65536,
    nr_requests=128,
    scheduler="none",
    nomerges=0,
    write_cache=None,
    discard_max_bytes=1 << 30,
    discard_granularity=4096,
    write_zeroes_max_bytes=0,
    rotational=False,
)


def plan(path: Path, options: ReplayOptions, limit: int = MIB) -> tuple[Planner, Window]:
    trace, window = open_trace(path), make_window(1 << 15)
    found = survey(trace, 64 * MIB, 512, discard=options.discard)
    limits = Limits(np.full(len(Op), limit, np.int64))
    planner = Planner(trace, found, options, limits, window)
    while planner.fill(window.size - planner.commands):
        pass
    return planner, window


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 900), min_size=1, max_size=20), limit=st.integers(1, 64))
def test_parts_cover_each_request_exactly_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int
) -> None:
    length = np.array(sizes) * 4096
    path = tmp_path_factory.mktemp("plan") / "t.parquet"
    write_trace(path, ts_ns=np.arange(len(sizes)), op=1, offset=8192, length=length)
    planner, window = plan(path, ReplayOptions(), limit * 4096)
    count = planner.commands
    assert planner.finished
    assert planner.requests == len(sizes)
    assert planner.bytes_moving == window.length[:count].sum() == length.sum()
    assert planner.splits == np.count_nonzero(length > limit * 4096)
    starts = np.flatnonzero(window.part[:count] & PART_FIRST)
    ends = np.flatnonzero(window.part[:count] & PART_LAST)
    for request, (start, end) in enumerate(zip(starts, ends, strict=True)):
        offsets, lengths = window.offset[start : end + 1], window.length[start : end + 1]
        assert offsets[0] == 8192
        assert (offsets[1:] == offsets[:-1] + lengths[:-1]).all()
        assert lengths.sum() == length[request]
        assert lengths.max() <= limit * 4096
        assert set(window.due[start : end + 1]) == {request}


def test_times_are_scaled_and_passes_follow_each_other(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t", ts_ns=[0, 1000, 3000, 9000], op=0, offset=0, length=4096)
    planner, window = plan(path, ReplayOptions(repeat=2, speed=2))
    # a pass lasts its 9000 ns and one mean gap of 3000
    assert window.due[: planner.commands].tolist() == [
        0, 500, 1500, 4500, 6000, 6500, 7500, 10500,
    ]  # fmt: skip
    assert planner.passes == 2
    assert planner.total_requests == 8


def test_until_counts_written_bytes_over_passes(tmp_path: Path) -> None:
    path = write_trace(
        tmp_path / "t", ts_ns=[0, 1, 2], op=[1, 0, 1], offset=0, length=[4096, 65536, 8192]
    )
    planner, window = plan(path, ReplayOptions(until_bytes=16384))
    kinds = window.kind[: planner.commands].tolist()
    assert kinds == [1, 0, 1, 1]
    assert planner.total_requests is None
    reads = write_trace(tmp_path / "r", ts_ns=[0, 1], op=0, offset=0, length=4096)
    planner, _ = plan(reads, ReplayOptions(until_bytes=12288))
    assert planner.requests == 3


def test_until_without_any_bytes_is_refused(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t", ts_ns=[0], op=Op.FLUSH, offset=0, length=0)
    with pytest.raises(UsageError, match="counts bytes"):
        plan(path, ReplayOptions(until_bytes=4096))


def test_what_is_not_replayed_is_counted(tmp_path: Path) -> None:
    path = write_trace(
        tmp_path / "t",
        ts_ns=np.arange(7),
        op=[0, 1, 2, 3, 4, 5, 0],
        offset=0,
        length=[4096, 4096, 4096, 0, 4096, 4096, 0],
    )
    everything = survey(open_trace(path), MIB, 512)
    assert everything.requests.tolist() == [1, 1, 1, 1, 1, 0]
    assert everything.left_out == 2
    without = survey(open_trace(path), MIB, 512, discard=False)
    assert without.requests.tolist() == [1, 1, 0, 1, 0, 0]
    assert without.left_out == 4
    planner, window = plan(path, ReplayOptions(discard=False))
    assert window.kind[: planner.commands].tolist() == [0, 1, 3]


@pytest.mark.parametrize(
    ("offset", "length", "block", "reason"),
    [
        (MIB - 4096, 8192, 512, "lies beyond the device of 1 MiB"),
        (MIB, 4096, 512, "lies beyond the device of 1 MiB"),
        (2**62, 4096, 512, "lies beyond the device of 1 MiB"),
        (512, 4096, 4096, "not aligned to the logical block of 4096 bytes"),
        (4096, 512, 4096, "not aligned to the logical block of 4096 bytes"),
    ],
)
def test_the_first_misfit_is_named(
    tmp_path: Path, offset: int, length: int, block: int, reason: str
) -> None:
    path = write_trace(
        tmp_path / "t",
        ts_ns=[0, 1, 2],
        op=1,
        offset=[0, offset, offset],
        length=[4096, length, length],
    )
    with pytest.raises(UsageError) as caught:
        survey(open_trace(path), MIB, block)
    assert f"row 1 (W, LBA {offset // 512}, {length} bytes)" in str(caught.value)
    assert reason in str(caught.value)
    assert caught.value.fix is not None
    assert "harness trace scale" in caught.value.fix


def test_a_trace_that_just_fits_is_taken(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t", ts_ns=[0], op=1, offset=MIB - 512, length=512)
    found = survey(open_trace(path), MIB, 512)
    assert found.end_bytes == MIB
    assert found.unit_bytes == 512


def test_an_empty_trace_is_refused(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t", ts_ns=[0], op=Op.OTHER, offset=0, length=4096)
    with pytest.raises(UsageError, match="nothing to replay"):
        survey(open_trace(path), MIB, 512)


def test_limits_follow_the_device_and_the_pages_of_the_buffers() -> None:
    assert limits_of(INFO, huge_pages=True).moving_bytes == 1280 << 10
    assert limits_of(INFO, huge_pages=False).moving_bytes == 512 << 10
    few = replace(INFO, max_segments=6)
    assert limits_of(few, huge_pages=True).moving_bytes == 4 * 65536
    assert limits_of(INFO, huge_pages=True).by_op[Op.DISCARD] == 1 << 30


def test_depth_stays_below_the_queue_and_within_memory() -> None:
    assert size_up(ReplayOptions(), INFO, 4096, 0).depth == 120
    lowered = size_up(ReplayOptions(depth=500), INFO, 4096, 0)
    assert lowered.depth == 120
    assert "nr_requests" in (lowered.note or "")
    assert size_up(ReplayOptions(depth=7), INFO, 4096, 0).depth == 7
    deep = replace(INFO, nr_requests=4096)
    limited = size_up(ReplayOptions(depth=2048), deep, MIB, MIB)
    assert limited.depth == 256
    assert "memory" in (limited.note or "")
    assert size_up(ReplayOptions(queues=2, depth=7), INFO, 4096, 0).depth == 6


def test_batches_stay_below_the_plug_where_it_reverses_order() -> None:
    assert batch_limit("6.12.3-amd64") == batch_limit("6.1.0-18") == 2
    assert batch_limit("6.13.0") == batch_limit("7.0") == 32
    assert has_ring_discard("6.12.0")
    assert not has_ring_discard("6.11.9")


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ({"mode": "fast"}, "unknown mode 'fast'"),
        ({"engine": "dd"}, "unknown engine 'dd'"),
        ({"speed": 0}, "speed must be positive"),
        ({"depth": -1}, "depth must be positive"),
        ({"until_bytes": 0}, "until-bytes must be positive"),
        ({"verify": True, "zero": True}, "stamped payloads"),
        ({"verify": True, "queues": 2}, "needs one queue"),
        ({"until_bytes": 4096, "repeat": 2}, "leave --repeat out"),
        ({"mode": "flat-out", "speed": 2}, "means nothing flat out"),
        ({"mode": "closed-loop", "queues": 2}, "one queue"),
        ({"engine": "fio", "mode": "closed-loop"}, "no closed loop"),
        ({"engine": "fio", "verify": True}, "no --verify"),
        ({"engine": "fio", "until_bytes": 1}, "no --until"),
    ],
)
def test_options_that_make_no_sense_are_refused(choice: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        ReplayOptions(**choice)  # type: ignore[arg-type]
