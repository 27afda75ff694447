"""What a sweep varies: ``workloads/simulate/*.yaml``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from harness.core.assets import find_yaml
from harness.core.config import Size, Strict, load_yaml
from harness.core.errors import UsageError
from harness.core.grids import combinations
from harness.simulator.corpus import Corpus, load_corpus
from harness.simulator.point import OnSsdHit, Point, Structure, trace_id
from harness.simulator.policies import find_policy

Values = Annotated[list[Any], Field(min_length=1)]


class TraceAxis(Strict):
    """One trace, played with each number of lanes and each order of its sessions."""

    requests: str
    lanes: list[int | None] = Field(default=[None], min_length=1)
    seeds: list[int | None] = Field(default=[None], min_length=1)
    limit: int | None = Field(default=None, gt=0)


class Tiers(Strict):
    """Sizes of both tiers; an SSD of 0 is none."""

    dram: Size
    ssd: Size = 0


class PolicyAxis(Strict):
    """A policy, with each combination of the values of its parameters."""

    name: str
    parameters: dict[str, Values] = Field(default_factory=dict)

    def settings(self) -> Iterator[dict[str, Any]]:
        """Every combination."""
        return combinations(self.parameters)


class Grid(Strict):
    """A sweep. Every combination of all the axes is one point.

    A ``structure`` of ``usual`` is what suits each policy.
    """

    description: str = ""
    traces: list[TraceAxis] = Field(min_length=1)
    models: list[str] = Field(min_length=1)
    policies: list[PolicyAxis] = Field(min_length=1)
    tiers: list[Tiers] = Field(min_length=1)
    checkpoint: list[str] = Field(default=["end"], min_length=1)
    structure: list[Structure | Literal["usual"]] = Field(default=["usual"], min_length=1)
    on_ssd_hit: list[OnSsdHit] = Field(default=["stay"], min_length=1)
    replays: int = Field(default=1, gt=0)
    warmup: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _known(self) -> Self:
        for axis in self.policies:
            for settings in axis.settings():
                find_policy(axis.name, settings)
        return self


class Job(NamedTuple):
    """A point and what its corpus is loaded from."""

    requests: str
    lanes: int | None
    seed: int | None
    limit: int | None
    point: Point

    def corpus(self) -> Corpus:
        """The trace of the point, from the cache on disk."""
        return load_corpus(
            self.requests,
            lanes=self.lanes,
            seed=self.seed,
            limit=self.limit,
            note=lambda text: None,
        )


def load_grid(name_or_path: str) -> Grid:
    """A grid by name in ``workloads/simulate/`` or by path; UsageError names file and key."""
    return load_yaml(find_yaml("workloads/simulate", name_or_path), Grid)


def jobs_of(grid: Grid) -> list[Job]:
    """Every point, those with most references first, so that no long one is left for the end.

    Loads each trace once (and so keeps it in the cache for the workers).
    """
    found: list[tuple[int, Job]] = []
    for axis in grid.traces:
        for lanes, seed in itertools.product(axis.lanes, axis.seeds):
            corpus = load_corpus(axis.requests, lanes=lanes, seed=seed, limit=axis.limit)
            how = (axis.requests, lanes, seed, axis.limit)
            points = _points(grid, corpus, lanes, seed)
            found += [(corpus.references, Job(*how, point)) for point in points]
    if not found:
        raise UsageError("the grid has no points")
    return [job for _, job in sorted(found, key=lambda pair: -pair[0])]


def _points(grid: Grid, corpus: Corpus, lanes: int | None, seed: int | None) -> Iterator[Point]:
    chosen = [(axis.name, settings) for axis in grid.policies for settings in axis.settings()]
    axes: Sequence[Sequence[Any]] = (
        grid.models, chosen, grid.tiers, grid.checkpoint, grid.structure, grid.on_ssd_hit
    )  # fmt: skip
    for model, (policy, parameters), tiers, checkpoint, structure, on_ssd_hit in itertools.product(
        *axes
    ):
        if structure == "usual":
            structure = find_policy(policy, parameters).usual_structure
        yield Point(
            trace=trace_id(corpus.name, corpus.content_hash), lanes=lanes, seed=seed, model=model,
            block_tokens=corpus.block_tokens, checkpoint=checkpoint, policy=policy,
            parameters=parameters, dram_bytes=tiers.dram, ssd_bytes=tiers.ssd,
            structure=structure, on_ssd_hit=on_ssd_hit, replays=grid.replays, warmup=grid.warmup,
        )  # fmt: skip
