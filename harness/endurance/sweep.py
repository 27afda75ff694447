"""Many drives, one store: every point of a grid, in parallel, resumable."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Annotated, Any, TextIO

from pydantic import Field, field_validator

from harness.core.assets import find_yaml
from harness.core.config import Size, Strict, load_yaml
from harness.core.errors import HarnessError, MachineError, UsageError
from harness.core.grids import combinations
from harness.core.memory import available_bytes
from harness.core.profiles import DeviceProfile, PolicyName, load_profile
from harness.core.progress import Progress
from harness.endurance.result import to_json
from harness.endurance.store_input import StoreInput
from harness.endurance.wear import Options, wear
from harness.ftl.pages import table_bytes
from harness.stores.registry import load_store_spec

JOURNAL = "points.jsonl"
_MEMORY_SHARE = 0.7

Share = Annotated[float, Field(gt=0, le=1)]


class Axes(Strict):
    """Values of each dimension; one left out keeps what profile and store say."""

    policy: list[PolicyName] | None = None
    over_provisioning: list[Annotated[float, Field(gt=0, le=10)]] | None = None
    line_bytes: list[Size] | None = None
    chunk_tokens: list[Annotated[int, Field(gt=0)]] | None = None
    utilisation: list[Share] | None = None
    namespace_bytes: list[Size] | None = None

    @field_validator("*")
    @classmethod
    def _not_empty(cls, values: list[Any] | None) -> list[Any] | None:
        if values is not None and (not values or len(set(values)) < len(values)):
            raise ValueError("give at least one value, and none twice")
        return values

    def points(self) -> Iterator[dict[str, Any]]:
        """Every combination."""
        return combinations({name: values for name, values in self if values is not None})


class Grid(Strict):
    """A sweep; ``workloads/wear/*.yaml`` has examples."""

    description: str = ""
    profile: str
    store: str
    requests: str
    model: str
    seed: Annotated[int, Field(ge=0)] = 0
    precondition: Annotated[int, Field(ge=0)] = 2
    budget_s: Annotated[float, Field(gt=0)] | None = None
    """Time for one point, after which it is reported as not steady."""
    axes: Axes


def load_grid(name_or_path: str) -> Grid:
    """A grid by name in ``workloads/wear/`` or by path; UsageError names file and key."""
    grid = load_yaml(find_yaml("workloads/wear", name_or_path), Grid)
    for point in grid.axes.points():
        _source(grid, point, drive(grid, point))
    return grid


def drive(grid: Grid, point: dict[str, Any]) -> DeviceProfile:
    """The drive of a point: the grid's profile with what the point says changed."""
    profile = load_profile(grid.profile)
    if "policy" in point:
        profile = profile.with_policy(point["policy"])
    namespace = point.get("namespace_bytes", profile.namespace_bytes)
    spare = point.get("over_provisioning", profile.over_provisioning)
    line = point.get("line_bytes", profile.line_bytes)
    stripe = profile.nchs * profile.luns_per_ch * profile.page_bytes
    depth = max(1, round(line / stripe))  # one block of every LUN is one line, in either policy
    lines = round(namespace * (1 + spare) / (stripe * depth))
    try:
        return profile.changed(
            capacity_bytes=namespace,
            devsz_mb=None,
            op_pcent=0,
            pls_per_lun=1,
            blks_per_pl=lines,
            pgs_per_blk=depth,
            drive={"line_bytes": stripe * depth},
        )
    except UsageError as error:
        raise UsageError(f"the point {label(point)} cannot work: {error}") from None


def label(point: dict[str, Any]) -> str:
    """A point as people read it."""
    return ", ".join(f"{name} {value}" for name, value in point.items()) or "the grid's only point"


def measure_point(grid: Grid, point: dict[str, Any]) -> dict[str, Any]:
    """The wear of one point, without its snapshots."""
    profile = drive(grid, point)
    source = _source(grid, point, profile)
    options = Options(fills=grid.precondition, budget_s=grid.budget_s, by_class=False)
    result = to_json(wear(source, profile, options))
    del result["snapshots"]
    return {**result, "store": grid.store, "point": point}


def _source(grid: Grid, point: dict[str, Any], profile: DeviceProfile) -> StoreInput:
    """The store of a point; UsageError where there is no such store or it does not fit."""
    spec = load_store_spec(grid.store)
    if "chunk_tokens" in point:
        spec = type(spec).model_validate(
            {**spec.model_dump(), "chunk_tokens": point["chunk_tokens"]}
        )
    size = int(profile.namespace_bytes * point.get("utilisation", 1.0))
    return StoreInput(spec, grid.requests, grid.model, size, grid.seed)


def run_sweep(
    grid: Grid, folder: Path, progress: Progress, workers: int | None = None
) -> list[dict[str, Any]]:
    """Measure what the journal in ``folder`` does not hold yet; results in the grid's order.

    A point that fails is a result with ``error``. Interrupted, the journal keeps what is done;
    MachineError where the system ended a worker.
    """
    points = list(grid.axes.points())
    done = read_journal(folder / JOURNAL)
    todo = [point for point in points if key(point) not in done]
    progress(len(done), len(points), "")
    if todo:
        pool = ProcessPoolExecutor(
            workers or _workers(grid, todo),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=signal.signal,
            initargs=(signal.SIGINT, signal.SIG_IGN),
        )
        try:
            jobs = {pool.submit(_try_point, grid, point): point for point in todo}
            _collect(jobs, folder / JOURNAL, done, len(points), progress)
        except BrokenProcessPool as error:
            raise MachineError(
                f"the system ended a worker of the sweep, as it does when memory runs out; "
                f"{len(done)} of {len(points)} points are kept",
                fix=f"free memory and go on with --resume {folder}",
            ) from error
        finally:
            _stop(pool)
    return [done[key(point)] for point in points]


def _collect(
    jobs: dict[Future[dict[str, Any]], dict[str, Any]],
    journal: Path,
    done: dict[str, dict[str, Any]],
    total: int,
    progress: Progress,
) -> None:
    for job in as_completed(jobs):
        point, result = jobs[job], job.result()
        done[key(point)] = result
        with journal.open("a") as file:
            _write_entry(file, key(point), result)
        progress(len(done), total, label(point))


def _write_entry(file: TextIO, name: str, result: dict[str, Any]) -> None:
    file.write(json.dumps({"key": name, "result": result}) + "\n")


def _try_point(grid: Grid, point: dict[str, Any]) -> dict[str, Any]:
    try:
        return measure_point(grid, point)
    except HarnessError as error:
        return {"point": point, "error": str(error)}


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the workers at once; a finished sweep has none that still work."""
    workers = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()


def _workers(grid: Grid, points: list[dict[str, Any]]) -> int:
    """As many as there are cores, and as fit into free memory."""
    largest = max(
        table_bytes(d.namespace_pages, d.lines, d.pages_per_line, False)
        for d in (drive(grid, point) for point in points)
    )
    fit = int(available_bytes() * _MEMORY_SHARE / (largest + (256 << 20)))
    return max(1, min(len(os.sched_getaffinity(0)), fit, len(points)))


def key(point: dict[str, Any]) -> str:
    """What a point is called in the journal."""
    return json.dumps(point, sort_keys=True)


def read_journal(path: Path) -> dict[str, dict[str, Any]]:
    """Finished points by key; a line cut off by a crash is left out."""
    done = {}
    if path.is_file():
        for line in path.read_text().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and entry.keys() >= {"key", "result"}:
                done[entry["key"]] = entry["result"]
    return done


def carry_over(partial: Path, folder: Path, grid: Grid) -> None:
    """Start ``folder`` with what an interrupted sweep of the same grid had done."""
    try:
        record = json.loads((partial / "run.json").read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{partial} is not a run folder") from error
    config = record.get("config") if isinstance(record, dict) else None
    if not isinstance(config, dict) or config.get("grid") != grid.model_dump(mode="json"):
        raise UsageError(f"{partial} is of another grid")
    with (folder / JOURNAL).open("w") as file:
        for name, result in read_journal(partial / JOURNAL).items():
            _write_entry(file, name, result)
