"""The whole benchmark on a loop device: small, but real at every step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from harness.bench.fio import find_fio
from harness.bench.grid import Grid
from harness.bench.layout import bench_layout, bench_on_loop, loop_bytes
from harness.bench.results import BenchResult
from harness.bench.tables import cell_table, comparison_table, notes
from harness.core.errors import MachineError, MeasurementError, UsageError
from harness.device.guard import open_guarded
from harness.device.loop import LoopDevice, own_loop_devices

MIB = 1 << 20
LAYOUT = {
    "stores": ["session-contiguous", "lmcache-raw-block"],
    "models": ["llama-3.1-8b-tp8"],
    "context_tokens": [1024],
    "queue_depth": [8],
}


def grid(layout: dict[str, Any] | None = None, **changes: Any) -> Grid:
    facts = {
        "name": "tiny", "repeats": 3, "max_repeats": 3, "sample_seconds": 0.02,
        "reference_bytes": "16MiB", "anchor_bytes": ["1MiB"],
        "layouts": [{**LAYOUT, **(layout or {})}],
    }  # fmt: skip
    return Grid.model_validate({**facts, **changes})


@pytest.fixture(autouse=True)
def _need_fio() -> None:
    try:
        find_fio()
    except MachineError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> BenchResult:
    return bench_on_loop(grid({"access": ["whole", "window"]}), tmp_path_factory.mktemp("bench"))


@pytest.mark.root
class TestOnALoopDevice:
    def test_every_cell_was_measured_as_planned(self, found: BenchResult) -> None:
        cells = {(cell.layout, cell.access): cell for cell in found.cells if cell.layout}
        assert len(cells) == 4 and found.skipped == []
        whole = cells["session-contiguous", "whole"]
        assert (whole.wanted_bytes, whole.commands, whole.amplification) == (16 * MIB, 16, 1.0)
        assert whole.engine.startswith("fio/")
        window = cells["lmcache-raw-block", "window"]
        # 32 layers x 4 chunks x (K, V), each 64 KiB.
        assert (window.commands, window.request_bytes) == (256, 65536)
        assert window.engine == "ring"
        assert cells["session-contiguous", "window"].commands == 32
        for cell in found.cells:
            assert cell.gbps.n == 3 == len(cell.samples_gbps)
            assert cell.gbps.low <= cell.gbps.median <= cell.gbps.high
            assert cell.gbps.median > 0 and cell.latency_us is not None

    def test_layouts_are_compared_engine_by_engine(self, found: BenchResult) -> None:
        assert [(c.layout, c.access, c.engine) for c in found.comparisons] == [
            ("lmcache-raw-block", "whole", found.cells[2].engine),
            ("lmcache-raw-block", "window", "ring"),
        ]
        pair = found.comparisons[1]
        cells = {(cell.layout, cell.access): cell for cell in found.cells}
        rounds = zip(
            cells["session-contiguous", "window"].samples_gbps,
            cells["lmcache-raw-block", "window"].samples_gbps,
            strict=True,
        )
        ratios = sorted(a / b for a, b in rounds)
        assert pair.slowdown.median == pytest.approx(ratios[1])

    def test_each_engine_has_its_own_best(self, found: BenchResult) -> None:
        assert set(found.best_sequential) == {"fio", "ring"}
        for engine, name in found.best_sequential.items():
            best = found.cell(name)
            assert best.pattern == "sequential" and best.engine.startswith(engine)
            assert best.of_best_sequential is not None
            assert best.of_best_sequential.median == 1.0

    def test_what_stood_in_is_said(self, found: BenchResult) -> None:
        assert found.stand_in is not None and "loop device" in found.stand_in
        assert any("stood in" in line for line in notes(found))
        assert "gpu" in found.not_measured
        assert found.device["logical_block"] == 512

    def test_the_record_round_trips_and_prints(self, found: BenchResult) -> None:
        assert BenchResult.model_validate_json(found.model_dump_json()) == found
        assert cell_table(found).row_count == len(found.cells)
        assert comparison_table(found).row_count == 2

    def test_no_loop_device_stays(self, found: BenchResult) -> None:
        assert own_loop_devices() == frozenset()


@pytest.mark.root
def test_background_staging_and_both_engines(tmp_path: Path) -> None:
    wanted = grid(
        {"stores": ["lmcache-raw-block"], "background_writes": [False, True],
         "transport": ["direct", "staged"]},
        repeats=2, max_repeats=2, compare_engines=True,
    )  # fmt: skip
    found = bench_on_loop(wanted, tmp_path)
    cells = [cell for cell in found.cells if cell.layout]
    assert {(c.transport, c.background_writes, c.engine.partition("/")[0]) for c in cells} == {
        ("posix-direct", False, "fio"), ("posix-direct", False, "ring"),
        ("posix-direct", True, "fio"), ("host-staged", False, "ring"),
        ("host-staged", True, "ring"),
    }  # fmt: skip
    for cell in cells:
        assert (cell.background_gbps is not None) == cell.background_writes
        assert not cell.background_writes or (cell.background_gbps or 0) > 0


@pytest.mark.root
def test_stores_of_their_own_chunk_are_compared_too(tmp_path: Path) -> None:
    stores = ["session-contiguous", "kvbm", "lmcache-raw-block"]
    found = bench_on_loop(grid({"stores": stores}, repeats=2, max_repeats=2), tmp_path)
    chunks = {cell.layout: cell.chunk_tokens for cell in found.cells if cell.layout}
    assert chunks["kvbm"] != chunks["session-contiguous"] == chunks["lmcache-raw-block"]
    pairs = {pair.layout: pair for pair in found.comparisons}
    assert set(pairs) == {"kvbm", "lmcache-raw-block"}
    assert pairs["kvbm"].chunk_tokens == chunks["kvbm"]
    cells = {cell.layout: cell for cell in found.cells}
    ratios = [
        fast / slow
        for fast, slow in zip(
            cells["session-contiguous"].samples_gbps, cells["kvbm"].samples_gbps, strict=True
        )
    ]
    assert pairs["kvbm"].slowdown.median == pytest.approx(sum(ratios) / 2)


@pytest.mark.root
def test_reference_cells_write_and_mix(tmp_path: Path) -> None:
    reference = [
        {"pattern": "random", "block_bytes": ["4KiB"], "queue_depth": [4]},
        {"pattern": "sequential", "direction": "write", "block_bytes": ["64KiB"],
         "queue_depth": [4]},
        {"pattern": "random", "direction": "mixed", "block_bytes": ["16KiB"],
         "queue_depth": [4], "threads": [2]},
    ]  # fmt: skip
    wanted = grid(layouts=[], reference=reference, repeats=2, max_repeats=2)
    found = bench_on_loop(wanted, tmp_path)
    assert {(c.pattern, c.direction, c.threads) for c in found.cells} == {
        ("random", "read", 1), ("sequential", "write", 1), ("random", "mixed", 2),
    }  # fmt: skip
    assert found.best_sequential == {}


@pytest.mark.root
def test_fills_reach_every_byte_of_the_device(tmp_path: Path) -> None:
    wanted = grid(
        layouts=[], fills=1, reference_bytes="4MiB",
        reference=[{"pattern": "random", "block_bytes": ["4KiB"], "queue_depth": [1]}],
        repeats=1, max_repeats=1,
    )  # fmt: skip
    with LoopDevice(9 * MIB + 4096, tmp_path) as loop, open_guarded(loop.path) as target:
        found = bench_layout(target, wanted)
        with open(loop.path, "rb") as file:
            pages = np.frombuffer(file.read(), np.uint64).reshape(-1, 512)
        assert np.all(pages.any(axis=1))
    assert found.precondition.startswith("1 sequential fills")


@pytest.mark.root
def test_a_device_too_small_for_a_cell_skips_it_with_the_size(tmp_path: Path) -> None:
    wanted = grid({"context_tokens": [1024, 65536]}, repeats=1, max_repeats=1)
    small = loop_bytes(grid())
    with LoopDevice(small, tmp_path) as loop, open_guarded(loop.path, own=True) as target:
        found = bench_layout(target, wanted)
    assert {cell.context_tokens for cell in found.cells if cell.layout} == {1024}
    assert len(found.skipped) == 2
    for skipped in found.skipped:
        assert "65536tok" in skipped.id
        assert skipped.needed_bytes == loop_bytes(wanted)
    assert any("needed" in line for line in notes(found))


@pytest.mark.root
def test_a_device_without_room_for_the_reference_is_refused(tmp_path: Path) -> None:
    with (
        LoopDevice(MIB, tmp_path) as loop,
        open_guarded(loop.path, own=True) as target,
        pytest.raises(UsageError, match="reference region"),
    ):
        bench_layout(target, grid())


@pytest.mark.root
@pytest.mark.parametrize("change", [{"stores": ["no-such-store"]}, {"models": ["no-such-model"]}])
def test_unknown_names_are_found_before_anything_is_written(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    with LoopDevice(64 * MIB, tmp_path) as loop, open_guarded(loop.path, own=True) as target:
        with pytest.raises(UsageError, match="no-such"):
            bench_layout(target, grid(change))
        with open(loop.path, "rb") as file:
            assert file.read(16 * MIB).count(0) == 16 * MIB


@pytest.mark.root
def test_no_repeats_left_is_a_cell_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.bench.summary.without_outliers", lambda samples, mads: [])
    found = bench_on_loop(
        grid({"stores": ["lmcache-raw-block"]}, repeats=1, max_repeats=1), tmp_path
    )
    assert found.cells == []
    assert "none of 1 repeats was left" in found.skipped[0].reason


@pytest.mark.root
def test_an_interrupted_benchmark_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.bench import cells

    journal = tmp_path / "samples.jsonl"
    real, calls = cells.replay_plan, []

    def fail_at_the_third(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            raise MeasurementError("fio was killed")
        return real(*args, **kwargs)

    monkeypatch.setattr(cells, "replay_plan", fail_at_the_third)
    with pytest.raises(MeasurementError):
        bench_on_loop(grid(), tmp_path, journal=journal)
    before = [json.loads(line) for line in journal.read_text().splitlines()]
    taken = {(r["cell"], r["round"]): r["gbps"] for r in before if "round" in r}
    assert taken
    monkeypatch.setattr(cells, "replay_plan", real)
    found = bench_on_loop(grid(), tmp_path, journal=journal)
    assert {cell.gbps.n for cell in found.cells} == {3}
    for (name, number), gbps in taken.items():
        assert found.cell(name).samples_gbps[number] == gbps


def harness(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", *words], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.root
def test_the_command_writes_a_run_folder(tmp_path: Path) -> None:
    import yaml

    path = tmp_path / "grid.yaml"
    wanted = grid(repeats=1, max_repeats=1)
    path.write_text(yaml.safe_dump(wanted.model_dump(mode="json")))
    done = harness(
        "bench", "layout", "--grid", str(path), "--results", str(tmp_path / "results"), "--json"
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    run = Path(said["run"])
    names = {"run.json", "bench.json", "samples.jsonl", "report.html"}
    assert {p.name for p in run.iterdir()} == names
    stored = json.loads((run / "bench.json").read_text())
    assert stored["cells"] == said["cells"]
    exported = harness(
        "calibrate", "export", "--from", str(run), "--out", str(tmp_path / "c.json"), "--json"
    )
    assert exported.returncode == 0, exported.stderr
    assert len(json.loads(exported.stdout)["bandwidth"]) == len(stored["cells"])
    checked = harness("calibrate", "check", str(tmp_path / "c.json"), "--json")
    assert checked.returncode == 0
    assert json.loads(checked.stdout)["valid"] is True


@pytest.mark.root
def test_a_device_of_ones_own_must_be_named_twice(tmp_path: Path) -> None:
    with LoopDevice(64 * MIB, tmp_path) as loop:
        done = harness("bench", "layout", "--device", loop.path, "--results", str(tmp_path / "r"))
    assert done.returncode == 2
    assert "--destroy" in done.stderr
    assert all(p.name.endswith(".partial") for p in (tmp_path / "r").iterdir())


@pytest.mark.slow
@pytest.mark.root
def test_ctrl_c_leaves_nothing_behind_and_the_run_can_go_on(tmp_path: Path) -> None:
    import yaml

    path, results = tmp_path / "grid.yaml", tmp_path / "results"
    path.write_text(yaml.safe_dump(grid(sample_seconds=0.3).model_dump(mode="json")))
    words = ["bench", "layout", "--grid", str(path), "--results", str(results), "--json"]
    child = subprocess.Popen(
        [sys.executable, "-m", "harness", *words], stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        journals = list(results.glob("*.partial/samples.jsonl"))
        if journals and journals[0].read_text().count('"round"') >= 2:
            break
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=30)
    assert child.returncode == 130 and "Traceback" not in said
    (partial,) = results.iterdir()
    assert partial.name.endswith(".partial")
    assert json.loads((partial / "run.json").read_text())["state"] == "interrupted"
    kept = [json.loads(line) for line in (partial / "samples.jsonl").read_text().splitlines()]
    done = harness(*words, "--resume", str(partial))
    assert done.returncode == 0, done.stderr
    cells = {cell["id"]: cell for cell in json.loads(done.stdout)["cells"]}
    for record in kept:
        if "round" in record:
            assert cells[record["cell"]]["samples_gbps"][record["round"]] == record["gbps"]


def test_bad_usage_has_its_exit_code(tmp_path: Path) -> None:
    assert harness("bench", "layout", "--grid", "no-such-grid").returncode == 2
    broken = tmp_path / "c.json"
    broken.write_text('{"kind": "kv-flash-calibration"}')
    assert harness("calibrate", "check", str(broken)).returncode == 1
    assert harness("calibrate", "check", str(tmp_path / "none.json")).returncode == 2


@pytest.mark.root
def test_a_run_in_which_nothing_fits_is_no_success(tmp_path: Path) -> None:
    words = ("bench", "layout", "--grid", "quick", "--size", "64MiB", "--results", str(tmp_path))
    done = harness(*words)
    assert done.returncode == 1
    assert "skipped" in done.stdout and "needed)" in done.stdout
    (run,) = tmp_path.iterdir()
    record = json.loads((run / "bench.json").read_text())
    assert len(record["skipped"]) == 4 and record["skipped"][0]["needed_bytes"] > 1 << 30
    tiny = harness("bench", "layout", "--size", "1MiB")
    assert (tiny.returncode, "too small for any cell" in tiny.stderr) == (2, True)


@pytest.mark.root
def test_a_fio_that_dies_ends_the_run_and_says_how_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "fio"
    fake.parent.mkdir()
    fake.write_text('#!/bin/bash\n[ "$1" = --version ] && echo fio-3.33 && exit\nkill -9 $$\n')
    fake.chmod(0o755)
    path = tmp_path / "grid.yaml"
    path.write_text(yaml.safe_dump(grid(repeats=1, max_repeats=1).model_dump(mode="json")))
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    done = harness("bench", "layout", "--grid", str(path), "--results", str(tmp_path / "r"))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "fio was killed (SIGKILL)" in done.stderr
    (run,) = (tmp_path / "r").iterdir()
    assert run.name.endswith(".partial") and f"--resume {run}" in done.stderr.replace("\n", "")
