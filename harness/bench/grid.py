"""What a person edits in ``workloads/bench/*.yaml``, and the cells that it unfolds into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from harness.core.assets import find_yaml
from harness.core.config import Size, Strict, load_yaml
from harness.core.errors import UsageError
from harness.core.grids import combinations
from harness.core.units import format_size

Access = Literal["whole", "layers", "window"]
"""How a session comes back: ``whole`` sorted and joined over all layers; ``layers`` one layer
after the other, flat out; ``window`` likewise, but a read for layer l + 2 waits for layer l."""

Transport = Literal["direct", "staged"]

GpuMode = Literal["gds", "cufile-compat", "kvikio-posix", "host-staged"]
"""True GPUDirect Storage; cuFile's own compatibility mode; kvikio's POSIX mode; O_DIRECT into
pinned memory, then a copy."""

CONTIGUOUS = "session-contiguous"
"""The layout that all others are compared with."""

LEAST_DEVICE_BYTES = 64 << 20

BlockBytes = Annotated[Size, Field(ge=512, multiple_of=512)]


class Layouts(Strict):
    """Sessions read back; every list is a dimension of the grid."""

    stores: tuple[str, ...] = Field(min_length=1)
    models: tuple[str, ...] = Field(min_length=1)
    context_tokens: tuple[PositiveInt, ...] = Field(min_length=1)
    turns: tuple[PositiveInt, ...] = (1,)
    sessions: tuple[PositiveInt, ...] = (1,)
    age: tuple[Annotated[float, Field(ge=0, le=20)], ...] = (1.0,)
    """Capacities of the store that others wrote before and while the sessions grew."""
    chunk_tokens: tuple[PositiveInt, ...] = ()
    """Tokens of a store's chunk, instead of what its own file says: the size of the fragments."""
    access: tuple[Access, ...] = ("whole",)
    queue_depth: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = (32,)
    transport: tuple[Transport, ...] = ("direct",)
    background_writes: tuple[bool, ...] = (False,)
    read_bytes: BlockBytes = 1 << 20
    """Longest single read; longer ranges of a plan are cut."""
    gap_bytes: Size = 64 << 10
    """Gaps smaller than this are read along with their neighbours."""

    @field_validator(
        "stores",
        "models",
        "context_tokens",
        "turns",
        "sessions",
        "age",
        "chunk_tokens",
        "access",
    )
    @classmethod
    def _distinct(cls, values: tuple[object, ...]) -> tuple[object, ...]:
        if len(set(values)) != len(values):
            raise ValueError("the same value twice")
        return values


class Reference(Strict):
    """Plain fio cells, measured among the others."""

    pattern: Literal["sequential", "random"]
    direction: Literal["read", "write", "mixed"] = "read"
    block_bytes: tuple[BlockBytes, ...] = Field(min_length=1)
    queue_depth: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = Field(min_length=1)
    threads: tuple[Annotated[int, Field(ge=1, le=256)], ...] = (1,)


class Load(Strict):
    """Open-loop sweep: sessions restored at rising rates, each by a deadline.

    Rates are given a second (``rates_per_s``) or as shares of what the device's best sequential
    read could restore (``shares``), which carries over to other devices.
    """

    stores: tuple[str, ...] = Field(min_length=1)
    model: str
    context_tokens: PositiveInt
    rates_per_s: tuple[Annotated[float, Field(gt=0)], ...] = ()
    shares: tuple[Annotated[float, Field(gt=0, le=10)], ...] = ()
    on_deadline: tuple[Literal["cancel", "wait"], ...] = ("cancel", "wait")
    sessions: PositiveInt = 4
    turns: PositiveInt = 1
    age: Annotated[float, Field(ge=0, le=20)] = 1.0
    seconds: Annotated[float, Field(gt=0)] = 5.0
    deadline_s: Annotated[float, Field(gt=0)] = 1.0
    repeats: PositiveInt = 3
    queue_depth: Annotated[int, Field(ge=1, le=1024)] = 32
    access: Literal["whole", "layers"] = "layers"
    read_bytes: BlockBytes = 1 << 20
    gap_bytes: Size = 64 << 10

    @model_validator(mode="after")
    def _one_kind_of_rate(self) -> Load:
        if bool(self.rates_per_s) == bool(self.shares):
            raise ValueError("give either rates_per_s or shares")
        return self


class Gds(Strict):
    """Sessions read through a double buffer into a GPU's memory, and into the host's."""

    stores: tuple[str, ...] = Field(min_length=1)
    model: str
    context_tokens: tuple[PositiveInt, ...] = Field(min_length=1)
    turns: PositiveInt = 1
    age: Annotated[float, Field(ge=0, le=20)] = 1.0
    modes: tuple[GpuMode, ...] = ("gds", "cufile-compat", "kvikio-posix", "host-staged")
    host: tuple[Literal["posix-direct", "posix-buffered"], ...] = ("posix-direct",)
    threads: tuple[Annotated[int, Field(ge=1, le=256)], ...] = (1, 4, 16)
    task_bytes: tuple[Annotated[Size, Field(ge=4096, multiple_of=4096)], ...] = (4 << 20,)
    read_bytes: BlockBytes = 4 << 20
    gap_bytes: Size = 64 << 10
    copy_bytes: tuple[Annotated[Size, Field(ge=4096)], ...] = (64 << 10, 1 << 20, 16 << 20)


