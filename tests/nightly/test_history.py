"""Nights go in once and come out whole, whoever writes, reads or dies meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from harness.core.errors import UsageError
from harness.nightly.history import PACK_SEGMENTS, History, _rows, _write, export
from tests.nightly.made import gbps, night, waf


def test_a_night_comes_back_as_it_went_in(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    given = [night(1, gbps(2.5), waf(1.25)), night(0, gbps(2.4)), night(2, good=False)]
    assert all(history.append(one) for one in given)
    assert history.nights() == [given[1], given[0], given[2]]


def test_a_run_is_recorded_once_and_another_host_has_its_own(tmp_path: Path) -> None:
    history = History(tmp_path)
    assert history.append(night(0, gbps(1.0)))
    assert not history.append(night(0, gbps(9.0)))
    assert history.append(night(0, gbps(2.0), host="rack2"))
    assert [n.metrics[0].value for n in history.nights()] == [1.0, 2.0]


def test_packing_keeps_every_night_and_few_files(tmp_path: Path) -> None:
    history = History(tmp_path)
    days = PACK_SEGMENTS + 3
    for day in range(days):
        history.append(night(day, gbps(day)))
    assert [n.metrics[0].value for n in history.nights()] == list(range(days))
    assert len(list(tmp_path.iterdir())) == 1 + 3
    assert not history.append(night(5, gbps(0.0)))


def test_nights_left_twice_by_a_crash_in_packing_count_once(tmp_path: Path) -> None:
    history = History(tmp_path)
    given = [night(day, gbps(day), waf(1.0)) for day in range(3)] + [night(3)]
    for one in given:
        history.append(one)
    _write(pa.concat_tables([_rows(one) for one in given]), tmp_path / "pack-x.parquet")
    assert history.nights() == given


def _append_days(folder: Path, days: range, host: str) -> None:
    for day in days:
        History(folder).append(night(day, gbps(day), host=host))


@pytest.mark.slow
def test_two_writers_and_a_reader_meet_and_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    days = range(PACK_SEGMENTS)
    writers = [
        context.Process(target=_append_days, args=(tmp_path, days, host)) for host in ("a", "b")
    ]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        now = len(History(tmp_path).nights())
        assert now >= seen
        seen = now
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert len(History(tmp_path).nights()) == 2 * len(days)


def test_kill_9_leaves_whole_nights_only(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.nightly.test_history import _append_days;"
        "_append_days(Path(sys.argv[1]), range(10_000), 'a')"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    try:
        while len(list(tmp_path.glob("*.parquet"))) < 5:
            assert writer.poll() is None
            time.sleep(0.02)
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    nights = History(tmp_path).nights()
    assert [n.metrics[0].value for n in nights] == list(range(len(nights)))
    assert History(tmp_path).append(night(len(nights), gbps(len(nights)), host="a"))


def test_two_thousand_nights_load_within_a_second(tmp_path: Path) -> None:
    figures = [waf(1.0).__class__(f"figure {i}", float(i), "s", -1) for i in range(20)]
    step = PACK_SEGMENTS
    for start in range(0, 2000, step):
        rows = [_rows(night(day, *figures)) for day in range(start, min(2000, start + step))]
        _write(pa.concat_tables(rows), tmp_path / f"pack-{start:05}.parquet")
    for day in range(2000, 2000 + PACK_SEGMENTS - 1):
        _write(_rows(night(day, *figures)), tmp_path / f"night-{day}.parquet")
    history = History(tmp_path)
    took_s = []
    for _ in range(3):  # of this process alone: the machine may be doing other things
        begin = time.process_time()
        nights = history.nights()
        took_s.append(time.process_time() - begin)
    assert len(nights) == 2000 + PACK_SEGMENTS - 1
    assert max(took_s) <= 1.0


def test_a_run_is_found_by_the_beginning_of_its_name(tmp_path: Path) -> None:
    history = History(tmp_path)
    for day in range(2):
        history.append(night(day, gbps(day)))
    assert history.night("20260102").metrics == (gbps(1),)
    with pytest.raises(UsageError, match="fits 2 nights"):
        history.night("2026")
    with pytest.raises(UsageError, match="is in no night"):
        history.night("1999")


def test_foreign_and_torn_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "night-torn.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(UsageError, match=r"night-torn.parquet is not a segment"):
        History(tmp_path).nights()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "night-torn.parquet")
    with pytest.raises(UsageError, match="its columns differ"):
        History(tmp_path).nights()


def test_export(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    history.append(night(0, gbps(2.5), waf(1.0)))
    export(history.table(), tmp_path / "all.csv")
    export(history.table(), tmp_path / "all.parquet")
    assert pyarrow.csv.read_csv(tmp_path / "all.csv")["value"].to_pylist() == [2.5, 1.0]
    assert pq.read_table(tmp_path / "all.parquet")["metric"].to_pylist() == ["Bandwidth", "WAF"]
    with pytest.raises(UsageError, match=r"\.csv or \.parquet"):
        export(history.table(), tmp_path / "all.xlsx")


def test_duckdb_reads_the_folder(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    history = History(tmp_path)
    for day in range(PACK_SEGMENTS + 2):  # packed and loose segments
        history.append(night(day, gbps(day), waf(1.5)))
    query = (
        "SELECT metric, count(DISTINCT run), max(value), max(unit), min(started)::DATE::VARCHAR"
        f" FROM '{tmp_path}/*.parquet' WHERE good GROUP BY metric ORDER BY metric"
    )
    assert duckdb.sql(query).fetchall() == [
        ("Bandwidth", PACK_SEGMENTS + 2, PACK_SEGMENTS + 1.0, "GB/s", "2026-01-01"),
        ("WAF", PACK_SEGMENTS + 2, 1.5, "", "2026-01-01"),
    ]
