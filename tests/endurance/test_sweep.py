from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.core.config import validate
from harness.core.errors import MachineError, UsageError
from harness.core.progress import quiet
from harness.endurance.sweep import (
    JOURNAL,
    Grid,
    carry_over,
    drive,
    key,
    load_grid,
    measure_point,
    read_journal,
    run_sweep,
)  # fmt: skip
from harness.endurance.sweep_plot import draw_sweep, plot_axis, sweep_table

BASE: dict[str, Any] = {
    "profile": "1tb-0.3dwpd",
    "store": "lmcache-raw-block",
    "requests": "chat",
    "model": "llama-3.1-8b-tp8",
    "budget_s": 300,
    "axes": {
        "namespace_bytes": ["2GiB"],
        "line_bytes": ["4MiB"],
        "over_provisioning": [0.07, 0.28],
        "policy": ["drive", "femu-late"],
    },
}


def grid(**axes: Any) -> Grid:
    return validate({**BASE, "axes": {**BASE["axes"], **axes}}, Grid, "grid")


def test_points_are_every_combination_in_order() -> None:
    points = list(grid(utilisation=[0.5, 1.0]).axes.points())
    assert len(points) == 8
    assert points[0] == {
        "policy": "drive", "over_provisioning": 0.07, "line_bytes": 4 << 20,
        "utilisation": 0.5, "namespace_bytes": 2 << 30,
    }  # fmt: skip


@pytest.mark.parametrize("policy", ["drive", "femu-late"])
@pytest.mark.parametrize("spare", [0.07, 0.28])
@pytest.mark.parametrize("line", [1 << 20, 16 << 20])
def test_a_points_drive_is_what_the_point_says(policy: str, spare: float, line: int) -> None:
    point = {"policy": policy, "over_provisioning": spare, "line_bytes": line,
             "namespace_bytes": 8 << 30}  # fmt: skip
    found = drive(grid(), point)
    assert found.policy == policy
    assert found.namespace_bytes == 8 << 30
    assert found.over_provisioning == pytest.approx(spare, abs=line / (8 << 30))
    assert found.line_bytes == pytest.approx(line, rel=0.01)


def test_a_point_that_cannot_work_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(yaml.safe_dump({**BASE, "axes": {"over_provisioning": [0.0001]}}))
    with pytest.raises(UsageError, match=r"the point over_provisioning 0\.0001 cannot work"):
        load_grid(str(path))
    path.write_text(yaml.safe_dump({**BASE, "axes": {"policy": ["drive", "drive"]}}))
    with pytest.raises(UsageError, match=r"axes\.policy: give at least one value, and none twice"):
        load_grid(str(path))
    path.write_text(yaml.safe_dump({**BASE, "axes": {"speed": [1]}}))
    with pytest.raises(UsageError, match=r"axes\.speed: unknown key"):
        load_grid(str(path))


@pytest.mark.parametrize("name", ["over-provisioning", "chunk-and-fill"])
def test_the_grids_that_ship_can_work(name: str) -> None:
    assert len(list(load_grid(name).axes.points())) >= 16


def test_the_chunk_of_a_point_reaches_the_store() -> None:
    point = {"namespace_bytes": 2 << 30, "line_bytes": 4 << 20, "chunk_tokens": 128}
    found = measure_point(grid(), point)
    assert found["chunk_tokens"] == 128
    assert found["store"] == "lmcache-raw-block"
    assert "snapshots" not in found


@pytest.mark.slow
def test_a_sweep_in_parallel_its_table_and_its_plot(tmp_path: Path) -> None:
    seen: list[float] = []
    swept = grid()
    points = run_sweep(swept, tmp_path, lambda done, total, note="": seen.append(done), workers=2)
    assert [point["point"] for point in points] == list(swept.axes.points())
    assert seen == [0, 1, 2, 3, 4]
    alone = measure_point(swept, points[0]["point"])
    assert points[0]["waf"] == alone["waf"]
    assert draw_sweep(points, tmp_path / "sweep.svg")
    assert "over-provisioning (flash" in (tmp_path / "sweep.svg").read_text()
    assert sweep_table(points).row_count == 4
    again = run_sweep(swept, tmp_path, quiet, workers=1)  # all from the journal
    assert again == points


def test_a_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    swept = grid(policy=["drive"])
    points = list(swept.axes.points())
    partial, folder = tmp_path / "a.partial", tmp_path / "b"
    for made in (partial, folder):
        made.mkdir()
    config = {"grid": swept.model_dump(mode="json")}
    (partial / "run.json").write_text(json.dumps({"config": config}))
    done = {"key": key(points[0]), "result": {"point": points[0], "waf": "as it was"}}
    (partial / JOURNAL).write_text(json.dumps(done) + '\n{"key": "cut o')
    carry_over(partial, folder, swept)
    assert list(read_journal(folder / JOURNAL)) == [key(points[0])]
    found = run_sweep(swept, folder, quiet, workers=1)
    assert found[0]["waf"] == "as it was"
    assert found[1]["waf"]["cumulative"] >= 1
    with pytest.raises(UsageError, match="is of another grid"):
        carry_over(partial, folder, grid())
    with pytest.raises(UsageError, match="is not a run folder"):
        carry_over(tmp_path / "nowhere", folder, swept)


def test_a_worker_that_the_system_ends_is_one_clear_error(tmp_path: Path) -> None:
    others = set(multiprocessing.active_children())

    def end_a_worker() -> None:
        while not (workers := set(multiprocessing.active_children()) - others):
            time.sleep(0.01)
        os.kill(int(workers.pop().pid or 0), signal.SIGKILL)

    killer = threading.Thread(target=end_a_worker)
    killer.start()
    with pytest.raises(MachineError, match=r"ended a worker .* 0 of 4 points are kept") as error:
        run_sweep(grid(), tmp_path, quiet, workers=1)
    killer.join()
    assert str(error.value.fix).endswith(f"--resume {tmp_path}")


def test_a_plot_needs_a_number_with_two_values(tmp_path: Path) -> None:
    only = [{"point": {"policy": "drive", "utilisation": 1.0}}]
    assert plot_axis(only) is None
    assert not draw_sweep(only, tmp_path / "sweep.svg")
    assert not (tmp_path / "sweep.svg").exists()
