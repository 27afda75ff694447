"""Sweeps: every point once, records whole, resumable, alike from processes and a cluster."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from harness.core.errors import MachineError, UsageError
from harness.simulator.policies import policy_names
from harness.simulator.sweep import play
from harness.simulator.sweep.frontier import frontier
from harness.simulator.sweep.grid import Grid, Job, jobs_of, load_grid
from harness.simulator.sweep.play import batches_of, first_of_each_policy, play_all, play_batch
from harness.simulator.sweep.records import (
    FOLDER,
    SCHEMA,
    carry_over,
    finished_keys,
    read_records,
    record_key,
    write_part,
)

GRID = Grid.model_validate(
    {
        "traces": [{"requests": "chat", "limit": 60, "seeds": [0, 1]}],
        "models": ["qwen3.5-27b"],
        "tiers": [{"dram": "2GB", "ssd": "8GB"}, {"dram": "4GB", "ssd": 0}],
        "structure": ["leaf", "free"],
        "policies": [{"name": "lru"}],
    }
)


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    return jobs_of(GRID)


@pytest.fixture(scope="module")
def here(jobs: list[Job], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of the whole grid, made by two processes."""
    folder = tmp_path_factory.mktemp("here") / FOLDER
    play_all(jobs, folder, workers=2, points=2)
    return folder


def test_every_combination_is_one_point(jobs: list[Job]) -> None:
    assert len({job.point.key for job in jobs}) == len(jobs) == 2 * 2 * 2
    assert {(job.point.structure, job.point.seed) for job in jobs} == {
        ("leaf", 0), ("leaf", 1), ("free", 0), ("free", 1),
    }  # fmt: skip


def test_a_record_is_what_the_run_counted(jobs: list[Job], here: Path) -> None:
    table = read_records(here)
    assert table.schema == SCHEMA and table.num_rows == len(jobs)
    assert table["error"].null_count == len(jobs)
    rows = {row["key"]: row for row in table.to_pylist()}
    (expected,) = play_batch((jobs[0],))
    assert rows[record_key(jobs[0].point)] == expected
    row = rows[record_key(jobs[0].point)]
    assert row["hits"] + round(row["miss"] * row["references"]) == row["references"] > 0
    assert row["written_bytes"] == (
        row["full_written"] * row["chunk_bytes"] + row["state_written"] * row["state_bytes"]
    )
    without_ssd = [row for row in rows.values() if row["ssd_bytes"] == 0]
    assert without_ssd and all(row["written_bytes"] == 0 for row in without_ssd)


