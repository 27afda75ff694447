"""The open-loop sweep over rates: placements, arrivals, repeats, and their summary."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.bench.cells import Bench
from harness.bench.grid import Load, Placement
from harness.bench.journal import Journal
from harness.bench.load import LoadRun, arrivals, run_load
from harness.bench.placed import Placed, Region
from harness.bench.plans import Plan, make_plan
from harness.bench.reference import RingSequential
from harness.bench.results import LoadPoint
from harness.bench.rounds import Budget
from harness.bench.stats import estimate
from harness.core.progress import Progress, quiet

PATIENCE_DEADLINES = 2.0
"""How many deadlines after the last one a waiting store may still deliver."""


@dataclass(frozen=True)
class _Point:
    """One rate, store and rule."""

    store: str
    rate_per_s: float
    share: float | None
    on_deadline: str

    @property
    def id(self) -> str:
        return f"load/{self.store}/{self.on_deadline}/{self.share or self.rate_per_s:g}"


def placements(part: Load) -> tuple[Placement, ...]:
    """What has to be on the device for a sweep."""
    return tuple(
        Placement(
            store=store, model=part.model, context_tokens=part.context_tokens, turns=part.turns,
            sessions=part.sessions, age=part.age,
        )
        for store in part.stores
    )  # fmt: skip


def points_of(part: Load) -> int:
    """Points of a sweep: stores, rates and what is done at a deadline."""
    rates = len(part.rates_per_s or part.shares)
    return len(part.stores) * rates * len(part.on_deadline)


def sweep(
    bench: Bench,
    part: Load,
    placed: Sequence[Placed],
    reference: Region,
    journal: Journal,
    *,
    seed: int,
    budget: Budget,
    progress: Progress = quiet,
) -> list[LoadPoint]:
    """Measure every point ``part.repeats`` times, each repeat of all in random order, while the
    budget lasts; points of ``placed`` only."""
    plans = {one.placement.store: _plans(one, part) for one in placed}
    if not plans:
        return []
    points = _points(bench, part, plans, reference)
    took_s = 0.0
    for number in range(part.repeats):
        todo = [point for point in points if not journal.has_load(point.id, number)]
        # The first repeat is always run: a point without any says nothing.
        if number and todo and not budget.allows(took_s):
            break
        began = time.monotonic()
        for step, which in enumerate(
            np.random.default_rng([seed, 7, number]).permutation(len(todo))
        ):
            point = todo[which]
            progress(number + step / len(todo), part.repeats, point.id)
            # Equal rates see equal arrivals, whatever the store and the rule.
            times = arrivals(point.rate_per_s, part.seconds, seed + 1000 * number)
            ring = bench.engine(part.queue_depth, part.read_bytes)
            run = run_load(
                ring, plans[point.store], times, deadline_s=part.deadline_s,
                cancel=point.on_deadline == "cancel",
                patience_s=PATIENCE_DEADLINES * part.deadline_s,
            )  # fmt: skip
            record = _record(run, part.deadline_s)
            journal.add_load(point.id, number, {**record, "rate_per_s": point.rate_per_s})
        took_s = time.monotonic() - began
    return [_summary(point, part, plans, journal.load_of(point.id)) for point in points]


def _plans(placed: Placed, part: Load) -> list[Plan]:
    return [
        make_plan(ranges, part.access, gap_bytes=part.gap_bytes, read_bytes=part.read_bytes)
        for ranges in placed.sessions
    ]


def _points(
    bench: Bench, part: Load, plans: dict[str, list[Plan]], reference: Region
) -> list[_Point]:
    rates: list[tuple[float, float | None]] = [(rate, None) for rate in part.rates_per_s]
    if part.shares:
        best = RingSequential(bench, reference, part.read_bytes, part.queue_depth)
        gbps = float(np.median([best.sample().gbps for _ in range(3)]))
        session = next(iter(plans.values()))[0].wanted_bytes
        rates = [(share * gbps * 1e9 / session, share) for share in part.shares]
    return [
        _Point(store, rate, share, rule)
        for store in plans
        for rate, share in rates
        for rule in part.on_deadline
    ]


def _record(run: LoadRun, deadline_s: float) -> dict[str, Any]:
    """What is kept of a run; requests that were not completed are left out of the times."""
    complete = np.isfinite(run.prefetch_s)
    return {
        "seconds": run.seconds,
        "requests": len(run.prefetch_s),
        "prefetch_s": run.prefetch_s[complete].tolist(),
        "late": int((run.prefetch_s > deadline_s).sum()),
        "cancelled": int(run.cancelled.sum()),
        "wanted_bytes": int(run.wanted_bytes.sum()),
        "delivered_bytes": int(np.minimum(run.delivered_bytes, run.wanted_bytes).sum()),
        "read_bytes": int(run.read_bytes.sum()),
    }


def _summary(
    point: _Point, part: Load, plans: dict[str, list[Plan]], runs: list[dict[str, Any]]
) -> LoadPoint:
    def total(name: str) -> float:
        return sum(run[name] for run in runs)

    times = np.array([t for run in runs for t in run["prefetch_s"]])
    spread = dict(
        zip(("p50", "p99", "max"), np.percentile(times, [50, 99, 100]).tolist(), strict=True)
    ) if len(times) else {}  # fmt: skip
    first = plans[point.store][0]
    return LoadPoint(
        layout=point.store, model=part.model, context_tokens=part.context_tokens,
        turns=part.turns, sessions=part.sessions, age=part.age, access=part.access,
        queue_depth=part.queue_depth, request_bytes=first.read_bytes / len(first),
        on_deadline=point.on_deadline, deadline_s=part.deadline_s,
        # The mean: a resumed run measured its best twice, and its shares are of that.
        rate_per_s=total("rate_per_s") / len(runs),
        share_of_best=point.share, seconds=total("seconds"), repeats=len(runs),
        requests=int(total("requests")), completed=len(times), late=int(total("late")),
        cancelled=int(total("cancelled")),
        delivered_share=total("delivered_bytes") / total("wanted_bytes"),
        delivered=estimate([run["delivered_bytes"] / run["wanted_bytes"] for run in runs]),
        prefetch_s=spread, read_gbps=total("read_bytes") / total("seconds") / 1e9,
        amplification=(
            total("read_bytes") / total("delivered_bytes") if total("delivered_bytes") else None
        ),
    )  # fmt: skip
