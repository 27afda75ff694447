"""Playing the points of a sweep: here in processes, or on a Dask cluster; records alike."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from harness.core.errors import HarnessError, MachineError
from harness.core.progress import Progress, quiet
from harness.simulator.corpus import Corpus
from harness.simulator.run import simulate
from harness.simulator.sweep.grid import Job
from harness.simulator.sweep.records import (
    failed_record,
    finished_keys,
    record_key,
    record_of,
    write_part,
)

Batch = tuple[Job, ...]
BATCH_POINTS = 20
"""Points of one trace that a worker plays before it hands in their records."""
_RETRIES = 2
_CORPORA = 2
"""Corpora that a worker keeps in memory."""


def play_batch(batch: Batch) -> list[dict[str, Any]]:
    """The records of a batch; a point that cannot be played is a record that says why."""
    return [_play(job) for job in batch]


def _play(job: Job) -> dict[str, Any]:
    corpus = _corpus(job._replace(point=None))  # type: ignore[arg-type]
    try:
        return record_of(simulate(corpus, job.point))
    except HarnessError as error:
        return failed_record(job.point, str(error))


@functools.lru_cache(maxsize=_CORPORA)
def _corpus(job: Job) -> Corpus:
    return job.corpus()


def batches_of(jobs: Iterable[Job], points: int = BATCH_POINTS) -> list[Batch]:
    """Jobs in their order, cut where the trace changes and after so many points."""
    batches: list[list[Job]] = []
    for job in jobs:
        last = batches[-1] if batches else []
        if last and last[0][:4] == job[:4] and len(last) < points:
            last.append(job)
        else:
            batches.append([job])
    return [tuple(batch) for batch in batches]


def play_all(
    jobs: Sequence[Job],
    folder: Path,
    *,
    workers: int | None = None,
    dask: str | None = None,
    points: int | None = None,
    progress: Progress = quiet,
) -> None:
    """Play every point whose record ``folder`` does not hold yet.

    Parameters
    ----------
    workers
        Processes here; None: one a core.
    dask
        Address of a Dask scheduler whose workers see the traces under the same paths and have
        the same harness installed; batches go there instead.
    points
        Points a batch; None: so many that every worker gets several.

    Raises
    ------
    MachineError
        The system ended a worker, or the cluster cannot be reached; the records so far are kept.
    """
    done = finished_keys(folder)
    todo = [job for job in jobs if record_key(job.point) not in done]
    finished, total = len(jobs) - len(todo), len(jobs)
    progress(finished, total, "")
    if not todo:
        return
    count = workers or os.cpu_count() or 1
    size = points or max(1, min(BATCH_POINTS, len(todo) // (4 * count)))
    stages = [batches_of(part, size) for part in first_of_each_policy(todo)]
    results = _on_dask(dask, stages) if dask else _here(stages, count)
    for rows in results:
        write_part(folder, rows)
        finished += len(rows)
        progress(finished, total, rows[0]["label"])


def first_of_each_policy(jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    """One job of each policy, and all others.

    The first are played before the others begin, each by one worker: it compiles the policy for
    all of them.
    """
    seen: set[str] = set()
    first: list[Job] = []
    rest: list[Job] = []
    for job in jobs:
        (rest if job.point.policy in seen else first).append(job)
        seen.add(job.point.policy)
    return first, rest


def _here(stages: Sequence[Sequence[Batch]], workers: int) -> Iterator[list[dict[str, Any]]]:
    """Records batch by batch as processes finish them, stage by stage."""
    pool = ProcessPoolExecutor(
        min(workers, max(map(len, stages))),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
    )
    try:
        for batches in stages:
            for job in as_completed([pool.submit(play_batch, batch) for batch in batches]):
                yield job.result()
    except BrokenProcessPool as error:
        raise MachineError(
            "the system ended a worker of the sweep, as it does when memory runs out",
            fix="go on with --resume and fewer --workers",
        ) from error
    finally:
        processes = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["NUMBA_NUM_THREADS"] = "1"


def _on_dask(address: str, stages: Sequence[Sequence[Batch]]) -> Iterator[list[dict[str, Any]]]:
    """The same from a cluster; a lost worker's batches are played again."""
    try:
        from distributed import Client
        from distributed import as_completed as as_they_finish
    except ImportError as error:
        raise MachineError(
            "Dask is not installed", fix="pip install 'kvflash-harness[dask]'"
        ) from error
    try:
        client = Client(address, timeout=30)
    except OSError as error:
        raise MachineError(f"no Dask scheduler answers at {address}: {error}") from error
    with client:
        for batches in stages:
            futures = client.map(play_batch, batches, retries=_RETRIES, pure=True)
            for future in as_they_finish(futures):
                yield future.result()
