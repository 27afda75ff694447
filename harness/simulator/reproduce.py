"""The published simulator's digits beside ours, and which reading of its text fits them best.

The figures and where the text leaves a choice open are in ``workloads/reproduce``; the traces are
the user's, as they are not published.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pydantic import Field

from harness.core.assets import find_yaml
from harness.core.config import Size, Strict, load_yaml, validate
from harness.core.grids import combinations
from harness.core.progress import Progress, quiet
from harness.endurance.result import DAY_S
from harness.simulator.corpus import Corpus
from harness.simulator.outcome import Outcome, Traffic
from harness.simulator.point import Point, trace_id
from harness.simulator.policies import find_policy
from harness.simulator.run import simulate

_PARAMETER = "parameters."


class Target(Strict):
    """What the paper says of one policy.

    ``choices``: fields of a point, or ``parameters.NAME``, with the readings to try.
    """

    policy: str
    name: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    figures: dict[str, float] = Field(min_length=1)
    choices: dict[str, list[Any]] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """Its name, by default the policy's."""
        return self.name or self.policy

    def readings(self) -> Iterator[dict[str, Any]]:
        """Every combination of the choices."""
        return combinations(self.choices)


class Paper(Strict):
    """Targets on one trace and machine; ``duration_s`` is the time one pass stands for."""

    description: str
    model: str
    block_tokens: int
    lanes: int | None = None
    dram: Size
    ssd: Size
    duration_s: float
    tbw_bytes: float
    targets: tuple[Target, ...]


class Reading(Strict):
    """One reading of one target: figures of ours, and how far they lie from the paper's.

    ``error``: root mean square of the logarithm of ours over theirs; None where a figure of ours
    is zero.
    """

    label: str
    choices: dict[str, Any]
    ours: dict[str, float]
    theirs: dict[str, float]
    error: float | None
    best: bool = False


def load_paper(name_or_path: str) -> Paper:
    """Targets by name in ``workloads/reproduce`` or by path; UsageError names file and key."""
    return load_yaml(find_yaml("workloads/reproduce", name_or_path), Paper)


def reproduce(
    paper: Paper, corpus: Corpus, *, seed: int | None = None, only: str | None = None,
    progress: Progress = quiet,
) -> list[Reading]:  # fmt: skip
    """Play every reading of every target (of one policy with ``only``); the best of each is marked.

    Raises
    ------
    UsageError
        What ``simulate`` raises.
    """
    wanted = [target for target in paper.targets if only in (None, target.policy)]
    total = sum(math.prod(len(v) for v in target.choices.values()) for target in wanted)
    found: list[Reading] = []
    for target in wanted:
        readings: list[Reading] = []
        for choices in target.readings():
            progress(len(found) + len(readings), total, target.label)
            point = point_of(paper, corpus, target, choices, seed)
            readings.append(_reading(paper, target, choices, simulate(corpus, point).outcome))
        found += _marked(readings)
    return found


def point_of(
    paper: Paper, corpus: Corpus, target: Target, choices: dict[str, Any], seed: int | None
) -> Point:
    """The point of one reading; UsageError if a choice names nothing."""
    own = {k.removeprefix(_PARAMETER): v for k, v in choices.items() if k.startswith(_PARAMETER)}
    parameters = {**target.parameters, **own}
    usual = find_policy(target.policy, parameters).usual_structure
    fields = {k: v for k, v in choices.items() if not k.startswith(_PARAMETER)}
    return validate(
        {
            "trace": trace_id(corpus.name, corpus.content_hash), "lanes": paper.lanes,
            "seed": seed, "model": paper.model, "block_tokens": corpus.block_tokens,
            "policy": target.policy, "parameters": parameters,
            "dram_bytes": paper.dram, "ssd_bytes": paper.ssd, "structure": usual, **fields,
        },
        Point,
        target.label,
    )  # fmt: skip


def figures_of(outcome: Outcome, paper: Paper) -> dict[str, float]:
    """All that a target may name, of an outcome."""
    full, state = outcome.full, outcome.state
    written = full.written_bytes + state.written_bytes
    found: dict[str, float] = {"miss": outcome.miss, "written_bytes": written}
    if written:
        found["days"] = paper.tbw_bytes / (written / paper.duration_s * DAY_S)
    for kind, traffic in (("full", full), ("state", state)):
        found |= {f"{kind}_{name}": value for name, value in _of(traffic)}
    return found


def _of(traffic: Traffic) -> Iterator[tuple[str, float]]:
    hits = traffic.hits_dram + traffic.hits_ssd
    yield "written", traffic.written
    yield "written_bytes", traffic.written_bytes
    yield "hits", hits
    yield "hits_ssd", traffic.hits_ssd
    if hits:
        yield "hits_ssd_share", traffic.hits_ssd / hits
    if traffic.written:
        yield "hits_a_write", traffic.hits_ssd / traffic.written
        yield "useful_share", traffic.useful / traffic.written
        yield "never_share", traffic.never_again / traffic.written
        yield "used_before_share", traffic.used_before / traffic.written


def _reading(paper: Paper, target: Target, choices: dict[str, Any], outcome: Outcome) -> Reading:
    known = figures_of(outcome, paper)
    ours = {name: known.get(name, 0.0) for name in target.figures}
    ratios = [ours[name] / theirs for name, theirs in target.figures.items()]
    error = None
    if min(ratios) > 0:
        error = math.sqrt(sum(math.log(ratio) ** 2 for ratio in ratios) / len(ratios))
    return Reading(
        label=target.label, choices=choices, ours=ours, theirs=dict(target.figures), error=error
    )


def _marked(readings: list[Reading]) -> list[Reading]:
    known = [reading.error for reading in readings if reading.error is not None]
    least = min(known, default=None)
    return [
        reading.model_copy(update={"best": least is not None and reading.error == least})
        for reading in readings
    ]
