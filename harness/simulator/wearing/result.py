"""The wear of a run as a strict model, and the row of the table policy x layout x drive."""

from __future__ import annotations

from typing import Literal

from harness.core.config import Strict


class WafFigures(Strict):
    """NAND over host writes, pages. ``run``: the log once, on a drive made ready as ``fill`` says.

    ``first``: the first namespace of writes; ``cumulative``: all passes; ``steady``: the last five
    windows, null where they are not steady; ``low`` to ``high``: the band under swapped neighbours.
    """

    run: float | None = None
    first: float | None = None
    cumulative: float | None = None
    steady: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def best(self) -> float | None:
        """The steady one, else that of the run."""
        return self.run if self.steady is None else self.steady


class LifetimeDays(Strict):
    """Days by the conventions of ``harness.endurance.lifetimes``; null where one has no basis."""

    paper_days: float | None = None
    waf1_days: float | None = None
    nand_days: float | None = None
    nand_level_days: float | None = None
    jedec_days: float | None = None


class ClassBytes(Strict):
    """Bytes or objects by attention type."""

    full: int
    state: int


class OpBytes(Strict):
    """Bytes that one pass writes to the device. ``full`` and ``state`` with their padding."""

    full: int
    state: int
    header: int
    metadata: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.full + self.state + self.header + self.metadata


class ClassWear(Strict):
    """What the drive programmed for a class, over all passes."""

    object_class: str
    host_bytes: int
    gc_bytes: int
    waf: float | None


class LayoutUse(Strict):
    """What the layout made of one pass of the log, in its own units.

    Attributes
    ----------
    rules
        How it places and reclaims.
    unit_bytes
        Slot, place, bucket or extent; null where ranges are as large as their objects.
    held_bytes, live_bytes
        Of device and write buffer, and of the policy's objects in them, when the pass ended.
    wasted_mean_bytes, wasted_most_bytes
        Held less live, over the pass.
    unwritten
        Objects that found no place, or left again before their bucket was written.
    lost
        Objects that the store dropped although the policy kept them, if only for a little longer;
        a tier as large as its device makes many of these, and few that matter.
    lost_uses
        Hits that the policy counted on objects that the store had dropped.
    overhead_bytes
        Op stream less the bytes of the objects in it: headers, padding, metadata; negative where
        more waits in memory than that.
    """

    rules: str
    unit_bytes: int | None
    held_bytes: int
    live_bytes: int
    wasted_mean_bytes: float
    wasted_most_bytes: int
    unwritten: ClassBytes
    lost: ClassBytes
    lost_uses: ClassBytes
    overhead_bytes: int


class Erases(Strict):
    """Erases of a line since the drive was new; ``levelling``: mean over most."""

    min: int
    mean: float
    max: int
    levelling: float | None


class WearOfRun(Strict):
    """A simulated run in a layout on a drive. Absent figures are null; ``absent`` says why."""

    trace: str
    layout: str
    drive: str
    ftl_policy: str
    streams: Literal["none", "placement", "class"]
    placement: Literal["none", "class"]
    tier_bytes: int
    namespace_bytes: int
    utilisation: float
    store_share: float
    touched_share: float | None
    objects: ClassBytes
    object_bytes: ClassBytes
    op_bytes: OpBytes
    use: LayoutUse | None
    waf: WafFigures
    band: str | None
    passes: float
    namespace_writes: float
    stopped: str
    fill: str | None
    over_provisioning: float | None
    append_streams: float | None
    by_class: tuple[ClassWear, ...]
    erases: Erases | None
    duration_s: float | None
    writes_per_day_bytes: float | None
    rate_source: str | None
    required_dwpd: float | None
    lifetimes: LifetimeDays
    lifetimes_from: str | None
    absent: tuple[str, ...]
    notes: tuple[str, ...]
    seconds: float


class WearRow(Strict):
    """A row of the table policy x layout x drive; what others measured is null unless given."""

    policy: str
    layout: str
    drive: str
    miss: float | None
    written_full_bytes: int
    written_state_bytes: int
    device_bytes: int
    waf: float | None
    waf_kind: Literal["steady", "run", "none"]
    wasted_share: float | None
    lost_uses: int
    writes_per_day_bytes: float | None
    required_dwpd: float | None
    paper_days: float | None
    waf1_days: float | None
    load_mean_s: float | None
    load_p99_s: float | None
    cost_usd: float | None


def wear_row(
    worn: WearOfRun, policy: str, *, miss: float | None = None, load_mean_s: float | None = None,
    load_p99_s: float | None = None, cost_usd: float | None = None,
) -> WearRow:  # fmt: skip
    """One row; its WAF is the steady one, else that of the run, and ``waf_kind`` says which."""
    waf, use = worn.waf.best, worn.use
    kind: Literal["steady", "run"] = "run" if worn.waf.steady is None else "steady"
    return WearRow(
        policy=policy,
        layout=worn.layout,
        drive=worn.drive,
        miss=miss,
        written_full_bytes=worn.object_bytes.full,
        written_state_bytes=worn.object_bytes.state,
        device_bytes=worn.op_bytes.total,
        waf=waf,
        waf_kind=kind if waf is not None else "none",
        wasted_share=None if use is None else use.wasted_mean_bytes / worn.namespace_bytes,
        lost_uses=0 if use is None else use.lost_uses.full + use.lost_uses.state,
        writes_per_day_bytes=worn.writes_per_day_bytes,
        required_dwpd=worn.required_dwpd,
        paper_days=worn.lifetimes.paper_days,
        waf1_days=worn.lifetimes.waf1_days,
        load_mean_s=load_mean_s,
        load_p99_s=load_p99_s,
        cost_usd=cost_usd,
    )
