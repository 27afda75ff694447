"""The modelled raw_block store against captures of the real one, and that a wrong one is caught."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import UsageError
from harness.core.ops import Op
from harness.stores.compare import Comparison, compare_views
from harness.stores.lmcache_raw_block import LmcacheRawBlock, RawBlockStore
from harness.stores.model_trace import DeviceLimits, split_calls, write_model_trace
from harness.stores.ops import empty_ops
from harness.stores.registry import load_store_spec, make_store
from harness.stores.requests.load import open_requests
from harness.stores.slot_view import SlotLayout, SlotView, view_slots
from harness.trace.parquet import open_trace
from harness.trace.source import open_source

COLUMNS = ("ts_ns", "op", "lba", "bytes", "latency_ns")
DEVICE = 8 << 30
RUNS = {
    "main": ("lmcache-captured", "llama-3.1-8b", "lmcache-driver", 33_558_528),
    "small": ("lmcache-captured", "llama-3.1-8b-tp8", "lmcache-driver-small", 4_198_400),
    "uring32": ("lmcache-captured-uring", "llama-3.1-8b", "lmcache-driver", 33_558_528),
}


def real(traces_dir: Path, run: str) -> SlotView:
    layout = SlotLayout(64 << 20, RUNS[run][3])
    return view_slots(open_source(traces_dir / f"lmcache/{run}.csv.gz").batches(COLUMNS), layout)


def modelled(tmp_path: Path, run: str, chunks: int, seed: int = 1, **changes: object) -> SlotView:
    name, model, requests, slot = RUNS[run]
    spec = load_store_spec(name).model_copy(update=changes)
    out = tmp_path / "model.parquet"
    write_model_trace(
        make_store(spec, DEVICE, model), open_requests(requests, seed=seed), out,
        limits=DeviceLimits(), written_bytes=chunks * slot,
    )  # fmt: skip
    return view_slots(open_trace(out).batches(COLUMNS), SlotLayout(64 << 20, slot))


def failed(result: Comparison) -> list[str]:
    return [f"{c.name}: {c.modelled} / {c.real}" for c in result.checks if c.ok is False]


@pytest.mark.parametrize("run", sorted(RUNS))
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_model_matches_the_real_store(
    traces_dir: Path, tmp_path: Path, run: str, seed: int
) -> None:
    captured = real(traces_dir, run)
    result = compare_views(modelled(tmp_path, run, len(captured.written), seed), captured)
    assert result.verdict == "MATCHES", failed(result)


@pytest.mark.parametrize(
    ("run", "slots", "headers", "overwritten"),
    [("main", 240, 1495, 6.23), ("small", 1763, 5630, 3.19), ("uring32", 227, 501, 2.21)],
)
def test_the_view_of_a_capture_has_the_published_counts(
    traces_dir: Path, run: str, slots: int, headers: int, overwritten: float
) -> None:
    view = real(traces_dir, run)
    assert (view.touched, len(view.written)) == (slots, headers)
    assert view.overwrite_factor() == pytest.approx(overwritten, abs=0.005)
    assert view.payload_per_header() == pytest.approx(1.0, abs=0.002)


def test_the_view_of_main_has_the_published_jumps(traces_dir: Path) -> None:
    view = real(traces_dir, "main")
    assert view.adjacent(view.written, 0) == pytest.approx(0.83, abs=0.005)
    assert view.adjacent(view.written, 4) == pytest.approx(0.03, abs=0.005)
    assert view.adjacent(view.read, 4) == 0.0
    jump = view.median_jump(view.written, 4) * view.touched * view.layout.slot_bytes
    assert jump / 2**30 == pytest.approx(2.1, abs=0.1)


@pytest.mark.parametrize(
    ("change", "figure"),
    [
        ({"engine": "io_uring"}, "commonest request written"),
        ({"header_bytes": 8192}, "payload bytes a header"),
        ({"memory": None, "drain_mbps": 1e9}, "next slot written, last fifth"),
    ],
)
def test_a_store_that_behaves_otherwise_is_told_apart(
    traces_dir: Path, tmp_path: Path, change: dict[str, object], figure: str
) -> None:
    captured = real(traces_dir, "main")
    try:
        view = modelled(tmp_path, "main", 1495, **change)
    except UsageError as error:
        assert "header" in str(error)  # headers of another size are not even seen
        return
    result = compare_views(view, captured)
    assert result.verdict == "DIFFERS"
    assert any(name.startswith(figure) for name in failed(result)), failed(result)


def test_a_commonest_request_between_the_device_s_limits_is_the_memory_s_business(
    tmp_path: Path,
) -> None:
    one = modelled(tmp_path, "small", 600)
    part = replace(one, write_sizes=np.full_like(one.write_sizes, 1020 << 10))
    whole = replace(one, write_sizes=np.full_like(one.write_sizes, 512 << 10))
    assert failed(compare_views(one, part)) == []
    assert any(line.startswith("commonest") for line in failed(compare_views(one, whole)))
    narrow = DeviceLimits(1280, 255)  # then 1,020 KiB is what scattered pages give
    assert any(line.startswith("commonest") for line in failed(compare_views(one, part, narrow)))


def test_a_full_store_without_eviction_ends_with_an_error_not_never(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has written nothing for"):
        modelled(tmp_path, "main", 1495, eviction=None, memory=None)
    assert list(tmp_path.iterdir()) == []


def test_calls_are_cut_as_the_captured_device_cut_them() -> None:
    ops = empty_ops(2)
    ops[:] = 0
    ops["offset"], ops["length"], ops["op"] = [4096, 0], [4 << 20, 4096], Op.WRITE
    limits = DeviceLimits(1280, 128)
    call, cut = split_calls(ops, limits.request_bytes(scattered=False))
    assert cut["length"].tolist() == [1310720, 1310720, 1310720, 262144, 4096]
    assert cut["offset"].tolist() == [4096, 1314816, 2625536, 3936256, 0]
    assert call.tolist() == [0, 0, 0, 0, 1]
    assert limits.request_bytes(scattered=True) == 524288
    assert DeviceLimits(128, 33).request_bytes(scattered=True) == 131072
    with pytest.raises(UsageError, match="less than a page"):
        DeviceLimits(2, 1).request_bytes(scattered=False)


def test_a_memory_tier_serves_fresh_chunks_and_limits_loads() -> None:
    spec = load_store_spec("lmcache-captured")
    assert isinstance(spec, LmcacheRawBlock)
    assert spec.memory is not None
    traffic = next(open_requests("lmcache-driver", seed=1).batches()).part(0, 200)
    plain = make_store(spec.model_copy(update={"memory": None}), DEVICE, "llama-3.1-8b")
    with_memory = make_store(spec, DEVICE, "llama-3.1-8b")
    tiny = spec.memory.model_copy(update={"size_bytes": 8 << 25, "watermark": 1.0})
    starved = make_store(spec.model_copy(update={"memory": tiny}), DEVICE, "llama-3.1-8b")
    reports = []
    for store in (plain, with_memory, starved):
        assert isinstance(store, RawBlockStore)
        store.serve_batch(traffic)
        store.close()
        reports.append(store.report())
    reads = [report["reads"]["ops"] for report in reports]
    assert reads[1] < reads[0] / 2
    assert reports[1]["hits_in_memory"] > reads[1]
    assert reports[2]["hits_dropped_for_want_of_memory"] > 0
    assert reports[2]["not_stored_for_want_of_memory"] > 0


def test_a_modelled_trace_holds_what_the_store_did(tmp_path: Path) -> None:
    store = make_store("lmcache-raw-block", 1 << 30, "llama-3.1-8b-tp8")
    out = tmp_path / "t.parquet"
    rows = write_model_trace(
        store, open_requests("chat", seed=4), out, limits=DeviceLimits(), limit=80
    )
    trace = open_trace(out)
    assert trace.rows == rows
    assert trace.meta.source == "model"
    table = trace.table()
    report = store.report()
    ops = np.array(table.column("op").to_pylist())
    sizes = table.column("bytes").to_numpy()
    assert int(sizes[ops == "W"].sum()) == report["writes"]["bytes"]
    assert int(sizes[ops == "R"].sum()) == report["reads"]["bytes"]
    classes = table.column("object_class").to_pylist()
    assert set(classes) == {"full-attention", "header", "metadata"}
    with pytest.raises(UsageError, match="never ends"):
        write_model_trace(store, open_requests("chat"), out, limits=DeviceLimits())


def test_a_trace_without_slots_is_refused(tmp_path: Path) -> None:
    store = make_store("session-contiguous", 1 << 30, "llama-3.1-8b-tp8")
    out = tmp_path / "t.parquet"
    write_model_trace(store, open_requests("chat", seed=4), out, limits=DeviceLimits(), limit=20)
    with pytest.raises(UsageError, match="no header of slots"):
        view_slots(open_trace(out).batches(COLUMNS), SlotLayout(64 << 20, 4_198_400))


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", "stores", *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_commands_write_a_trace_and_compare_it(tmp_path: Path) -> None:
    paths = []
    for seed in ("1", "2"):
        path = tmp_path / f"{seed}.parquet"
        done = run_command(
            "trace", str(path), "--store", "lmcache-captured", "--requests",
            "lmcache-driver-small", "--model", "llama-3.1-8b-tp8", "--written", "9GiB", "--seed",
            seed, "--json",
        )  # fmt: skip
        assert json.loads(done.stdout)["requests"] > 1000
        paths.append(str(path))
    done = run_command("compare", *paths, "--model", "llama-3.1-8b-tp8", "--json")
    data = json.loads(done.stdout)
    assert (done.returncode, data["verdict"]) == (0, "MATCHES"), data
    assert {"name", "modelled", "real", "tolerance", "ok"} <= set(data["checks"][0])
    wrong = run_command("compare", *paths, "--slot-bytes", "1MiB")
    assert wrong.returncode == 2
    assert "--data-start" in wrong.stderr


def test_the_plan_command_reads_fewer_ranges_of_a_session_layout() -> None:
    commands = {}
    for store in ("session-contiguous", "kvbm-v2"):
        done = run_command(
            "plan", "--store", store, "--model", "llama-3.1-8b-tp8", "--after", "60", "--sample",
            "20", "--layered", "--json",
        )  # fmt: skip
        data = json.loads(done.stdout)
        assert data["amplification"] == data["bytes_read"] / data["bytes_wanted"] >= 1.0
        commands[store] = data["commands"]
    assert commands["session-contiguous"] < commands["kvbm-v2"] / 10


def test_the_list_command_names_everything() -> None:
    data = json.loads(run_command("list", "--json").stdout)
    assert set(data) == {"stores", "requests", "models"}
    assert all(data["stores"].values())
    assert all(data["requests"].values())
