"""The calibration file: measured bandwidth, write amplification and endurance, with origin.

Units: ``*_bytes`` are bytes, ``*_gbps`` are decimal gigabytes (1e9 B) a second, ``*_us``
microseconds. What was not measured is absent and listed in ``not_measured``; nothing here is a
default. The JSON Schema of this model is published beside it (``calibration.schema.json``).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from harness.bench.stats import Interval
from harness.core.config import Strict

VERSION = "1.1.0"
"""Semantic version of the file format: a major step breaks readers, a minor one adds fields."""

KIND = "kv-flash-calibration"

Hop = Literal["ssd-to-dram", "dram-to-ssd", "dram-to-gpu", "ssd-to-gpu"]
Positive = Annotated[float, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Figure(Strict):
    """Base of every record in the file: unknown keys, NaN and infinities are errors."""

    model_config = ConfigDict(allow_inf_nan=False)


class Device(Figure):
    """The block device that was measured. The serial is hashed: the file may be shared."""

    kind: str
    model: str | None = None
    firmware: str | None = None
    serial_sha256: Sha256 | None = None
    size_bytes: Natural
    logical_block: Natural | None = None
    physical_block: Natural | None = None
    max_sectors_kb: Natural | None = None
    max_segments: Natural | None = None
    scheduler: str | None = None


class TraceUsed(Figure):
    """A block or request trace that a figure came from."""

    name: str
    sha256: Sha256
    verdict: str | None = None


class RunUsed(Figure):
    """A run folder that was exported, with the hashes of the files read from it."""

    name: str
    command: str
    started: datetime
    files: dict[str, Sha256]


class Provenance(Figure):
    """Where, when and with what everything in the file was measured."""

    host: str
    kernel: str
    arch: str
    cpu: str | None
    cpus: Natural
    memory_bytes: Natural
    device: Device | None
    fio_version: str | None
    harness_version: str
    harness_commit: str | None
    measured_from: datetime
    measured_to: datetime
    traces: list[TraceUsed]
    runs: list[RunUsed]
    stand_ins: list[str] = Field(
        description="What stood in for real hardware, such as a loop device for a drive."
    )


class BandwidthSample(Figure):
    """One benchmark cell. ``gbps`` counts wanted bytes: read-through gaps do not inflate it."""

    hop: Hop
    direction: Literal["read", "write", "mixed"]
    pattern: Literal["layout", "sequential", "random", "copy"]
    layout: str | None = Field(default=None, description="Store whose placement was read back.")
    access: str | None = Field(default=None, description="whole, layers or window.")
    model: str | None = None
    context_tokens: Natural | None = None
    turns: Natural | None = None
    sessions: Natural | None = None
    age: float | None = Field(default=None, description="Capacities written before measuring.")
    chunk_tokens: Natural | None = None
    background_writes: bool = False
    request_bytes: Positive = Field(description="Mean bytes of the commands that were issued.")
    queue_depth: Annotated[int, Field(ge=1)]
    threads: Annotated[int, Field(ge=1)]
    task_bytes: Natural | None = Field(
        default=None, description="Size into which kvikio and the host reader cut a read."
    )
    engine: str = Field(description="fio/io_uring, ring, kvikio, cuda...: what issued the I/O.")
    transport: str = Field(description="posix-direct, posix-buffered, gds, host-staged...")
    gbps: Interval
    spread: Annotated[float, Field(ge=0)] = Field(
        description="(max - min) / median over the repeats."
    )
    commands: Natural | None = None
    amplification: Annotated[float, Field(ge=1)] | None = Field(
        default=None, description="Bytes read / bytes wanted."
    )
    latency_us: dict[str, float] | None = None
    settled: bool = Field(description="False: the repeats never became steady.")
    source: str = Field(description="Run and cell.")


class Residuals(Figure):
    """How far the fitted form is from its samples, relative to each sample."""

    rms: Annotated[float, Field(ge=0)]
    worst: Annotated[float, Field(ge=0)]


class Range(Figure):
    """Closed range in which a term was fitted; outside it is extrapolation."""

    low: float
    high: float


class BandwidthTerm(Figure):
    """Bandwidth of requests of ``s`` bytes, ``d`` of them in flight (queue depth x threads).

    Bytes that the device reads or writes: a layout delivers this over its read amplification.

    ``latency``: min(d * s / (t0 + s / b1), b_max), with ``b1_gbps`` the rate of one stream: a
    request takes t0 + s / b1. ``saturation``: b_max * x / (x + half_bytes) with x = d * s.
    """

    hop: Hop
    direction: Literal["read", "write", "mixed"]
    pattern: str
    engine: str
    transport: str | None = None
    access: str | None = Field(default=None, description="Of layouts: whole, layers or window.")
    layout: str | None = Field(
        default=None, description="The one layout of the samples; null with pattern layout: all."
    )
    form: Literal["latency", "saturation"]
    rejected: dict[str, float] = Field(
        description="Forms not chosen with their cross-validated relative error."
    )
    error: float = Field(description="Cross-validated relative error of the chosen form.")
    t0_us: float | None = None
    b1_gbps: Positive | None = None
    b_max_gbps: Positive
    half_bytes: Positive | None = None
    residuals: Residuals
    n: Annotated[int, Field(ge=1)]
    valid: dict[str, Range] = Field(description="request_bytes, commands_in_flight, threads.")


class LayoutPoint(Figure):
    """One context length of a ``LayoutTerm``."""

    context_tokens: Natural
    request_bytes: Positive
    gbps: Interval
    slowdown: Interval | None = Field(
        default=None, description="Time over the session-contiguous time, same run."
    )


class LayoutTerm(Figure):
    """Delivered bandwidth of one layout by context length, and against the contiguous one."""

    layout: str
    model: str
    access: str
    transport: str
    engine: str
    queue_depth: Annotated[int, Field(ge=1)]
    threads: Annotated[int, Field(ge=1)]
    task_bytes: Natural | None
    turns: Natural
    sessions: Natural
    age: float
    chunk_tokens: Natural
    background_writes: bool
    points: list[LayoutPoint]


class HopTerm(Figure):
    """The best sustained bandwidth of a hop, for simulators that want a single number."""

    hop: Hop
    direction: Literal["read", "write", "mixed"]
    gbps: Interval
    conditions: str


class WafSample(Figure):
    """One measured or modelled write amplification with everything that it depends on."""

    source: Literal["ftl-model", "femu", "device-counters"]
    profile: str
    policy: str
    store: str | None = None
    trace_sha256: Sha256 | None = None
    chunk_bytes: Natural | None = None
    line_bytes: Natural | None = None
    utilisation: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="Store size / namespace."
    )
    over_provisioning: float | None = Field(
        default=None, description="Spare / namespace, effective: 1 / (mapped / raw) - 1."
    )
    append_streams: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="Ranges that were appended to at once, on average."
    )
    namespace_writes: Annotated[float, Field(ge=0)] | None = None
    precondition: str | None = None
    discards: Natural | None = None
    first: Annotated[float, Field(ge=1)] | None = None
    cumulative: Annotated[float, Field(ge=1)]
    steady: Annotated[float, Field(ge=1)] | None = Field(description="null: not steady.")
    low: Annotated[float, Field(ge=1)] | None = None
    high: Annotated[float, Field(ge=1)] | None = None
    note: str | None = Field(
        default=None, description="What sets it apart, such as a model smaller than the drive."
    )
    namespace_bytes: Natural | None = None
    model: str | None = Field(default=None, description="Whose KV the store held.")
    requests: str | None = Field(default=None, description="Request trace or mix of the store.")
    point: dict[str, str | int | float] | None = Field(
        default=None, description="Of a sweep: what this point of it changed."
    )
    run: str


class WafTerm(Figure):
    """Steady WAF against one variable, all else held.

    ``linear``: max(1, a + b * x). ``power``: 1 + a * x ** b.
    """

    store: str | None
    policy: str
    profile: str
    variable: Literal["utilisation", "over_provisioning", "chunk_per_line"]
    form: Literal["linear", "power"]
    a: float
    b: float
    residuals: Residuals
    error: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="Cross-validated relative error of the chosen form."
    )
    rejected: dict[str, float] = Field(
        default_factory=dict, description="Forms not chosen with their error."
    )
    n: Annotated[int, Field(ge=3)]
    valid: Range
    held: dict[str, str | int | float | None] = Field(
        default_factory=dict, description="What was the same in all samples."
    )
    runs: list[str] = Field(default_factory=list, description="Where the samples came from.")


class WafOfLayout(Figure):
    """One store of a ``WafByLayout``."""

    store: str
    waf: Annotated[float, Field(ge=1)]
    steady: bool = Field(description="False: the cumulative WAF of a run that was not steady.")
    low: Annotated[float, Field(ge=1)] | None = None
    high: Annotated[float, Field(ge=1)] | None = None
    chunk_bytes: Natural | None = None
    run: str


class WafByLayout(Figure):
    """What the layout alone does to WAF: stores under the same requests on the same drive."""

    held: dict[str, str | int | float | None]
    stores: Annotated[list[WafOfLayout], Field(min_length=2)]


class EnduranceTerm(Figure):
    """Rated budget of a drive profile and the lifetimes that followed from a WAF sample."""

    profile: str
    policy: str | None = Field(default=None, description="Policy whose WAF the lifetimes rest on.")
    store: str | None = None
    waf: Annotated[float, Field(ge=1)] | None = Field(
        default=None, description="The WAF that the lifetimes rest on; null: no lifetime."
    )
    capacity_bytes: Natural
    dwpd: Positive
    warranty_years: Positive
    tbw_bytes: Positive
    pe_cycles: Positive | None = None
    raw_bytes: Positive | None = None
    price_usd: Positive | None = None
    usd_per_written_byte: Positive | None = None
    waf_rated: Positive | None = None
    writes_per_day_bytes: Positive | None = None
    rate_source: str | None = None
    required_dwpd: Positive | None = None
    paper_days: Positive | None = None
    waf1_days: Positive | None = None
    nand_days: Positive | None = None
    nand_level_days: Positive | None = Field(default=None, description="With perfect levelling.")
    jedec_days: Positive | None = None
    run: str


class Constant(Figure):
    """A constant of the seed simulator and what this file puts in its place."""

    name: Literal["B_ssd", "B_pcie", "WAF", "R_prefill"]
    unit: str
    seed: float = Field(description="What the published simulator assumes.")
    status: Literal["measured", "modelled", "imported", "not-measured"]
    value: Interval | None = Field(description="null unless measured or modelled.")
    conditions: str

    @model_validator(mode="after")
    def _value_fits_status(self) -> Constant:
        if (self.value is not None) != (self.status in ("measured", "modelled")):
            raise ValueError("a value is given exactly when it was measured or modelled")
        return self


class NotMeasured(Figure):
    """Something a reader may look for and will not find, and why."""

    what: str
    reason: str


class CalibrationFile(Figure):
    """Everything measured on one device of one host, for a simulator."""

    kind: Literal["kv-flash-calibration"]
    schema_version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]
    created: datetime
    provenance: Provenance
    constants: list[Constant]
    bandwidth: list[BandwidthSample]
    bandwidth_terms: list[BandwidthTerm]
    layout_terms: list[LayoutTerm]
    hop_terms: list[HopTerm]
    waf: list[WafSample]
    waf_terms: list[WafTerm]
    waf_layouts: list[WafByLayout] = Field(default_factory=list)
    endurance: list[EnduranceTerm]
    not_measured: list[NotMeasured]
