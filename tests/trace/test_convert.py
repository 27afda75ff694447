"""Round trips through every format that can be written, and what each cannot hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.trace.convert import convert
from harness.trace.formats import FORMATS
from harness.trace.formats.oplist import read_oplist
from harness.trace.ordering import WINDOW_ROWS, OutOfWindow
from harness.trace.parquet import TraceWriter, open_trace
from harness.trace.schema import FLAG_FUA, FLAG_META, FLAG_READAHEAD, FLAG_SYNC, TraceMeta
from harness.trace.source import open_source
from tests.trace.helpers import read_rows, table_of, write_trace
from tests.trace.samples import MIB, D, F, N, R, W, Z

Row = tuple[int, int, int, int, int | None, int]

# Times that grow, so that no two events tie; sizes and addresses of real devices.
requests = st.lists(
    st.tuples(
        st.integers(1, 10**10),
        st.sampled_from([R, W, D]),
        st.integers(0, 2**40),
        st.integers(1, 2**16).map(lambda sectors: sectors * 512),
    ),
    min_size=1,
    max_size=40,
)


def as_rows(drawn: list[tuple[int, int, int, int]]) -> list[Row]:
    now, made = 0, []
    for gap, op, lba, size in drawn:
        made.append((now, op, lba, size, None, 0))
        now += gap
    return made


def through(folder: Path, rows: list[Row], name: str) -> list[Row]:
    """``rows`` written in the format ``name`` and read back."""
    trace = write_trace(folder / "in.parquet", rows)
    convert(trace, folder / "there", to=name, overwrite=True)
    convert(folder / "there", folder / "back.parquet", form=name, overwrite=True)
    return read_rows(folder / "back.parquet")


@pytest.mark.parametrize("name", ["csv", "blkparse", "parquet"])
@given(drawn=requests)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_a_format_holds_comes_back(
    tmp_path: Path, name: str, drawn: list[tuple[int, int, int, int]]
) -> None:
    rows = as_rows(drawn)
    assert through(tmp_path, rows, name) == rows


@given(drawn=requests)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_fio_keeps_all_but_nanoseconds(
    tmp_path: Path, drawn: list[tuple[int, int, int, int]]
) -> None:
    rows = as_rows(drawn)
    expected = [(ts_ns // 1000 * 1000, *rest) for ts_ns, *rest in rows]
    assert through(tmp_path, rows, "fio") == expected


@given(drawn=requests)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_op_lists_keep_order_and_extents(
    tmp_path: Path, drawn: list[tuple[int, int, int, int]]
) -> None:
    rows = as_rows(drawn)
    expected = [(number, *rest) for number, (_, *rest) in enumerate(rows)]
    assert through(tmp_path, rows, "oplist") == expected


@given(drawn=requests)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_mqsim_keeps_reads_and_writes(
    tmp_path: Path, drawn: list[tuple[int, int, int, int]]
) -> None:
    rows = as_rows(drawn)
    kept = [row for row in rows if row[1] != D]
    if not kept:
        return
    zero = kept[0][0]
    assert through(tmp_path, rows, "mqsim") == [(row[0] - zero, *row[1:]) for row in kept]


def full_trace(path: Path) -> Path:
    """All operations, flags, latencies, errors, issuers and two devices."""
    meta = TraceMeta(source="test", verdict="LOSSY", events_lost=3)
    with TraceWriter(path, meta, durable=False) as writer:
        writer.write(
            {
                "ts_ns": np.array([0, 1000, 2000, 3000, 4000, 5000]),
                "op": np.array([R, W, D, F, Z, N], np.uint8),
                "lba": np.array([8, 0, 2048, 0, 16, 0], np.uint64),
                "bytes": np.array([4096, 512, MIB, 0, 4096, 4096], np.uint64),
                "latency_ns": np.array([700, 2500, -1, 100, 50, -1]),
                "flags": np.array(
                    [FLAG_READAHEAD | FLAG_META, FLAG_SYNC | FLAG_FUA, 0, 32, 0, 0], np.uint16
                ),
                "dev": np.array([7 << 20, 7 << 20, 7 << 20, 8 << 20 | 3, 7 << 20, 7 << 20]),
                "pid": np.array([1, 2, 3, 4, 5, 6]),
                "comm": ["fio", "a b", "kworker/1:2", "x", "x", "x"],
                "error": np.array([0, -5, 0, 0, 0, 0]),
            }
        )
    return path


def test_blkparse_text_keeps_everything_but_write_zeroes(tmp_path: Path) -> None:
    trace = full_trace(tmp_path / "in.parquet")
    convert(trace, tmp_path / "t.blkparse")
    text = (tmp_path / "t.blkparse").read_text().splitlines()
    assert text[:3] == [
        "  7,0   0        1     0.000000000     1  D RAM 8 + 8 [fio]",
        "  7,0   0        2     0.000000700     0  C RAM 8 + 8 [0]",
        "  7,0   0        3     0.000001000     2  D WFS 0 + 1 [a b]",
    ]
    times = [float(line.split()[3]) for line in text]
    assert times == sorted(times)
    before = open_trace(trace).table()
    after = table_of(open_source(tmp_path / "t.blkparse"))
    for name in ("ts_ns", "lba", "bytes", "latency_ns", "flags", "dev", "pid", "comm", "error"):
        assert after[name].to_pylist() == before[name].to_pylist(), name
    assert after["op"].to_pylist() == ["R", "W", "D", "F", "N", "N"]


def test_what_a_format_cannot_hold_is_counted(tmp_path: Path) -> None:
    trace = full_trace(tmp_path / "in.parquet")
    said = {
        name: convert(trace, tmp_path / f"t.{name}", to=name).notes for name in FORMATS_TO_WRITE
    }
    assert said["mqsim"] == ("4 requests that are neither reads nor writes left out",)
    assert said["fio"] == ("2 write-zeroes and other requests left out of the fio log",)
    assert said["oplist"] == ("3 flushes, write-zeroes and other requests left out of the op list",)
    assert said["csv"] == said["blkparse"] == ()


FORMATS_TO_WRITE = [name for name, form in FORMATS.items() if form.write]


def test_five_formats_are_written() -> None:
    assert sorted(FORMATS_TO_WRITE) == ["blkparse", "csv", "fio", "mqsim", "oplist"]


def test_fio_log_starts_late_and_cuts_long_discards(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "in.parquet", [(0, D, 8, 5 << 30), (10_000, W, 0, 4096)])
    convert(trace, tmp_path / "t.iolog")
    assert (tmp_path / "t.iolog").read_text().splitlines() == [
        "fio version 3 iolog",
        "1000 dev-0-0 add",
        "1000 dev-0-0 open",
        f"1000 dev-0-0 trim 4096 {1 << 31}",
        f"1000 dev-0-0 trim {4096 + (1 << 31)} {1 << 31}",
        f"1000 dev-0-0 trim {4096 + (2 << 31)} {1 << 30}",
        "1010 dev-0-0 write 0 4096",
        "1010 dev-0-0 close",
    ]


def test_seed_csv_has_the_five_columns(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "in.parquet", [(0, W, 1, 4096), (1_000_000_001, R, 8, 8192)])
    convert(trace, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == (
        "timestamp,operation,LBA,size,pages\n0.000000000,W,1,4096,2\n1.000000001,R,8,8192,2\n"
    )


def test_snap_rows_survive_only_in_op_lists(tmp_path: Path) -> None:
    (tmp_path / "a.oplist").write_text("offset,length,op\n0,0,SNAP\n0,4096,W\n1,0,SNAP\n")
    done = convert(tmp_path / "a.oplist", tmp_path / "b.parquet")
    assert done.rows == 1
    assert "2 SNAP rows left out" in done.notes
    assert [op.tolist() for _, _, op in read_oplist(tmp_path / "a.oplist")] == [[6, 1, 6]]


def test_an_interrupted_recording_becomes_a_trace(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        TraceWriter(tmp_path / "t", TraceMeta(), ("key",)) as writer,
    ):
        rows: dict[str, Any] = {"ts_ns": [0], "op": np.array([1]), "lba": [8], "bytes": [512]}
        writer.write({**rows, "key": [77]})
        raise KeyboardInterrupt
    convert(tmp_path / "t.parts", tmp_path / "whole.parquet")
    trace = open_trace(tmp_path / "whole.parquet")
    assert trace.table()["key"].to_pylist() == [77]
    assert trace.meta.notes[0].startswith("recording did not end cleanly")


@pytest.mark.slow
def test_rows_far_out_of_order_are_sorted_on_disk(tmp_path: Path) -> None:
    half = WINDOW_ROWS + WINDOW_ROWS // 2
    with (tmp_path / "in.trace").open("w") as out:
        for first in (half, 0):
            out.writelines(f"{first + i} 0 {first + i} 8 0\n" for i in range(half))
    with pytest.raises(OutOfWindow, match="before rows that came"):
        table_of(open_source(tmp_path / "in.trace"))
    done = convert(tmp_path / "in.trace", tmp_path / "out.parquet")
    assert done.rows == 2 * half
    table = open_trace(tmp_path / "out.parquet").table()
    assert np.array_equal(table["ts_ns"].to_numpy(), np.arange(2 * half))
    assert np.array_equal(table["lba"].to_numpy(), np.arange(2 * half))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["in.trace", "out.parquet"]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    program = """
import resource, sys
from harness.trace.convert import convert
convert(sys.argv[1], sys.argv[2], overwrite=True)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    peaks = []
    half_a_million = "".join(
        f"{{}}{number:06d} 0 {number * 977 % 10**8} 8 {number % 4 // 2}\n"
        for number in range(0, 10**6, 2)
    )
    for millions in (3, 9):
        path = tmp_path / "in.trace"
        with path.open("w") as out:
            for part in range(millions * 2):
                out.write(half_a_million.replace("{}", str(part + 1)))
        target = tmp_path / "out.parquet"
        done = subprocess.run(
            [sys.executable, "-c", program, str(path), str(target)],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(done.stdout) / 1024)
        assert open_trace(target).rows == millions * 1_000_000
    assert peaks[1] < peaks[0] * 1.15, f"peak memory in MiB: {peaks}"
