"""Joining block traces to the store's log, and what became of written bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.capture.session import Capture
from harness.core.errors import UsageError
from harness.device.guard import open_guarded
from harness.device.loop import LoopDevice
from harness.stores.annotate import annotate
from harness.stores.attribution import Attribution
from harness.stores.emit import emit
from harness.stores.object_log import BUFFERED_KEY, LOG_SCHEMA
from harness.stores.registry import make_store
from harness.stores.requests.load import open_requests
from harness.trace.parquet import TraceWriter, open_trace
from harness.trace.schema import TraceMeta

MIB = 1 << 20


def write_trace(path: Path, rows: list[tuple[int, str, int, int]], zero: int | None) -> Path:
    """Rows of (ts_ns, op letter, offset, bytes)."""
    letters = "RWDFZN"
    with TraceWriter(path, TraceMeta(clock_zero_ns=zero), durable=False) as writer:
        writer.write(
            {
                "ts_ns": np.array([r[0] for r in rows], np.int64),
                "op": np.array([letters.index(r[1]) for r in rows], np.int8),
                "lba": np.array([r[2] // 512 for r in rows], np.uint64),
                "bytes": np.array([r[3] for r in rows], np.uint64),
                "pages": np.array([-(-r[3] // 4096) for r in rows], np.uint32),
                "flags": np.zeros(len(rows), np.uint16),
                "dev": np.zeros(len(rows), np.uint32),
                "error": np.zeros(len(rows), np.int32),
            }
        )
    return path


def write_log(path: Path, rows: list[tuple[int, int, int, int, int, str, int]]) -> Path:
    """Rows of (issue, done, offset, length, op, class, key)."""
    table = pa.table(
        {
            "issue_ns": [r[0] for r in rows],
            "done_ns": [r[1] for r in rows],
            "offset": pa.array([r[2] for r in rows], pa.uint64()),
            "length": pa.array([r[3] for r in rows], pa.uint64()),
            "op": pa.array([r[4] for r in rows], pa.uint8()),
            "object_class": pa.array([r[5] for r in rows]).dictionary_encode(),
            "stream": pa.array([0] * len(rows), pa.uint16()),
            "session": pa.array([7] * len(rows), pa.uint32()),
            "turn": pa.array([2] * len(rows), pa.uint32()),
            "layer": pa.array([-1] * len(rows), pa.int32()),
            "key": pa.array([r[6] for r in rows], pa.uint64()),
        }
    ).select(LOG_SCHEMA.names)
    pq.write_table(table, path)
    return path


SECOND = 10**9


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(
        tmp_path / "log.parquet",
        [
            (100 * SECOND, 101 * SECOND, 0, MIB, 1, "full-attention", 11),
            (102 * SECOND, 103 * SECOND, 0, MIB, 0, "full-attention", 11),
            (104 * SECOND, 105 * SECOND, 0, MIB, 1, "fixed-state", 12),
            (104 * SECOND, 105 * SECOND, MIB, 4096, 1, "header", 13),
        ],
    )


def test_requests_get_the_object_of_the_call_in_flight(tmp_path: Path, log: Path) -> None:
    half = MIB // 2
    trace = write_trace(
        tmp_path / "t.parquet",
        [
            (0, "W", 0, half), (1000, "W", half, half), (2 * SECOND + 5, "R", 0, MIB),
            (4 * SECOND + 5, "W", half, half), (4 * SECOND + 6, "W", MIB, 4096),
            (4 * SECOND + 7, "W", 8 * MIB, 4096), (9 * SECOND, "W", 0, half),
        ],
        zero=100 * SECOND,
    )  # fmt: skip
    out = tmp_path / "out.parquet"
    result = annotate(trace, log, out)
    table = open_trace(out).table()
    assert table.column("key").to_pylist() == [11, 11, 11, 12, 13, None, None]
    assert table.column("object_class").to_pylist() == [
        "full-attention", "full-attention", "full-attention", "fixed-state", "header", None, None,
    ]  # fmt: skip
    assert table.column("session").to_pylist()[:5] == [7] * 5
    data = result.as_json()
    assert (data["matched"], data["unmatched"], data["clock_offset_from"]) == (5, 2, "recorder")
    kv = data["by_class"]["full-attention"]
    assert kv["reads_per_written_byte"] == 1.0
    assert kv["read_before_overwrite_share"] == 1.0  # both halves were read, then overwritten


def test_a_write_back_belongs_to_the_last_call_that_wrote_its_page(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "log.parquet",
        [
            (100 * SECOND, 101 * SECOND, 0, MIB, 1, "full-attention", 11),
            (102 * SECOND, 103 * SECOND, MIB // 2, MIB // 2, 1, "fixed-state", 12),
            (200 * SECOND, 201 * SECOND, 0, MIB, 1, "full-attention", 13),
        ],
    )
    table = pq.read_table(log)
    pq.write_table(table.replace_schema_metadata({BUFFERED_KEY: b"1"}), log)
    trace = write_trace(
        tmp_path / "t.parquet",
        [
            (0, "W", 0, 4096), (50 * SECOND, "W", 0, MIB // 2),
            (50 * SECOND, "W", MIB // 2, MIB // 2), (50 * SECOND, "R", 0, MIB),
            (50 * SECOND, "W", 2 * MIB, MIB), (150 * SECOND, "W", MIB // 2, MIB // 2),
        ],
        zero=100 * SECOND,
    )  # fmt: skip
    out = tmp_path / "out.parquet"
    result = annotate(trace, log, out)
    # Reads and pages of others have no call, as with direct I/O.
    assert open_trace(out).table().column("key").to_pylist() == [11, 11, 12, None, None, 13]
    assert (result.matched, result.unmatched) == (4, 2)


def test_without_a_common_clock_the_calls_themselves_give_it(tmp_path: Path, log: Path) -> None:
    trace = write_trace(
        tmp_path / "t.parquet",
        [
            (0, "W", 0, MIB), (2 * SECOND, "R", 0, MIB), (4 * SECOND, "W", 0, MIB),
            (4 * SECOND + 9, "W", MIB, 4096),
        ],
        zero=None,
    )  # fmt: skip
    result = annotate(trace, log, tmp_path / "out.parquet")
    assert (result.matched, result.offset_from) == (4, "matching calls")
    assert result.offset_ns == pytest.approx(100 * SECOND, abs=10)


def test_a_log_of_something_else_is_refused(tmp_path: Path, log: Path) -> None:
    trace = write_trace(tmp_path / "t.parquet", [(0, "W", 64 * MIB, 4096)], zero=None)
    with pytest.raises(UsageError, match="hardly a call in common"):
        annotate(trace, log, tmp_path / "out.parquet")
    with pytest.raises(UsageError, match="is no log of objects"):
        annotate(trace, trace, tmp_path / "out.parquet")
    with pytest.raises(UsageError, match="cannot read"):
        annotate(trace, tmp_path / "absent.parquet", tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_attribution_counts_reads_before_overwrites_by_page(tmp_path: Path) -> None:
    page = 4096
    path = write_trace(
        tmp_path / "t.parquet",
        [
            (0, "W", 0, 4 * page), (1, "R", 0, page), (2, "R", 0, page), (3, "W", 0, 2 * page),
            (4, "R", 3 * page, page), (5, "R", 9 * page, page),
        ],
        zero=0,
    )  # fmt: skip
    attribution = Attribution()
    for batch in open_trace(path).batches():
        attribution.add(batch, np.array([0, 0, 0, 1, 0, -1]))
    report = attribution.report()
    kv = report["full-attention"]
    assert kv["written_bytes"] == 4 * page
    assert kv["reads_per_written_byte"] == 0.75
    assert kv["overwritten_bytes"] == 2 * page
    assert kv["read_before_overwrite_share"] == 0.5
    assert kv["never_read_share"] == 0.5  # pages 1 (overwritten) and 2 (live)
    assert report["fixed-state"]["never_read_share"] == 1.0
    assert report["unknown"]["read_but_not_written_bytes"] == page


@pytest.mark.root
@pytest.mark.parametrize("name", ["lmcache-raw-block", "session-contiguous"])
def test_every_request_of_a_captured_emission_finds_its_object(tmp_path: Path, name: str) -> None:
    with (
        LoopDevice(640 << 20, tmp_path) as loop,
        open_guarded(loop.path, own=True) as target,
    ):
        store = make_store(name, target.size_bytes, "llama-3.1-8b-tp8")
        objects = tmp_path / "objects.parquet"
        with Capture(loop.path, tmp_path / "t.parquet") as capture:
            traffic = open_requests("chat", seed=7)
            done = emit(store, traffic, target, seed=7, limit=16, objects=objects)
    assert capture.result is not None
    result = annotate(tmp_path / "t.parquet", objects, tmp_path / "annotated.parquet")
    data = result.as_json()
    assert data["unmatched"] == 0
    for direction, figure in (("writes", "written_bytes"), ("reads", "read_bytes")):
        for label, counted in done.report[direction]["by_class"].items():
            assert data["by_class"][label][figure] == counted["bytes"]