class Grid(Strict):
    """A benchmark: its cells and the rules by which they are measured."""

    name: str
    description: str = ""
    seed: int = 1
    repeats: Annotated[int, Field(ge=1)] = 5
    max_repeats: Annotated[int, Field(ge=1)] = 15
    settle: Annotated[float, Field(gt=0)] = 0.10
    """A cell has settled when its 95 % interval is no wider than this share of the median and
    its later half differs from its earlier half by no more."""
    outlier_mads: Annotated[float, Field(ge=0)] = 0.0
    """Samples further from the median than this many deviations are dropped; 0: none."""
    sample_seconds: Annotated[float, Field(gt=0)] = 0.5
    """A sample lasts at least so long: the plan is repeated within it."""
    compare_engines: bool = False
    """Read one fio cell of every placement by our ring too, so that both can be compared."""
    budget_s: Annotated[float, Field(gt=0)] | None = None
    """When this is over no further repeats are started, and the result says so."""
    device_bytes: Size | None = None
    """Size of the loop device that is made when no device is given; by default all cells fit."""
    region_bytes: Size | None = None
    """Capacity of each store; by default what the sessions and their age need."""
    fills: Annotated[int, Field(ge=0, le=4)] = 0
    """Sequential fills of the whole device before anything else; a drive that was never full
    writes faster than it will."""
    reference_bytes: Size = 256 << 20
    """Region that plain reference cells work in."""
    anchor_bytes: tuple[BlockBytes, ...] = (1 << 20, 4 << 20)
    """Blocks of the sequential reads that are measured in every round: the device's own best."""
    layouts: tuple[Layouts, ...] = ()
    reference: tuple[Reference, ...] = ()
    load: tuple[Load, ...] = ()
    gds: tuple[Gds, ...] = ()


class Placement(Strict):
    """Sessions of one model in one store at one age: what has to be on the device."""

    store: str
    model: str
    context_tokens: int
    turns: int
    sessions: int
    age: float
    chunk_tokens: int | None = None


class Read(Strict):
    """One way of reading a placement back: with it, a cell."""

    access: Access
    queue_depth: int
    transport: Transport
    background_writes: bool
    read_bytes: int
    gap_bytes: int


class Group(Strict):
    """Placements that lie side by side on the device and are measured in the same rounds."""

    placements: tuple[Placement, ...]
    reads: tuple[Read, ...]


def load_grid(name_or_path: str) -> Grid:
    """A grid by path, or by name from ``workloads/bench``; UsageError names file and key."""
    return load_yaml(Path(find_yaml("workloads/bench", name_or_path)), Grid)


def scaled(
    grid: Grid, *, size_bytes: int | None = None, sample_seconds: float | None = None,
    budget_s: float | None = None,
) -> Grid:  # fmt: skip
    """The grid on a smaller device, with shorter samples, or within a time limit.

    Cells stay as they are, and those that do not fit are skipped; the reference region becomes a
    quarter of the device at most.
    """
    changes: dict[str, object] = {}
    if size_bytes is not None:
        if size_bytes < LEAST_DEVICE_BYTES:
            raise UsageError(f"a device of {format_size(size_bytes)} is too small for any cell")
        quarter = max(1, size_bytes // 4 >> 22) << 22
        changes["device_bytes"] = size_bytes
        changes["reference_bytes"] = min(grid.reference_bytes, quarter)
    if sample_seconds is not None:
        changes["sample_seconds"] = sample_seconds
    if budget_s is not None:
        changes["budget_s"] = budget_s
    return Grid.model_validate({**grid.model_dump(), **changes})


def groups(grid: Grid) -> Iterator[Group]:
    """The grid's groups: all stores of one model, context, turns, sessions and age together."""
    for part in grid.layouts:
        reads = tuple(
            Read(**how, read_bytes=part.read_bytes, gap_bytes=part.gap_bytes)
            for how in combinations({
                "access": part.access, "queue_depth": part.queue_depth,
                "transport": part.transport, "background_writes": part.background_writes,
            })
        )  # fmt: skip
        for what in combinations({
            "model": part.models, "context_tokens": part.context_tokens, "turns": part.turns,
            "sessions": part.sessions, "age": part.age,
            "chunk_tokens": part.chunk_tokens or (None,),
        }):  # fmt: skip
            placements = tuple(Placement(store=store, **what) for store in part.stores)
            yield Group(placements=placements, reads=reads)


def gds_placements(part: Gds) -> list[Placement]:
    """What has to lie in the file for a gds part."""
    return [
        Placement(
            store=store, model=part.model, context_tokens=context, turns=part.turns,
            sessions=1, age=part.age,
        )
        for context in part.context_tokens
        for store in part.stores
    ]  # fmt: skip
