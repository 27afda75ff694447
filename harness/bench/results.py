"""The record of a benchmark: what ``--json`` prints and ``bench.json`` holds.

``gbps`` is decimal gigabytes a second of *wanted* bytes: what was read through a gap is not
counted, ``amplification`` says how much that was.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict

from harness.bench.stats import Interval
from harness.core.config import Strict

SCHEMA_VERSION = 1


class Record(Strict):
    """Base of the records: NaN and infinities are errors."""

    model_config = ConfigDict(allow_inf_nan=False)


class Cell(Record):
    """One cell: its parameters, its samples in the order they were taken, and their summary."""

    id: str
    pattern: Literal["layout", "sequential", "random", "copy"]
    direction: Literal["read", "write", "mixed"]
    layout: str | None = None
    model: str | None = None
    context_tokens: int | None = None
    turns: int | None = None
    sessions: int | None = None
    age: float | None = None
    chunk_tokens: int | None = None
    access: str | None = None
    background_writes: bool = False
    transport: str
    proof: str | None = None
    """What showed that ``transport`` is what really ran, where it could have been another."""
    queue_depth: int
    threads: int = 1
    task_bytes: int | None = None
    engine: str
    request_bytes: float
    commands: int
    wanted_bytes: int
    read_bytes: int
    amplification: float
    gbps: Interval
    samples_gbps: list[float]
    dropped: int = 0
    spread: float
    settled: bool
    latency_us: dict[str, float] | None = None
    cpu_seconds_per_gb: float | None = None
    background_gbps: float | None = None
    of_best_sequential: Interval | None = None


class Comparison(Record):
    """A layout's time over the session-contiguous layout's, paired round by round."""

    layout: str
    model: str
    context_tokens: int
    turns: int
    sessions: int
    age: float
    chunk_tokens: int
    access: str
    queue_depth: int
    threads: int
    task_bytes: int | None
    transport: str
    engine: str
    background_writes: bool
    request_bytes: float
    contiguous_request_bytes: float
    slowdown: Interval


class LoadPoint(Record):
    """One rate of the open-loop sweep, over all its repeats.

    ``late``: requests that were not complete by the deadline; ``cancelled``: reads never issued.
    ``delivered``: share of wanted bytes that came by the deadline, repeat by repeat.
    ``prefetch_s``: p50, p99 and max over the requests that were completed.
    """

    layout: str
    model: str
    context_tokens: int
    turns: int
    sessions: int
    age: float
    access: str
    queue_depth: int
    request_bytes: float
    on_deadline: str
    deadline_s: float
    rate_per_s: float
    share_of_best: float | None
    seconds: float
    repeats: int
    requests: int
    completed: int
    late: int
    cancelled: int
    delivered_share: float
    delivered: Interval
    prefetch_s: dict[str, float]
    read_gbps: float
    amplification: float | None


class Skipped(Record):
    """A cell that was not measured, and why; ``needed_bytes`` where the device was too small."""

    id: str
    reason: str
    needed_bytes: int | None = None


class BenchResult(Record):
    """A whole run of a grid on one device."""

    schema_version: int = SCHEMA_VERSION
    grid: str
    seed: int
    repeats: int
    settle_rule: str
    precondition: str
    started: datetime
    duration_s: float
    shortened: str | None = None
    host: dict[str, Any]
    device: dict[str, Any]
    stand_in: str | None = None
    fio_version: str
    best_sequential: dict[str, str]
    cells: list[Cell]
    comparisons: list[Comparison]
    load: list[LoadPoint]
    skipped: list[Skipped]
    not_measured: dict[str, str]

    def cell(self, cell_id: str) -> Cell:
        """The cell of that id; KeyError if it was not measured."""
        for cell in self.cells:
            if cell.id == cell_id:
                return cell
        raise KeyError(cell_id)
