"""Records of points: flat rows, kept as Parquet parts that appear whole or not at all."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import harness.simulator
from harness.core.errors import UsageError
from harness.simulator.loading.alone import load_s
from harness.simulator.loading.rates import seed_rates
from harness.simulator.loading.work import work_of
from harness.simulator.outcome import Outcome
from harness.simulator.point import Point
from harness.simulator.run import Run

FOLDER = "records"
_INT, _FLOAT, _TEXT = pa.int64(), pa.float64(), pa.string()

_BY_CLASS = (
    "hits_dram", "hits_ssd", "created", "written", "first_written", "useful", "used_before",
    "never_again", "superseded", "evicted",
)  # fmt: skip
"""Counts of ``Traffic`` that a record keeps for each class."""

SCHEMA = pa.schema(
    [
        ("key", _TEXT), ("code", _TEXT), ("trace", _TEXT), ("lanes", _INT), ("seed", _INT),
        ("model", _TEXT), ("block_tokens", _INT), ("checkpoint", _TEXT), ("policy", _TEXT),
        ("label", _TEXT), ("parameters", _TEXT), ("dram_bytes", _INT), ("ssd_bytes", _INT),
        ("structure", _TEXT), ("on_ssd_hit", _TEXT), ("replays", _INT), ("warmup", _FLOAT),
        ("chunk_bytes", _INT), ("state_bytes", _INT), ("requests", _INT), ("references", _INT),
        ("hits", _INT), ("stranded", _INT), ("miss", _FLOAT), ("miss_token", _FLOAT),
        ("miss_request", _FLOAT), ("miss_zero", _FLOAT), ("seconds", _FLOAT),
        ("missed_tokens", _INT), ("load_mean_s", _FLOAT),
        *((f"full_{name}", _INT) for name in _BY_CLASS),
        *((f"state_{name}", _INT) for name in _BY_CLASS),
        ("written_bytes", _INT), ("first_pass_written_bytes", _INT),
        ("last_pass_written_bytes", _INT), ("error", _TEXT),
    ]
)  # fmt: skip
"""One row a point; counts are of objects, ``written_bytes`` of both classes. ``error``: why a
point could not be played; its figures are then null. ``load_mean_s``: load latency of a request
that has the machine to itself, at the published rates."""


@functools.cache
def code_version() -> str:
    """A hash over the simulator's own source: other code makes other records."""
    digest = hashlib.sha256()
    folder = Path(harness.simulator.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        if path.parent.name not in ("wearing", "sweep"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def record_key(point: Point) -> str:
    """Point and code version: what is recorded under it need not be played again."""
    return f"{point.key}-{code_version()}"


def record_of(run: Run) -> dict[str, Any]:
    """The row of a run."""
    outcome = run.outcome
    sizes = {"chunk_bytes": run.sizes.chunk_bytes, "state_bytes": run.sizes.state_bytes}
    by_class = {
        f"{kind}_{name}": getattr(getattr(outcome, kind), name)
        for kind in ("full", "state")
        for name in _BY_CLASS
    }
    return {
        **_of_point(run.point, run.label), **sizes, **by_class,
        **{name: getattr(outcome, name) for name in
           ("requests", "references", "hits", "stranded", "miss", "miss_token", "miss_request",
            "miss_zero", "seconds")},
        "written_bytes": _written(outcome),
        "first_pass_written_bytes": _written(run.passes[0]),
        "last_pass_written_bytes": _written(run.passes[-1]),
        "missed_tokens": outcome.input_tokens - outcome.hits * outcome.block_tokens,
        "load_mean_s": _load_mean_s(run),
        "error": None,
    }  # fmt: skip


def _load_mean_s(run: Run) -> float:
    """Over the requests after the warm-up."""
    work = work_of(run.requests[len(run.requests) - run.outcome.requests :], run.sizes)
    return float(load_s(work, seed_rates(len(work))).mean())


def failed_record(point: Point, error: str) -> dict[str, Any]:
    """The row of a point that could not be played."""
    row = dict.fromkeys(SCHEMA.names)
    return {**row, **_of_point(point, point.policy), "error": error}


def _of_point(point: Point, label: str) -> dict[str, Any]:
    facts = point.model_dump(exclude={"chunk_bytes", "state_bytes", "last_token"})
    facts["parameters"] = json.dumps(point.parameters, sort_keys=True)
    return {"key": record_key(point), "code": code_version(), "label": label, **facts}


def _written(outcome: Outcome) -> int:
    return outcome.full.written_bytes + outcome.state.written_bytes


def write_part(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Add a part, named after the keys in it; it is there whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    names = hashlib.sha256(" ".join(row["key"] for row in rows).encode()).hexdigest()[:16]
    target = folder / f"{names}.parquet"
    aside = folder / f".{names}.{os.getpid()}"
    try:
        pq.write_table(pa.Table.from_pylist(list(rows), SCHEMA), aside, compression="zstd")
        aside.rename(target)
    finally:
        aside.unlink(missing_ok=True)
    return target


def read_records(folder: Path) -> pa.Table:
    """All parts, by key; UsageError for a folder without any."""
    parts = sorted(folder.glob("*.parquet"))
    if not parts:
        raise UsageError(f"{folder} holds no records of a sweep")
    table = pa.concat_tables([pq.read_table(part, schema=SCHEMA) for part in parts])
    return table.sort_by("key")


def finished_keys(folder: Path) -> set[str]:
    """Keys of the points that were played, whatever part holds them."""
    keys: set[str] = set()
    for part in folder.glob("*.parquet"):
        table = pq.read_table(part, columns=["key", "error"])
        keys |= {k for k, e in _pairs(table) if e is None}
    return keys


def _pairs(table: pa.Table) -> Iterable[tuple[str, str | None]]:
    return zip(table["key"].to_pylist(), table["error"].to_pylist(), strict=True)


def carry_over(earlier: Path, folder: Path) -> int:
    """Copy the parts of an earlier run folder to ``folder``; how many. UsageError without any."""
    parts = sorted((earlier / FOLDER).glob("*.parquet"))
    if not parts:
        raise UsageError(f"{earlier} holds no records of a sweep", fix="give its run folder")
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        shutil.copyfile(part, folder / part.name)
    return len(parts)
