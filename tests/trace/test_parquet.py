"""Trace files: what is written comes back, and damage is one clear error."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.errors import UsageError
from harness.trace.columns import batch_from_arrays, latencies, op_codes, pages_touched
from harness.trace.parquet import TraceWriter, open_trace
from harness.trace.schema import SCHEMA, DeviceMeta, TraceMeta, trace_schema


def arrays(rows: int, first_ts_ns: int = 0) -> dict[str, Any]:
    number = np.arange(rows)
    return {
        "ts_ns": first_ts_ns + number.astype(np.int64) * 1000,
        "op": (number % 6).astype(np.uint8),
        "lba": number.astype(np.uint64) * np.uint64(8),
        "bytes": np.full(rows, 4096, np.uint64),
        "latency_ns": np.where(number % 3 == 0, -1, number).astype(np.int64),
    }


@pytest.mark.parametrize("durable", [True, False])
def test_round_trip_over_several_segments(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "t.parquet"
    meta = TraceMeta(device=DeviceMeta(name="loop7", size_bytes=1 << 30), verdict="LOSSLESS")
    with TraceWriter(path, meta, durable=durable, segment_rows=1) as writer:
        for part in range(3):
            writer.write(arrays(300_000, part * 300_000_000))
        writer.meta = meta.noted("seen")
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.parquet"]
    trace = open_trace(path)
    assert (trace.rows, trace.size_bytes) == (900_000, path.stat().st_size)
    assert trace.meta == meta.noted("seen")
    table = trace.table()
    assert table.schema.equals(SCHEMA)
    one = arrays(300_000)
    assert np.array_equal(op_codes(table["op"]), np.tile(one["op"], 3))
    assert np.array_equal(latencies(table["latency_ns"]), np.tile(one["latency_ns"], 3))
    assert np.array_equal(table["ts_ns"].to_numpy(), np.arange(900_000) * 1000)


def test_rows_are_amended_when_the_segments_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with TraceWriter(path, TraceMeta(), segment_rows=1) as writer:
        for part in range(3):
            writer.write(arrays(300_000, part * 300_000_000))
        for row in (0, 262_143, 300_000, 899_997):
            writer.amend(row, 10**12 + row, -5)
    table = open_trace(path).table()
    latency_ns = np.tile(arrays(300_000)["latency_ns"], 3)
    error = np.zeros(900_000, np.int32)
    for row in (0, 262_143, 300_000, 899_997):
        latency_ns[row], error[row] = 10**12 + row, -5
    assert np.array_equal(latencies(table["latency_ns"]), latency_ns)
    assert np.array_equal(table["error"].to_numpy(), error)


def test_batches_select_columns_and_size(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t", TraceMeta()) as writer:
        writer.write(arrays(1000))
    got = list(open_trace(tmp_path / "t").batches(["lba", "ts_ns"], batch_rows=400))
    assert [batch.num_rows for batch in got] == [400, 400, 200]
    assert got[0].schema.names == ["lba", "ts_ns"]
    with pytest.raises(UsageError, match="no column session"):
        next(open_trace(tmp_path / "t").batches(["session"]))


def test_optional_columns_and_text_dictionaries(tmp_path: Path) -> None:
    rows = arrays(3)
    with TraceWriter(tmp_path / "t", TraceMeta(), ("key", "source", "queue_depth")) as writer:
        writer.write({**rows, "key": [1, 2, 2**63], "comm": ["a", None, "b"], "source": ["rq"] * 3})
        writer.write({**arrays(3, 10_000), "comm": ["b", "c", "a"]})
    table = open_trace(tmp_path / "t").table()
    assert table.schema.equals(trace_schema(("key", "source", "queue_depth")))
    assert table["comm"].to_pylist() == ["a", None, "b", "b", "c", "a"]
    assert table["key"].to_pylist() == [1, 2, 2**63, None, None, None]


def test_empty_trace(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t", TraceMeta()):
        pass
    assert open_trace(tmp_path / "t").rows == 0
    assert open_trace(tmp_path / "t").table().num_rows == 0


def test_time_must_not_go_backwards(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="backwards at row 5"),
        TraceWriter(tmp_path / "t", TraceMeta(), durable=False) as writer,
    ):
        writer.write(arrays(5, 100_000))
        writer.write(arrays(5))
    assert list(tmp_path.iterdir()) == []


def test_unsorted_file_is_refused_on_reading(tmp_path: Path) -> None:
    batch = batch_from_arrays({**arrays(3), "ts_ns": np.array([5, 4, 6])})
    metadata = {"harness.trace": TraceMeta().to_json()}
    pq.write_table(pa.Table.from_batches([batch]).replace_schema_metadata(metadata), tmp_path / "t")
    with pytest.raises(UsageError, match="backwards at row 1"):
        list(open_trace(tmp_path / "t").batches())


def test_operation_dictionary_in_another_order_is_read_right(tmp_path: Path) -> None:
    batch = batch_from_arrays(arrays(4))
    letters = pa.DictionaryArray.from_arrays(
        pa.array([1, 0, 1, 2], pa.int8()), pa.array(["W", "R", "D"])
    )
    table = pa.Table.from_batches([batch.set_column(1, SCHEMA.field("op"), letters)])
    metadata = {"harness.trace": TraceMeta().to_json()}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert op_codes(trace.table()["op"]).tolist() == [0, 1, 0, 2]
    assert next(trace.batches())["op"].indices.to_pylist() == [0, 1, 0, 2]


def test_recording_killed_in_the_middle_is_readable(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from tests.trace.test_parquet import arrays
from harness.trace.parquet import TraceWriter
from harness.trace.schema import TraceMeta
writer = TraceWriter(sys.argv[1], TraceMeta(verdict="UNKNOWN")).__enter__()
writer.write(arrays(1000)); writer.flush()
writer.write(arrays(500, 10**7)); writer.flush()
writer.write(arrays(300_000, 10**8))
os.kill(os.getpid(), signal.SIGKILL)
"""
    path = tmp_path / "t.parquet"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program, str(path)], cwd=root, env=os.environ)
    assert done.returncode == -signal.SIGKILL
    for name in (path, tmp_path / "t.parquet.parts"):
        trace = open_trace(name)
        assert trace.rows == 1500 == trace.table().num_rows
        assert trace.meta.notes == [
            "recording did not end cleanly: 2 finished segments in t.parquet.parts",
            "unfinished last segment 000002.open skipped",
        ]
    with pytest.raises(UsageError, match="interrupted recording"):
        TraceWriter(path, TraceMeta())


