"""Real I/O: what the store says it wrote is on the device, and wrong data is noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.core.errors import UsageError
from harness.core.ops import Op
from harness.device.guard import Target, open_guarded
from harness.device.info import read_stat
from harness.device.loop import LoopDevice
from harness.stores.base import Store
from harness.stores.emit import Pace, emit
from harness.stores.issuer import Issuer
from harness.stores.object_log import BUFFERED_KEY
from harness.stores.ops import empty_ops
from harness.stores.registry import make_store
from harness.stores.requests.form import Request, RequestBatch, RequestForm
from harness.stores.requests.load import open_requests

pytestmark = pytest.mark.root

MODEL = "llama-3.1-8b-tp8"


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with LoopDevice(512 << 20, tmp_path) as loop, open_guarded(loop.path, own=True) as opened:
        yield opened


def ops_of(rows: list[tuple[int, int, Op, int]]) -> np.ndarray:
    ops = empty_ops(len(rows))
    ops[:] = 0
    for row, (offset, length, op, stream) in zip(ops, rows, strict=True):
        row["offset"], row["length"], row["op"], row["stream"] = offset, length, op, stream
    return ops


@pytest.mark.parametrize(
    "name", ["lmcache-raw-block", "lmcache-raw-block-uring", "session-contiguous"]
)
def test_an_emission_verifies_all_that_it_reads(target: Target, tmp_path: Path, name: str) -> None:
    log = tmp_path / "objects.parquet"
    before = read_stat(target.name)
    store = make_store(name, target.size_bytes, MODEL)
    result = emit(store, open_requests("chat", seed=5), target, seed=5, limit=24, objects=log)
    after = read_stat(target.name)
    data = result.as_json()
    assert data["requests"] == 24
    assert data["verify_errors"] == 0
    assert data["bytes_read"] == data["bytes_verified"] > 0
    assert data["bytes_written"] == result.report["writes"]["bytes"]
    assert (after.write_sectors - before.write_sectors) * 512 == data["bytes_written"]
    assert (after.read_sectors - before.read_sectors) * 512 == data["bytes_read"]
    table = pq.read_table(log)
    assert sum(table["length"].to_pylist()) == data["bytes"]
    assert np.all(table["done_ns"].to_numpy() > table["issue_ns"].to_numpy())


def test_a_flipped_bit_on_the_device_is_a_wrong_sector(target: Target) -> None:
    with Issuer(target, seed=1, streams=2, largest_bytes=1 << 20, fixed=False) as issuer:
        issuer.feed(ops_of([(0, 1 << 20, Op.WRITE, 0), (1 << 20, 1 << 20, Op.WRITE, 0)]))
        issuer.finish()
        with open(target.path, "r+b", buffering=0) as file:
            file.seek(700_000)
            byte = file.read(1)
            file.seek(700_000)
            file.write(bytes([byte[0] ^ 1]))
            os.fsync(file.fileno())
        issuer.feed(ops_of([(0, 2 << 20, Op.READ, 1)]))
        issuer.finish()
        assert issuer.issued.wrong_sectors == 1


def test_data_of_an_older_write_is_wrong(target: Target) -> None:
    with Issuer(target, seed=1, streams=2, largest_bytes=1 << 16, fixed=False) as issuer:
        issuer.feed(ops_of([(0, 1 << 16, Op.WRITE, 0)]))
        issuer.finish()
        with open(target.path, "rb", buffering=0) as file:
            old = file.read(1 << 16)
        issuer.feed(ops_of([(0, 1 << 16, Op.WRITE, 0)]))
        issuer.finish()
        with open(target.path, "r+b", buffering=0) as file:
            file.write(old)
            os.fsync(file.fileno())
        issuer.feed(ops_of([(0, 1 << 16, Op.READ, 1)]))
        issuer.finish()
        assert issuer.issued.wrong_sectors == 128


def test_a_read_waits_for_the_write_before_it_and_a_write_for_the_read(target: Target) -> None:
    rows = []
    for turn in range(200):
        rows += [(turn % 3 << 16, 1 << 16, Op.WRITE, 0), (turn % 3 << 16, 1 << 16, Op.READ, 1)]
    with Issuer(target, seed=1, streams=2, largest_bytes=1 << 16, fixed=True) as issuer:
        issuer.feed(ops_of(rows))
        issuer.finish()
        assert issuer.issued.calls == 400
        assert issuer.issued.wrong_sectors == 0


def test_writes_of_all_streams_begin_in_the_order_in_which_they_were_made(target: Target) -> None:
    # The first stream has a long queue; the second's writes still wait for their turn.
    rows = [(i << 16, 1 << 16, Op.WRITE, 0 if i % 3 else 1) for i in range(120)]
    issued: dict[int, int] = {}

    def done(number: int, issue_ns: int, done_ns: int) -> None:
        issued[number] = issue_ns

    with Issuer(
        target, seed=1, streams=2, largest_bytes=1 << 16, fixed=False, done=done
    ) as issuer:  # fmt: skip
        issuer.feed(ops_of(rows))
        issuer.finish()
    times = [issued[number] for number in range(len(rows))]
    assert times == sorted(times)
    assert len(set(times)) > len(rows) // 3  # they do wait for each other


@dataclass(frozen=True)
class OneBatch:
    """A trace of four requests, at 0, 0.2, 0.4 and 9 s."""

    name: str = "four"
    form: ClassVar[RequestForm] = RequestForm(256)
    seed: int | None = None
    endless: bool = False

    def batches(self) -> Iterator[RequestBatch]:
        ids = np.arange(1, 5, dtype=np.uint64)
        yield RequestBatch.of(
            Request(self.form, time_s, 0, turn, 256 * (turn + 1), 0, 256, ids[: turn + 1])
            for turn, time_s in enumerate((0.0, 0.2, 0.4, 9.0))
        )


def test_an_open_loop_keeps_the_trace_s_clock_at_the_speed_asked_for(
    target: Target, tmp_path: Path
) -> None:
    closed = emit(_store(target), OneBatch(), target, seed=1).as_json()
    assert (closed["requests"], closed["speed"], closed["max_behind_s"]) == (4, None, None)
    log = tmp_path / "objects.parquet"
    done = emit(
        _store(target), OneBatch(), target, seed=1, limit=3, pace=Pace(0.5), objects=log
    ).as_json()
    assert (done["requests"], done["stopped_by"], done["speed"]) == (3, "requests", 0.5)
    assert done["max_behind_s"] >= 0
    assert done["duration_s"] >= 0.8
    table = pq.read_table(log)
    writes = np.sort(table["issue_ns"].to_numpy()[table["op"].to_numpy() == Op.WRITE])
    # Turn 2 comes 0.8 s after turn 0; what is read is read by turn 1 at 0.4 s and by turn 2.
    reads = np.sort(table["issue_ns"].to_numpy()[table["op"].to_numpy() == Op.READ])
    assert len(reads) == 3
    assert (reads[-1] - writes[0]) / 1e9 >= 0.3


def test_an_open_loop_stops_at_its_time_though_the_trace_goes_on(target: Target) -> None:
    done = emit(_store(target), OneBatch(), target, seed=1, seconds=1, pace=Pace(1)).as_json()
    assert done["stopped_by"] == "seconds"
    assert done["requests"] <= 3
    assert done["duration_s"] >= 1


def _store(target: Target) -> Store:
    return make_store("lmcache-raw-block", target.size_bytes, MODEL)


@pytest.mark.parametrize(
    ("name", "limit"), [("sglang-file", 12), ("mooncake-bucket", 60), ("mooncake-offset", 12)]
)
def test_a_buffered_store_goes_through_the_page_cache_and_all_of_it_is_written(
    target: Target, tmp_path: Path, name: str, limit: int
) -> None:
    """So many requests that the store reads something back; a bucket is 256 MB."""
    log = tmp_path / "objects.parquet"
    before = read_stat(target.name)
    store = make_store(name, target.size_bytes, MODEL)
    data = emit(store, open_requests("chat", seed=5), target, seed=5, limit=limit, objects=log)
    after = read_stat(target.name)
    done = data.as_json()
    assert done["buffered"] and done["verify_errors"] == 0
    assert done["bytes_read"] == done["bytes_verified"] > 0
    # Pages that were overwritten before they were written back reach the device once.
    written = (after.write_sectors - before.write_sectors) * 512
    assert 0.5 * done["bytes_written"] < written <= done["bytes_written"]
    # What was just written is still cached.
    assert (after.read_sectors - before.read_sectors) * 512 < done["bytes_read"] / 10
    assert pq.read_schema(log).metadata[BUFFERED_KEY] == b"1"


def test_a_store_larger_than_the_device_or_without_end_is_refused(target: Target) -> None:
    traffic = open_requests("chat")
    with pytest.raises(UsageError, match="does not fit"):
        emit(make_store("lmcache-raw-block", 1 << 30, MODEL), traffic, target, seed=0, limit=1)
    with pytest.raises(UsageError, match="never ends"):
        emit(make_store("lmcache-raw-block", 512 << 20, MODEL), traffic, target, seed=0)


def test_the_command(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "harness", "emit", "--loop", "384MiB", "--scratch",
        str(tmp_path), "--limit", "6", "--seed", "3", "--json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    data = json.loads(done.stdout)
    assert (data["requests"], data["seed"], data["verify_errors"]) == (6, 3, 0)
    assert data["bytes_written_per_new_token"] > 0
    assert list(tmp_path.iterdir()) == []


def test_the_command_leaves_a_run_folder(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "harness", "emit", "--loop", "384MiB", "--scratch", str(tmp_path),
        "--limit", "4", "--timed", "--speed", "100", "--results", str(tmp_path / "r"), "--json",
    ]  # fmt: skip
    data = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    (folder,) = (tmp_path / "r").iterdir()
    assert data["run"] == str(folder)
    assert data["objects"] == str(folder / "objects.parquet")
    kept = json.loads((folder / "emit.json").read_text())
    assert (kept["speed"], kept["bytes_written"]) == (100, data["bytes_written"])
    record = json.loads((folder / "run.json").read_text())
    assert (record["state"], record["emit"]["verify_errors"]) == ("done", 0)
    assert pq.read_table(folder / "objects.parquet").num_rows == data["ops"]


def test_a_speed_without_a_clock_is_refused() -> None:
    command = [sys.executable, "-m", "harness", "emit", "--loop", "384MiB", "--speed", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--timed" in done.stderr


def test_the_command_refuses_a_device_that_was_not_named_twice(tmp_path: Path) -> None:
    with LoopDevice(384 << 20, tmp_path) as loop:
        command = [sys.executable, "-m", "harness", "emit", "--device", loop.path]
        done = subprocess.run([*command, "--limit", "1"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--destroy" in done.stderr
