"""Open-loop load: seeded arrivals, nothing invented, deadlines that mean something."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from harness.bench.drive import Engine
from harness.bench.grid import load_grid
from harness.bench.layout import bench_on_loop
from harness.bench.load import arrivals, run_load
from harness.bench.plans import Plan
from harness.bench.tables import load_table
from harness.core.errors import UsageError
from harness.device.guard import open_guarded
from harness.device.loop import LoopDevice

MIB = 1 << 20


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with (
        LoopDevice(32 * MIB, tmp_path_factory.mktemp("load")) as loop,
        open_guarded(loop.path, own=True) as target,
        Engine(target.fd, 4, MIB) as engine,
    ):
        yield engine


def plan(first: int, count: int = 8) -> Plan:
    offset = (np.arange(count, dtype=np.uint64) + np.uint64(first)) * np.uint64(MIB)
    length = np.full(count, MIB, np.uint64)
    return Plan(offset, length, np.zeros(count, np.int64), count * MIB)


def test_arrivals_are_poisson_and_seeded() -> None:
    times = arrivals(200.0, 50.0, seed=4)
    assert np.array_equal(times, arrivals(200.0, 50.0, seed=4))
    assert not np.array_equal(times[:50], arrivals(200.0, 50.0, seed=5)[:50])
    assert len(times) == pytest.approx(10_000, rel=0.05)
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05)
    assert times.max() < 50.0
    assert len(arrivals(0.001, 1.0, seed=1)) == 1


@pytest.mark.root
def test_at_low_load_everything_is_delivered(engine: Engine) -> None:
    run = run_load(
        engine, [plan(0), plan(8)], np.array([0.0, 0.2, 0.4]), deadline_s=5.0, cancel=True,
        patience_s=1.0,
    )  # fmt: skip
    assert run.wanted_bytes.tolist() == [8 * MIB] * 3
    assert run.delivered_bytes.tolist() == run.read_bytes.tolist() == [8 * MIB] * 3
    assert run.cancelled.tolist() == [0, 0, 0]
    assert np.all(run.prefetch_s > 0) and np.all(run.prefetch_s < 5)
    assert run.seconds >= 0.4  # the load is open: the last one came at 0.4 s


@pytest.mark.root
@pytest.mark.parametrize("cancel", [True, False])
def test_under_overload_every_read_is_issued_or_cancelled(engine: Engine, cancel: bool) -> None:
    many = [plan(0, count=24)]
    run = run_load(
        engine, many, np.full(60, 0.001), deadline_s=0.02, cancel=cancel, patience_s=0.05
    )
    assert np.array_equal(run.read_bytes + run.cancelled * MIB, run.wanted_bytes)
    assert np.all(run.delivered_bytes <= run.read_bytes)
    late = run.prefetch_s > 0.02
    assert late.any()
    assert np.all(run.delivered_bytes[late] < run.wanted_bytes[late])
    assert np.all(np.isinf(run.prefetch_s) == (run.cancelled > 0))
    if cancel:
        # What was not issued by the deadline is never read, so little time is lost to it.
        assert run.cancelled.sum() > 0
        assert run.seconds < 5


@pytest.mark.root
def test_a_store_that_waits_delivers_late_but_whole(engine: Engine) -> None:
    run = run_load(engine, [plan(0)], np.zeros(20), deadline_s=0.001, cancel=False, patience_s=60.0)
    assert np.all(np.isfinite(run.prefetch_s))
    assert run.cancelled.sum() == 0
    assert np.array_equal(run.read_bytes, run.wanted_bytes)
    # First come, first served: nobody overtakes by more than the ring's depth.
    assert np.all(np.diff(run.prefetch_s) > -0.05)


@pytest.mark.root
def test_the_sweep_pools_its_repeats(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    part = {
        "stores": ["session-contiguous", "lmcache-raw-block"], "model": "llama-3.1-8b-tp8",
        "context_tokens": 512, "shares": [0.05], "seconds": 0.3, "deadline_s": 5.0,
        "sessions": 2, "repeats": 2, "on_deadline": ["cancel"],
    }  # fmt: skip
    path.write_text(yaml.safe_dump({"name": "l", "reference_bytes": "8MiB", "load": [part]}))
    found = bench_on_loop(load_grid(str(path)), tmp_path, journal=tmp_path / "samples.jsonl")
    assert [point.layout for point in found.load] == ["session-contiguous", "lmcache-raw-block"]
    for point in found.load:
        assert point.repeats == 2 == point.delivered.n
        assert (point.late, point.cancelled) == (0, 0)
        assert point.delivered_share == 1.0
        assert point.completed == point.requests > 0
        assert point.amplification == pytest.approx(1.0)
    one, two = found.load
    # Equal arrivals for both, and fragments of 64 KiB for the second only.
    assert one.requests == two.requests
    assert one.request_bytes > two.request_bytes == 65536
    assert load_table(found).row_count == 2
    again = bench_on_loop(load_grid(str(path)), tmp_path, journal=tmp_path / "samples.jsonl")
    assert [p.prefetch_s for p in again.load] == [p.prefetch_s for p in found.load]


@pytest.mark.parametrize("rates", [{}, {"rates_per_s": [1.0], "shares": [0.5]}])
def test_a_sweep_needs_one_kind_of_rate(tmp_path: Path, rates: dict) -> None:
    path = tmp_path / "grid.yaml"
    part = {"stores": ["kvbm"], "model": "llama-3.1-8b", "context_tokens": 512, **rates}
    path.write_text(yaml.safe_dump({"name": "l", "load": [part]}))
    with pytest.raises(UsageError, match=r"load\.0: give either rates_per_s or shares"):
        load_grid(str(path))