def test_body_that_raises_keeps_finished_segments_only(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), TraceWriter(tmp_path / "t", TraceMeta()) as writer:
        writer.write(arrays(10))
        raise KeyboardInterrupt
    assert not (tmp_path / "t").exists()
    assert open_trace(tmp_path / "t").rows == 10


@pytest.mark.root
@pytest.mark.parametrize("durable", [True, False])
def test_a_full_disk_is_said_and_finished_segments_stay(tmp_path: Path, durable: bool) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", tmp_path], check=True)
    try:
        rng = np.random.default_rng(1)
        with (
            pytest.raises(OSError) as caught,
            TraceWriter(tmp_path / "t", TraceMeta(), durable=durable) as writer,
        ):
            for part in range(100):
                rows = arrays(10_000, part * 10_000_000)
                rows["lba"] = rng.integers(0, 2**40, 10_000).astype(np.uint64)
                writer.write(rows)
                if durable:
                    writer.flush()
        assert caught.value.errno == errno.ENOSPC
        assert not (tmp_path / "t").exists()
        if durable:
            assert open_trace(tmp_path / "t").table().num_rows >= 10_000
        else:
            assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_bad_files_are_one_clear_error(tmp_path: Path) -> None:
    good = tmp_path / "good"
    with TraceWriter(good, TraceMeta()) as writer:
        writer.write(arrays(1000))
    whole = good.read_bytes()
    cases = {
        "truncated": whole[:-100],
        "empty": b"",
        "text": b"ts_ns,op,lba\n1,R,0\n",
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=f"{name} is not a whole Parquet file"):
            open_trace(tmp_path / name)
    pq.write_table(pa.table({"ts_ns": [1]}), tmp_path / "foreign")
    with pytest.raises(UsageError, match="Parquet but not a trace"):
        open_trace(tmp_path / "foreign")
    with pytest.raises(UsageError, match="no such trace"):
        open_trace(tmp_path / "absent")
    damaged = bytearray(whole)
    damaged[10:200] = bytes(190)
    (tmp_path / "damaged").write_bytes(damaged)
    with pytest.raises(UsageError, match="damaged"):
        list(open_trace(tmp_path / "damaged").batches())


def test_wrong_columns_and_versions_are_named(tmp_path: Path) -> None:
    table = pa.Table.from_batches([batch_from_arrays(arrays(2))])
    metadata = {"harness.trace": TraceMeta().to_json()}

    def write(table: pa.Table, metadata: dict[str, str]) -> Path:
        pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "t")
        return tmp_path / "t"

    with pytest.raises(UsageError, match="column lba is missing"):
        open_trace(write(table.drop_columns(["lba"]), metadata))
    wrong = table.set_column(2, "lba", pa.array([1, 2], pa.int32()))
    with pytest.raises(UsageError, match="lba is int32, expected uint64"):
        open_trace(write(wrong, metadata))
    with pytest.raises(UsageError, match="schema version 2"):
        open_trace(write(table, {"harness.trace": '{"schema_version": 2}'}))
    with pytest.raises(UsageError, match="colour: unknown key"):
        open_trace(write(table, {"harness.trace": '{"schema_version": 1, "colour": 1}'}))


@given(
    st.lists(
        st.tuples(st.integers(0, 2**55), st.integers(0, 2**40).map(lambda sectors: sectors * 512)),
        min_size=1,
    )
)
@settings(max_examples=50, deadline=None)
def test_pages_touched_equals_the_definition(requests: list[tuple[int, int]]) -> None:
    lba = np.array([start for start, _ in requests], np.uint64)
    size = np.array([min(length, 2**43) for _, length in requests], np.uint64)
    expected = [
        0 if n == 0 else (int(s) * 512 + int(n) - 1) // 4096 - int(s) * 512 // 4096 + 1
        for s, n in zip(lba, size, strict=True)
    ]
    assert pages_touched(lba, size).tolist() == expected
