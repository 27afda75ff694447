"""``wear_of``: a run's SSD log, in a layout, on a drive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.core.profiles import DeviceProfile
from harness.core.progress import Progress, quiet
from harness.core.units import format_size
from harness.endurance.result import DAY_S, to_json
from harness.endurance.wear import Options, Wear
from harness.endurance.wear import wear as measure
from harness.simulator.requestlog import SsdLog
from harness.simulator.sizes import ObjectSizes
from harness.simulator.wearing.events import LogReader
from harness.simulator.wearing.layout import Layout
from harness.simulator.wearing.result import (
    ClassBytes,
    ClassWear,
    Erases,
    LayoutUse,
    LifetimeDays,
    OpBytes,
    WafFigures,
    WearOfRun,
)
from harness.simulator.wearing.source import Pass, Placement, RunInput
from harness.simulator.wearing.state import Lost
from harness.stores.models import ModelKv
from harness.stores.registry import StoreSpec

_ALIGN = 1 << 20
_REPEATED = "the log is repeated with fresh keys; what a pass leaves goes first, oldest first"


class Clocked(Protocol):
    """What of a corpus is needed: the clock of its requests, and whose object a node is."""

    @property
    def name(self) -> str: ...
    @property
    def time_s(self) -> NDArray[np.float64]: ...
    @property
    def session(self) -> NDArray[np.uint32]: ...
    @property
    def turn(self) -> NDArray[np.uint32]: ...
    @property
    def first_request(self) -> NDArray[np.uint32]: ...


@dataclass(frozen=True)
class How:
    """How a run is put on a drive and measured.

    Attributes
    ----------
    tier_bytes
        The simulated SSD tier; None is the most that the log keeps there.
    store_bytes
        Device given to the layout; None is the whole namespace.
    unit_tokens
        See ``Layout``.
    placement
        Placement ids by attention type, for drives with ``streams: placement``.
    duration_s
        What the trace's clock is taken to span; None is its last less its first time.
    writes_per_day
        Host bytes a day, instead of one pass over ``duration_s``.
    perturb
        How often to measure again under swapped neighbours, for the band.
    fills
        Sequential fills before; None is ``wear``'s two.
    budget_s
        Stop after so many seconds, steady or not.
    """

    tier_bytes: int | None = None
    store_bytes: int | None = None
    unit_tokens: int | None = None
    placement: Placement = "class"
    duration_s: float | None = None
    writes_per_day: float | None = None
    perturb: int = 0
    fills: int | None = None
    budget_s: float | None = None


def wear_of(
    log: SsdLog,
    corpus: Clocked,
    sizes: ObjectSizes,
    layout: str | StoreSpec,
    profile: DeviceProfile,
    how: How = How(),
    *,
    model: ModelKv | None = None,
    progress: Progress = quiet,
) -> WearOfRun:
    """Write what a run wrote to the SSD, in ``layout``, to a drive of ``profile``.

    At least one pass of the log is written, then more until the WAF is steady.

    Raises
    ------
    UsageError
        A tier larger than the namespace, a log that its corpus does not fit, an unknown layout.
    MeasurementError, MachineError
        As ``harness.endurance.wear``.
    """
    space = profile.namespace_bytes if how.store_bytes is None else how.store_bytes
    if space > profile.namespace_bytes:
        raise UsageError(
            f"a store of {format_size(space)} does not fit the namespace of {profile.name}, "
            f"{format_size(profile.namespace_bytes)}"
        )
    space = space // _ALIGN * _ALIGN

    def make() -> tuple[LogReader, Layout]:
        reader = LogReader(
            log, corpus.time_s, corpus.session[corpus.first_request],
            corpus.turn[corpus.first_request], sizes, how.tier_bytes,
        )  # fmt: skip
        return reader, Layout(layout, space, sizes, model=model, unit_tokens=how.unit_tokens)

    reader, placed = make()
    if reader.tier_bytes > profile.namespace_bytes:
        raise UsageError(
            f"the simulated SSD tier of {format_size(reader.tier_bytes)} is larger than the "
            f"namespace of {profile.name}, {format_size(profile.namespace_bytes)}",
            fix="take a larger --profile, or a smaller --ssd",
        )
    facts: dict[str, Any] = {
        "store": placed.name, "chunk_tokens": placed.unit_tokens, "requests": corpus.name,
        "store_bytes": space,
    }  # fmt: skip
    source = RunInput(
        make, name=f"{corpus.name} / {placed.name}", facts=facts, placement=how.placement
    )
    base = _Base(corpus, sizes, profile, how, reader, placed, space)
    if not reader.written.any():
        return base.nothing_written()
    options = Options(fills=how.fills, budget_s=how.budget_s, repeats=1, perturb=how.perturb)
    return base.result(measure(source, profile, options, progress), source)


@dataclass(frozen=True)
class _Base:
    """All that the result needs beside the measurement."""

    corpus: Clocked
    sizes: ObjectSizes
    profile: DeviceProfile
    how: How
    reader: LogReader
    placed: Layout
    space: int

    def nothing_written(self) -> WearOfRun:
        why = "the run writes nothing to the SSD: there is no WAF and no end of life"
        return WearOfRun(
            **self._facts(), op_bytes=OpBytes(full=0, state=0, header=0, metadata=0), use=None,
            waf=WafFigures(), band=None, passes=0, namespace_writes=0, stopped="nothing to write",
            fill=None, over_provisioning=None, append_streams=None, touched_share=None,
            by_class=(), erases=None, duration_s=self.duration_s, writes_per_day_bytes=0.0,
            rate_source=None, required_dwpd=0.0, lifetimes=LifetimeDays(),
            lifetimes_from=None, absent=(why,), notes=(), seconds=0.0,
        )  # fmt: skip

    def result(self, done: Wear, source: RunInput) -> WearOfRun:
        """The measurement as a model."""
        once = source.passes[0] if source.passes else None
        op_bytes = _op_bytes(once)
        rate = self._rate(op_bytes.total if once else None)
        rated = replace(done.options, writes_per_day=() if rate is None else (rate,))
        found = to_json(replace(done, options=rated))
        waf = found["waf"]
        return WearOfRun(
            **self._facts(),
            op_bytes=op_bytes,
            use=None if once is None else self._use(once),
            waf=WafFigures(
                run=_waf_of_run(done), first=waf["first"], cumulative=waf["cumulative"],
                steady=waf["steady"], low=waf["low"], high=waf["high"],
            ),
            band=waf["band"],
            passes=found["host_bytes"] / op_bytes.total if once else 0.0,
            namespace_writes=found["namespace_writes"],
            stopped=found["stopped"],
            fill=found["fill"],
            over_provisioning=found["over_provisioning"],
            append_streams=found["append_streams"],
            touched_share=done.shape.touched_share,
            by_class=tuple(
                ClassWear(object_class=row.pop("class"), **row) for row in found["by_class"]
            ),
            erases=Erases(**{k: found["erases"][k] for k in ("min", "mean", "max", "levelling")}),
            duration_s=self.duration_s,
            writes_per_day_bytes=rate,
            rate_source=self._rate_source() if rate is not None else None,
            required_dwpd=found["required_dwpd"] if rate is not None else None,
            lifetimes=LifetimeDays(**self._lifetimes(found, rate)),
            lifetimes_from=found["lifetimes_from"],
            absent=tuple(self._absent(done, once, rate)),
            notes=tuple(self._notes(found, done)),
            seconds=done.seconds,
        )  # fmt: skip

    @property
    def duration_s(self) -> float | None:
        """Seconds that one pass stands for; None where the trace has no clock."""
        if self.how.duration_s is not None:
            return self.how.duration_s
        time_s = self.corpus.time_s
        span = float(time_s.max() - time_s.min()) if len(time_s) else 0.0
        return span or None

    def _facts(self) -> dict[str, Any]:
        objects = self.reader.written
        size = objects * np.array(self.sizes.by_class, np.int64)
        profile = self.profile
        return {
            "trace": self.corpus.name,
            "layout": self.placed.name,
            "drive": profile.name,
            "ftl_policy": profile.policy,
            "streams": "none" if profile.is_femu else profile.drive.streams,
            "placement": self.how.placement,
            "tier_bytes": self.reader.tier_bytes,
            "namespace_bytes": profile.namespace_bytes,
            "utilisation": self.reader.tier_bytes / profile.namespace_bytes,
            "store_share": self.space / profile.namespace_bytes,
            "objects": _by_class(objects),
            "object_bytes": _by_class(size),
        }

    def _use(self, once: Pass) -> LayoutUse:
        size, objects = np.array(self.sizes.by_class, np.int64), self.reader.written
        in_stream = ((objects - once.lost[Lost.UNWRITTEN]) * size).sum()
        return LayoutUse(
            rules=self.placed.rules,
            unit_bytes=self.placed.unit_bytes,
            held_bytes=once.held_bytes,
            live_bytes=once.live_bytes,
            wasted_mean_bytes=once.wasted_mean,
            wasted_most_bytes=once.wasted_most,
            unwritten=_by_class(once.lost[Lost.UNWRITTEN]),
            lost=_by_class(once.lost[Lost.FREED] + once.missing),
            lost_uses=_by_class(once.lost[Lost.USED]),
            overhead_bytes=int(once.op_bytes.sum() - in_stream),
        )

    def _rate(self, pass_bytes: int | None) -> float | None:
        if self.how.writes_per_day is not None:
            return self.how.writes_per_day
        if pass_bytes is None or self.duration_s is None:
            return None
        return pass_bytes / self.duration_s * DAY_S

    def _rate_source(self) -> str:
        if self.how.writes_per_day is not None:
            return "given bytes a day"
        if self.how.duration_s is not None:
            return f"one pass over a given duration of {self.how.duration_s:.6g} s"
        return f"one pass over the clock of {self.corpus.name}, {self.duration_s:.6g} s"

    def _lifetimes(self, found: dict[str, Any], rate: float | None) -> dict[str, float | None]:
        return dict(found["lifetimes"]) if rate is not None else {}

    def _absent(self, done: Wear, once: Pass | None, rate: float | None) -> list[str]:
        why = []
        if once is None:
            why.append("the log was not written once: no figures of a whole run")
        if done.steady_waf is None:
            why.append(
                f"not steady after {len(done.measured.windows)} windows of one namespace "
                f"({done.measured.stopped}): no steady WAF, and no lifetime from one"
            )
        if rate is None:
            why.append("no clock and no rate: no lifetimes")
        return why

    def _notes(self, found: dict[str, Any], done: Wear) -> list[str]:
        notes = [note for note in found["notes"] if not note.startswith("not steady")]
        if done.measured.repeats:
            notes.append(_REPEATED)
        return notes


def _waf_of_run(done: Wear) -> float | None:
    """WAF when the log had been written once."""
    for snapshot in done.measured.snapshots:
        if snapshot.event == "repeat":
            return snapshot.counters.waf
    return None


def _op_bytes(once: Pass | None) -> OpBytes:
    found = np.zeros(4, np.int64) if once is None else once.op_bytes
    full, state, header, metadata = (int(n) for n in found)
    return OpBytes(full=full, state=state, header=header, metadata=metadata)


def _by_class(counts: NDArray[np.int64]) -> ClassBytes:
    return ClassBytes(full=int(counts[0]), state=int(counts[1]))
