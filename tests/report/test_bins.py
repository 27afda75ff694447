"""Binning a trace: sums are kept, whatever the batches, and depth is counted exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.ops import Op
from harness.report.axis import GrowingAxis
from harness.report.bins import TraceBins, bin_trace
from harness.report.depth import DepthAtIssue
from harness.trace.columns import batch_from_arrays
from harness.trace.parquet import TraceWriter, open_trace
from harness.trace.schema import TraceMeta

_ROWS = st.lists(
    st.tuples(
        st.integers(0, 10**9) | st.integers(0, 1),  # gap to the request before, ns
        st.sampled_from([0, 0, 1, 1, 2, 3]),
        st.integers(0, 1 << 33),  # sector
        st.integers(0, 5000),  # sectors
        st.integers(-1, 10**9) | st.integers(-1, 2),  # latency, -1 for none
    ),
    min_size=1,
    max_size=60,
)


def _arrays(rows: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
    gap, op, lba, sectors, latency = (np.array(c, dtype=np.int64) for c in zip(*rows, strict=True))
    return {
        "ts_ns": np.cumsum(gap) - gap[0],
        "op": op.astype(np.uint8),
        "lba": lba.astype(np.uint64),
        "bytes": (sectors * 512).astype(np.uint64),
        "latency_ns": latency,
    }


def _binned(arrays: dict[str, np.ndarray], cut: int) -> TraceBins:
    bins = TraceBins()
    for part in (slice(None, cut), slice(cut, None)):
        bins.add(batch_from_arrays({name: values[part] for name, values in arrays.items()}))
    return bins


def _depth_by_hand(ts: np.ndarray, latency: np.ndarray) -> list[int]:
    seen = latency >= 0
    start, end = ts[seen], ts[seen] + np.maximum(latency[seen], 1)
    return [int((end[: i + 1] > start[i]).sum()) for i in range(len(start))]


@given(rows=_ROWS, share=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_sums_do_not_depend_on_how_the_trace_is_cut(
    rows: list[tuple[int, ...]], share: float
) -> None:
    arrays = _arrays(rows)
    bins = _binned(arrays, int(share * len(rows)))
    op, size, latency = arrays["op"], arrays["bytes"], arrays["latency_ns"]
    assert bins.rows == len(rows)
    assert bins.size_bytes.sum() == size.sum()
    for code in (Op.READ, Op.WRITE):
        mine = size[op == code].sum()
        assert bins.bytes_map[code].sum() == mine
        assert bins.bytes_over_time[code].sum() == mine
        assert sum(length * n for length, n in bins.sizes(code).items()) == mine
    assert bins.completions_missing == int((latency < 0).sum())
    assert bins.latency_counts.sum() == int((latency >= 0).sum())
    assert bins.busy_ns.sum() == pytest.approx(latency[latency >= 0].sum(), rel=1e-9, abs=1)
    assert bins.busy_ns.min() >= -1e-3


@given(rows=_ROWS, share=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_depth_at_issue_is_counted_exactly(rows: list[tuple[int, ...]], share: float) -> None:
    arrays = _arrays(rows)
    ts, latency = arrays["ts_ns"], arrays["latency_ns"]
    cut = int(share * len(rows))
    depth = DepthAtIssue()
    depth.add(ts[:cut], latency[:cut])
    depth.add(ts[cut:], latency[cut:])
    expected = np.bincount(_depth_by_hand(ts, latency), minlength=1)
    assert depth.counts[: len(expected)].tolist() == expected.tolist()
    assert depth.counts.sum() == expected.sum()


def test_mean_depth_of_two_requests_that_overlap_half() -> None:
    bins = TraceBins()
    bins.add(
        batch_from_arrays(
            {
                "ts_ns": np.array([0, 500], np.int64),
                "op": np.zeros(2, np.uint8),
                "lba": np.zeros(2, np.uint64),
                "bytes": np.full(2, 512, np.uint64),
                "latency_ns": np.array([1000, 1000], np.int64),
            }
        )
    )
    assert bins.time.width == 1000
    assert bins.mean_depth()[:3].tolist() == [1.5, 0.5, 0.0]


def test_latency_quantiles_are_right_to_the_width_of_a_bin() -> None:
    random = np.random.default_rng(5)
    latency = random.lognormal(12, 1, 20_000).astype(np.int64)
    bins = TraceBins()
    bins.add(
        batch_from_arrays(
            {
                "ts_ns": np.arange(20_000, dtype=np.int64),
                "op": np.ones(20_000, np.uint8),
                "lba": np.zeros(20_000, np.uint64),
                "bytes": np.full(20_000, 4096, np.uint64),
                "latency_ns": latency,
            }
        )
    )
    shares = np.array([0.5, 0.99, 0.999])
    exact = np.quantile(latency, shares, method="inverted_cdf")
    assert bins.latency_ns(Op.WRITE, shares) == pytest.approx(exact, rel=0.012)
    assert np.isnan(bins.latency_ns(Op.READ, shares)).all()


@pytest.mark.parametrize("factor", [1, 2, 8, 16])
def test_folding_an_axis_keeps_sums_and_places(factor: int) -> None:
    axis = GrowingAxis(8, 10)
    folded = axis.fold(np.arange(1.0, 9.0), factor, axis=0)
    assert folded.sum() == 36.0
    assert folded[0] == sum(range(1, min(factor, 8) + 1))


def test_the_axis_grows_to_hold_what_comes() -> None:
    axis = GrowingAxis(8, 10)
    assert axis.factor_for(79) == 1
    assert axis.factor_for(80) == 2
    axis.widen(axis.factor_for(1000))
    assert axis.top == 1280
    assert axis.bins_of(np.array([1000])).tolist() == [6]


def test_recorded_depth_and_classes_are_taken_from_the_trace(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "ts_ns": np.arange(4, dtype=np.int64),
        "op": np.ones(4, np.uint8),
        "lba": np.zeros(4, np.uint64),
        "bytes": np.full(4, 4096, np.uint64),
        "queue_depth": np.array([1, 2, 3, 9], np.uint32),
        "object_class": ["header", None, "header", "header"],
    }
    with TraceWriter(
        tmp_path / "t.parquet", TraceMeta(), optional=["queue_depth", "object_class"]
    ) as writer:
        writer.write(columns)
    bins = bin_trace(open_trace(tmp_path / "t.parquet"))
    assert bins.depth.deepest == 9
    assert bins.depth.quantile(0.5) == 2
    assert bins.classes == {"header": (3, 12288.0), "not attributed": (1, 4096.0)}
    assert bins.completions_missing == 4


def test_an_empty_trace_has_empty_bins(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t.parquet", TraceMeta()):
        pass
    bins = bin_trace(open_trace(tmp_path / "t.parquet"))
    assert bins.rows == 0
    assert bins.depth.quantile(0.5) == 0


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    rows = 1 << 18
    random = np.random.default_rng(1)
    with TraceWriter(tmp_path / "t.parquet", TraceMeta(), durable=False) as writer:
        for part in range(8):
            writer.write(
                {
                    "ts_ns": np.arange(rows, dtype=np.int64) + part * rows,
                    "op": np.ones(rows, np.uint8),
                    "lba": random.integers(0, 1 << 40, rows).astype(np.uint64),
                    "bytes": np.full(rows, 4096, np.uint64),
                    "latency_ns": random.integers(0, 1 << 30, rows),
                }
            )
    held = []
    bin_trace(
        open_trace(tmp_path / "t.parquet"),
        lambda done, total, note="": held.append(pa.total_allocated_bytes()),
    )
    assert len(held) == 8
    assert max(held) < held[0] + 2_000_000