def test_finished_points_are_not_played_again(
    jobs: list[Job], here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the records are taken over; the other half is all that is played."""
    kept = sorted(here.glob("*.parquet"))[::2]
    earlier = tmp_path / "earlier" / FOLDER
    earlier.mkdir(parents=True)
    for part in kept:
        (earlier / part.name).write_bytes(part.read_bytes())
    folder = tmp_path / FOLDER
    assert carry_over(tmp_path / "earlier", folder) == len(kept)
    known = finished_keys(folder)
    played: list[str] = []

    def count(stages: list[list[play.Batch]], workers: int) -> object:
        for batch in (batch for batches in stages for batch in batches):
            played.extend(record_key(job.point) for job in batch)
            yield play_batch(batch)

    monkeypatch.setattr(play, "_here", count)
    play_all(jobs, folder)
    assert 0 < len(known) < len(jobs)
    assert len(played) == len(set(played)) == len(jobs) - len(known)
    assert read_records(folder).equals(read_records(here))
    play_all(jobs, folder)
    assert len(played) == len(jobs) - len(known)
    with pytest.raises(UsageError, match="holds no records"):
        carry_over(tmp_path / "nothing", folder)


@pytest.mark.timeout(900)
def test_a_cluster_makes_the_same_records(jobs: list[Job], here: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        play_all(jobs, tmp_path / FOLDER, dask=cluster.scheduler_address, points=2)
    assert read_records(tmp_path / FOLDER).equals(read_records(here))


@pytest.mark.timeout(900)
def test_a_lost_worker_of_a_cluster_costs_its_batch_only(
    jobs: list[Job], here: Path, tmp_path: Path
) -> None:
    """One of two workers is ended as soon as the first records are there."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        ended: list[object] = []

        def progress(done: float, total: float | None, note: str = "") -> None:
            if done and not ended:
                nanny = next(iter(cluster.workers.values()))
                ended.append(nanny)
                nanny.process.process.kill()

        some = jobs[:4]
        play_all(
            some, tmp_path / FOLDER, dask=cluster.scheduler_address, points=1, progress=progress
        )
    assert ended
    wanted = {record_key(job.point) for job in some}
    expected = [row for row in read_records(here).to_pylist() if row["key"] in wanted]
    assert read_records(tmp_path / FOLDER).to_pylist() == expected


def test_no_cluster_is_one_clear_error(jobs: list[Job], tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(MachineError, match="no Dask scheduler answers"):
        play_all(jobs, tmp_path / FOLDER, dask="tcp://127.0.0.1:9")


def test_a_point_that_cannot_be_played_says_why(jobs: list[Job]) -> None:
    job = jobs[0]._replace(point=jobs[0].point.model_copy(update={"dram_bytes": 1 << 20}))
    (row,) = play_batch((job,))
    assert "more than the DRAM tier" in row["error"] and row["miss"] is None


def test_each_policy_is_compiled_once_before_the_rest() -> None:
    """The first of each policy, then all others, in their order."""
    grid = Grid.model_validate(
        {**GRID.model_dump(), "policies": [{"name": "lru"}, {"name": "write-through"}]}
    )
    first, rest = first_of_each_policy(jobs_of(grid))
    assert [job.point.policy for job in first] == ["lru", "write-through"]
    assert len(rest) == 16 - 2


def test_batches_hold_one_trace_each(jobs: list[Job]) -> None:
    batches = batches_of(jobs, 3)
    assert [len(batch) for batch in batches] == [3, 1, 3, 1]
    assert all(len({job.seed for job in batch}) == 1 for batch in batches)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("traces: []\nmodels: [x]\npolicies: [{name: lru}]\ntiers: [{dram: 1GB}]\n", "traces"),
        ("traces: [{requests: chat}]\nmodels: [x]\npolicies: [{name: lur}]\ntiers: [{dram: 1GB}]\n",
         "did you mean lru"),
        ("traces: [{requests: chat}]\nmodels: [x]\npolicies: [{name: lru, parameters: {k: []}}]\n"
         "tiers: [{dram: 1GB}]\n", r"policies.0.parameters.k"),
    ],
)  # fmt: skip
def test_a_grid_without_points_or_with_a_wrong_name(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        load_grid(str(path))


def test_the_grid_of_every_policy_has_every_policy() -> None:
    grid = load_grid("frontier")
    assert sorted(axis.name for axis in grid.policies) == list(policy_names())


def test_an_interrupted_write_leaves_no_part(tmp_path: Path) -> None:
    with pytest.raises(pa.ArrowInvalid):
        write_part(tmp_path, [{"key": "a", "requests": "many"}])
    assert list(tmp_path.iterdir()) == []


def test_the_frontier_keeps_every_point_and_marks_the_unbeaten() -> None:
    group = dict.fromkeys(SCHEMA.names)

    def row(key: str, miss: float, written: int, **changes: object) -> dict[str, object]:
        return {
            **group,
            "key": key,
            "label": key,
            "miss": miss,
            "written_bytes": written,
            **changes,
        }

    table = pa.Table.from_pylist(
        [row("a", 0.1, 9), row("b", 0.2, 5), row("c", 0.3, 5), row("d", 0.4, 1), row("e", 0.1, 9),
         row("f", 0.9, 99, model="other"), row("g", None, None, error="why")],
        SCHEMA,
    )  # fmt: skip
    found = frontier(table)
    assert [one["label"] for one in found if one["on_frontier"]] == ["a", "b", "d", "e", "f"]
    assert {one["label"] for one in found} == {"a", "b", "c", "d", "e", "f"}
