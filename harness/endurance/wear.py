"""How an input wears a drive: precondition, write until steady, repeat under other orders."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from harness.core.errors import UsageError
from harness.core.profiles import DeviceProfile
from harness.core.progress import Progress, quiet
from harness.core.units import format_size
from harness.endurance.arrange import Perturbed
from harness.endurance.inputs import Input
from harness.endurance.measure import Limits, Measured, measure, precondition
from harness.endurance.shape import Shape
from harness.endurance.steady import mean_waf, steady_windows
from harness.ftl import Ftl, saved

DEFAULT_FILLS = 2
UNRATED_WINDOWS = 200
"""Namespaces after which an endless input stops on a drive without a rated life."""

Variant = Callable[[int], Input]
"""The input in its ``n``-th phase, 0 the one that is reported."""


@dataclass(frozen=True)
class Options:
    """How to measure. ``fills`` None: twice, and not at all for an op list.

    ``perturb`` and ``phases`` repeat the measurement under other orders and tile phases;
    ``budget_s`` covers all of it. ``whole_life`` writes the rated life, steady or not. ``repeats``
    passes of an endless input that repeats itself are written even where it is steady before.
    """

    fills: int | None = None
    budget_s: float | None = None
    whole_life: bool = False
    until_steady: bool = True
    repeats: int = 0
    perturb: int = 0
    phases: int = 1
    writes_per_day: tuple[float, ...] = ()
    by_class: bool = True
    save: Path | None = None
    resume: Path | None = None


@dataclass
class Band:
    """WAFs of the same figure under other orders; ``asked`` may be more than were done."""

    what: str
    asked: int
    wafs: list[float] = field(default_factory=list)


@dataclass
class Wear:
    """A finished measurement; ``result.to_json`` makes a report of it."""

    profile: DeviceProfile
    source: Input
    options: Options
    measured: Measured
    shape: Shape
    erases: np.ndarray
    mapped_pages: int
    pages_by_class: np.ndarray
    fill: str
    fills: int
    seconds: float
    band: Band | None = None

    @property
    def steady_waf(self) -> float | None:
        """WAF over the last five windows if they are steady."""
        windows = steady_windows(self.measured.windows)
        return mean_waf(windows) if windows else None

    @property
    def cumulative_waf(self) -> float | None:
        """WAF over all that was written after preconditioning."""
        return self.measured.total.waf if self.measured.total else None


def wear(
    source: Input | Variant,
    profile: DeviceProfile,
    options: Options = Options(),
    progress: Progress = quiet,
) -> Wear:
    """Write ``source`` to a drive of ``profile`` and report what that cost.

    Parameters
    ----------
    source
        An input, or a function that gives it in its n-th phase (``options.phases``).

    Raises
    ------
    UsageError
        Requests beyond the namespace, an input without writes, a saved state of another drive.
    MeasurementError
        The drive ran out of lines.
    MachineError
        The tables do not fit into memory.
    """
    if options.perturb and options.phases > 1:
        raise UsageError("--perturb and the phases of --scale tile are two bands: give --phases 1")
    variant: Variant = source if callable(source) else lambda phase: source
    began = time.monotonic()
    deadline = None if options.budget_s is None else began + options.budget_s
    others = options.perturb + options.phases - 1
    share = None if deadline is None else began + (deadline - began) / (1 + others)
    first = variant(0)
    done = _once(first, profile, options, _limits(first, profile, options, share), progress)
    if others:
        done.band = _band(variant, done, deadline, progress)
    done.seconds = time.monotonic() - began
    return done


def _limits(
    source: Input, profile: DeviceProfile, options: Options, deadline: float | None
) -> Limits:
    life = profile.tbw_bytes
    if options.whole_life and life is None:
        raise UsageError(
            f"profile {profile.name}: a whole life needs capacity_bytes, dwpd and warranty_years"
        )
    if source.kind == "oplist" and not (options.whole_life or source.endless):
        return Limits(steady=False, deadline=deadline)
    return Limits(
        steady=options.until_steady and not options.whole_life and source.endless,
        repeats=options.repeats,
        host_bytes=life if options.whole_life or source.endless else None,
        windows=UNRATED_WINDOWS if source.endless and life is None else None,
        deadline=deadline,
    )


def _once(
    source: Input, profile: DeviceProfile, options: Options, limits: Limits, progress: Progress
) -> Wear:
    fills = options.fills
    if fills is None:
        fills = 0 if source.kind == "oplist" else DEFAULT_FILLS
    ftl, fill = _drive(source, profile, options, fills, progress)
    shape = Shape(profile.namespace_bytes)
    goal = limits.host_bytes if options.whole_life else None

    def report(found: Measured, written: int) -> None:
        latest = f", WAF {found.windows[-1].waf:.2f}" if found.windows else ""
        note = f"{format_size(written)} written{latest}"
        progress(written, goal, note)

    measured = measure(ftl, source, limits, shape, report)
    if measured.total is None or measured.total.host_pages == 0:
        raise UsageError(
            f"{source.name} writes nothing: reads do not wear a drive in this model",
            fix="give a trace with writes",
        )
    if options.save is not None:
        saved.save(ftl, options.save, {"fill": fill, "input": source.name})
    return Wear(
        profile=profile,
        source=source,
        options=options,
        measured=measured,
        shape=shape,
        erases=ftl.erases.copy(),
        mapped_pages=ftl.mapped_pages,
        pages_by_class=ftl.pages_by_class.copy(),
        fill=fill,
        fills=fills,
        seconds=0.0,
    )


def _drive(
    source: Input, profile: DeviceProfile, options: Options, fills: int, progress: Progress
) -> tuple[Ftl, str]:
    """A drive ready to be measured, and how it came to be so."""
    if options.resume is not None:
        if options.fills:
            raise UsageError("a kept drive is filled already: give --precondition or --resume")
        ftl, facts = saved.load(options.resume, profile)
        # What it holds is of another input, whose classes may have other names.
        ftl.pages_by_class[:] = 0
        return ftl, f"resumed: {facts.get('fill')}, then {facts.get('input')}"
    ftl = Ftl(profile, by_class=options.by_class and source.has_classes)
    if fills:
        progress(0, None, "preconditioning")
        precondition(ftl, fills, lambda: progress(0, None, "preconditioning"))
        # The fill is nobody's data: wear by class starts with the input.
        ftl.pages_by_class[:] = 0
    return ftl, f"{fills} sequential fills" if fills else "none: the drive was empty"


def _band(variant: Variant, main: Wear, deadline: float | None, progress: Progress) -> Band:
    """The main figure again under other phases, or under swapped neighbours."""
    options = main.options
    by_phase = options.phases > 1
    band = Band("tile phases" if by_phase else "swapped neighbours",
                options.phases - 1 if by_phase else options.perturb)  # fmt: skip
    total = main.measured.total
    assert total is not None  # _once refuses a pass without writes
    limits = Limits(steady=False, host_bytes=total.host_bytes, deadline=deadline)
    steady = bool(steady_windows(main.measured.windows))
    for number in range(1, band.asked + 1):
        source = variant(number) if by_phase else Perturbed(variant(0), seed=number)
        plain = Options(fills=options.fills, by_class=False, resume=options.resume)
        other = _once(source, main.profile, plain, limits, progress)
        short = other.measured.total
        if short is None or short.host_bytes < 0.99 * total.host_bytes:
            break  # the budget ended it; what is shorter cannot be compared
        windows = other.measured.windows[-5:]
        found = mean_waf(windows) if steady else short.waf
        assert found is not None
        band.wafs.append(found)
    return band
