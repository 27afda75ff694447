"""From samples to the record: medians, intervals, ratios by round, comparisons."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np

from harness.bench.cells import Sample
from harness.bench.grid import CONTIGUOUS, Grid
from harness.bench.journal import Journal
from harness.bench.results import BenchResult, Cell, Comparison, LoadPoint, Skipped
from harness.bench.stats import estimate, ratio, settled, spread, without_outliers

PRECONDITION = (
    "every store wrote its own history of the stated age; the reference region was written once, "
    "in order, with random data; nothing was read that had not been written"
)

Key = tuple[int, int]

_SAME = (
    "model", "context_tokens", "turns", "sessions", "age", "access", "queue_depth",
    "threads", "task_bytes", "transport", "background_writes", "engine",
)  # fmt: skip
"""Parameters in which two cells must agree to be compared; the layout differs."""


def summarise(
    grid: Grid,
    device: dict[str, Any],
    stand_in: str | None,
    journal: Journal,
    skipped: list[Skipped],
    load: list[LoadPoint],
    *,
    fio_version: str,
    started: datetime,
    duration_s: float,
    cut: bool,
    host: dict[str, Any],
    not_measured: dict[str, str],
) -> BenchResult:
    """The whole record of a run; ``device`` are the facts of ``device_facts``."""
    kept = {name: _kept(journal.of(name), grid) for name in journal.facts}
    cells, left_out = [], list(skipped)
    best = _best_sequential(journal, kept)
    for name, facts in journal.facts.items():
        if len(kept[name]) == 0:
            taken = len(journal.of(name))
            left_out.append(Skipped(id=name, reason=f"none of {taken} repeats was left"))
            continue
        cells.append(
            _cell(
                name,
                facts,
                journal.of(name),
                kept[name],
                kept.get(best.get(_family(facts), "")),
                grid,
            )
        )
    asked = f"{grid.repeats} repeats were asked for, the time limit of {grid.budget_s} s came first"
    fewest = min((cell.gbps.n for cell in cells), default=0)
    return BenchResult(
        grid=grid.name,
        seed=grid.seed,
        repeats=grid.repeats,
        settle_rule=(
            f"settled: 95 % interval within {grid.settle:.0%} of the median and halves within "
            f"{grid.settle:.0%} of each other; up to {grid.max_repeats} repeats to get there"
        ),
        precondition=f"{grid.fills} sequential fills of the device; {PRECONDITION}",
        started=started,
        duration_s=duration_s,
        shortened=asked if cut and fewest < grid.repeats else None,
        host=host,
        device=device,
        stand_in=stand_in,
        fio_version=fio_version,
        best_sequential=best,
        cells=cells,
        comparisons=_comparisons(cells, kept),
        load=load,
        skipped=left_out,
        not_measured=not_measured,
    )


def _kept(samples: dict[Key, Sample], grid: Grid) -> dict[Key, Sample]:
    """Samples within the outlier rule."""
    keys = list(samples)
    within = without_outliers([samples[key].gbps for key in keys], grid.outlier_mads)
    return {keys[i]: samples[keys[i]] for i in within}


def _best_sequential(journal: Journal, kept: dict[str, dict[Key, Sample]]) -> dict[str, str]:
    """For each engine, the sequential read cell with the highest median."""
    best: dict[str, tuple[float, str]] = {}
    for name, facts in journal.facts.items():
        if (facts["pattern"], facts["direction"]) != ("sequential", "read") or not kept[name]:
            continue
        median = float(np.median([sample.gbps for sample in kept[name].values()]))
        engine = _family(facts)
        best[engine] = max(best.get(engine, (0.0, "")), (median, name))
    return {engine: name for engine, (_, name) in best.items()}


def _family(facts: dict[str, Any]) -> str:
    """Engines whose figures can be compared: fio's whichever kernel interface it uses."""
    return str(facts["engine"]).partition("/")[0]


def _cell(
    name: str,
    facts: dict[str, Any],
    taken: dict[Key, Sample],
    kept: dict[Key, Sample],
    best: dict[Key, Sample] | None,
    grid: Grid,
) -> Cell:
    gbps = [sample.gbps for sample in kept.values()]
    moved = sum(sample.read_bytes for sample in kept.values())
    busy = [s.background_gbps for s in kept.values() if s.background_gbps is not None]
    return Cell(
        id=name,
        **facts,
        gbps=estimate(gbps, grid.seed),
        samples_gbps=[sample.gbps for sample in taken.values()],
        dropped=len(taken) - len(kept),
        spread=spread(gbps),
        settled=settled(gbps, grid.settle),
        latency_us=_latency(list(kept.values())),
        cpu_seconds_per_gb=sum(s.cpu_seconds for s in kept.values()) / (moved / 1e9),
        background_gbps=float(np.median(busy)) if busy else None,
        of_best_sequential=_paired(kept, best, grid.seed) if best else None,
    )


def _paired(above: dict[Key, Sample], below: dict[Key, Sample], seed: int) -> Any:
    """Ratio of bandwidths over the rounds that both have; None without one."""
    rounds = [key for key in above if key in below]
    if not rounds:
        return None
    return ratio([above[k].gbps for k in rounds], [below[k].gbps for k in rounds], seed)


def _latency(samples: list[Sample]) -> dict[str, float] | None:
    """Medians over the repeats of each percentile that all of them have."""
    tables = [sample.latency_us for sample in samples if sample.latency_us]
    if not tables:
        return None
    return {
        name: float(np.median([table[name] for table in tables]))
        for name in tables[0]
        if all(name in table for table in tables)
    }


def _comparisons(cells: list[Cell], kept: dict[str, dict[Key, Sample]]) -> list[Comparison]:
    """Each layout against the contiguous one that was read in the same way, in the same rounds.

    A store's chunk is part of its layout: without a contiguous session of the same chunk, one of
    another is the yardstick.
    """
    contiguous: dict[tuple[Any, ...], dict[int | None, Cell]] = {}
    for cell in cells:
        if cell.layout == CONTIGUOUS:
            same = tuple(getattr(cell, key) for key in _SAME)
            contiguous.setdefault(same, {})[cell.chunk_tokens] = cell
    found = []
    for cell in cells:
        if cell.pattern != "layout" or cell.layout == CONTIGUOUS:
            continue
        others = contiguous.get(tuple(getattr(cell, key) for key in _SAME), {})
        other = others.get(cell.chunk_tokens) or next(iter(others.values()), None)
        slowdown = _paired(kept[other.id], kept[cell.id], 0) if other is not None else None
        if other is None or slowdown is None:
            continue
        found.append(
            Comparison(
                layout=str(cell.layout),
                **{key: getattr(cell, key) for key in (*_SAME, "chunk_tokens")},
                request_bytes=cell.request_bytes,
                contiguous_request_bytes=other.request_bytes,
                slowdown=slowdown,
            )
        )
    return found
