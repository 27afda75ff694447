"""One policy on one machine, whole: what the cache hits, what the drive suffers, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from harness.calibrate.reader import Calibration, MissingTerm
from harness.core.config import Strict
from harness.core.errors import UsageError
from harness.core.profiles import DeviceProfile
from harness.core.progress import Progress, quiet
from harness.simulator.corpus import Corpus, repeated
from harness.simulator.loading.cost import Prices
from harness.simulator.loading.options import LoadOptions
from harness.simulator.loading.rates import Rates, measured_rates, seed_rates
from harness.simulator.loading.result import LoadResult, under_load
from harness.simulator.loading.work import Work, work_of
from harness.simulator.outcome import Outcome
from harness.simulator.point import Point
from harness.simulator.policies import find_policy
from harness.simulator.run import Run, simulate
from harness.simulator.tuning import tunings_of
from harness.simulator.wearing.result import WearOfRun, WearRow, wear_row
from harness.simulator.wearing.wear import How, wear_of
from harness.stores.models import load_model

ConstantsFrom = Literal["calibration", "filled", "seed"]


@dataclass(frozen=True)
class Machine:
    """What a policy runs on, beside the tiers of its point.

    Attributes
    ----------
    constants, calibration
        ``calibration``: the file's figures alone; ``filled``: the published constant where the
        file has none; ``seed``: the published constants, no file. The answer says which.
    profile, layouts
        The drive and the stores' layouts in which the writes are put on it; without a drive there
        is no wear.
    load
        Queues of the event-driven layer.
    prefill
        Tokens a second of model and GPU; None: the published constant.
    gpu_usd_per_hour
        Price of the GPU; None: no cost.
    how
        How wear is measured.
    """

    constants: ConstantsFrom = "calibration"
    calibration: Calibration | None = None
    profile: DeviceProfile | None = None
    layouts: tuple[str, ...] = ()
    load: LoadOptions = field(default_factory=LoadOptions)
    prefill: float | None = None
    gpu_usd_per_hour: float | None = None
    how: How = field(default_factory=How)

    def __post_init__(self) -> None:
        if self.constants != "seed" and self.calibration is None:
            raise UsageError(
                f"constants {self.constants} need a calibration file",
                fix="give --calibration FILE, or take the published ones: --constants seed",
            )
        if self.layouts and self.profile is None:
            raise UsageError(
                "a layout has no wear without a drive", fix="give --profile, such as 1tb-0.3dwpd"
            )


class Loaded(Strict):
    """Load latency under the point's queues and its cost, in one layout (None: in no certain)."""

    layout: str | None
    load: LoadResult


class Answer(Strict):
    """All of ``harness simulate --json``; see there. Absent figures are null, with the reason."""

    point: Point
    label: str
    trace: str
    requests: int
    miss: float
    misses: dict[str, float]
    references: int
    stranded: int
    written_bytes: dict[str, int]
    hits: dict[str, dict[str, int]]
    outcome: Outcome
    waf: float | None
    waf_kind: str | None
    lifetimes: dict[str, float | None] | None
    load_s: dict[str, float]
    cost: dict[str, float] | None
    constants: dict[str, str]
    tuned: dict[str, float] | None
    rows: tuple[WearRow, ...]
    loads: tuple[Loaded, ...]
    wear: tuple[WearOfRun, ...]
    absent: tuple[str, ...]


def evaluate(corpus: Corpus, point: Point, machine: Machine, progress: Progress = quiet) -> Answer:
    """Play the trace, put its writes on the drive, and serve its loads.

    Raises
    ------
    UsageError
        What ``simulate``, ``wear_of`` and the calibration raise.
    """
    run = simulate(
        corpus,
        point,
        log=True,
        progress=lambda done, total: progress(done, total, run_label(point)),
    )
    work = work_of(run.requests, run.sizes)
    wear = _wear(corpus, run, machine, progress)
    loads: list[Loaded] = []
    rows: list[WearRow] = []
    absent: list[str] = []
    in_layouts: Sequence[WearOfRun | None] = wear or [None]
    for worn in in_layouts:
        layout, waf = (worn.layout, worn.waf.best) if worn else (None, None)
        loaded = under_load(
            work, rates_for(work, machine, layout, waf), machine.load, _prices(machine)
        )
        loads.append(Loaded(layout=layout, load=loaded))
        if worn is not None:
            usd = loaded.usd_per_thousand
            rows.append(
                wear_row(
                    worn, run.label, miss=run.outcome.miss, load_mean_s=loaded.ttft_s.mean,
                    load_p99_s=loaded.ttft_s.p99, cost_usd=usd["total"] if usd else None,
                )
            )  # fmt: skip
            absent += worn.absent
    first = loads[0].load
    outcome = run.outcome
    return Answer(
        point=point,
        label=run.label,
        trace=corpus.name,
        requests=outcome.requests,
        **outcome.summary(),
        misses={
            "chunk": outcome.miss,
            "token": outcome.miss_token,
            "request": outcome.miss_request,
            "zero": outcome.miss_zero,
        },
        outcome=outcome,
        waf=rows[0].waf if rows else None,
        waf_kind=rows[0].waf_kind if rows else None,
        lifetimes=wear[0].lifetimes.model_dump() if wear else None,
        load_s={"mean": first.ttft_s.mean, "p99": first.ttft_s.p99},
        cost=first.usd_per_thousand,
        constants=first.constants,
        rows=tuple(rows),
        loads=tuple(loads),
        wear=tuple(wear),
        tuned=None if run.tuned is None else run.tuned._asdict(),
        absent=(*dict.fromkeys(absent), *_unmet(corpus, run), *_absent(machine)),
    )


def run_label(point: Point) -> str:
    """A point as people read it in progress and tables."""
    settings = ", ".join(f"{name} {value}" for name, value in point.parameters.items())
    return f"{point.policy} ({settings})" if settings else point.policy


def rates_for(work: Work, machine: Machine, layout: str | None, waf: float | None) -> Rates:
    """The rates of a machine for a run in ``layout``, whose own WAF replaces the file's."""
    if machine.constants == "seed" or machine.calibration is None:
        return seed_rates(len(work), prefill=machine.prefill, waf=waf)
    fill = machine.constants == "filled"
    try:
        return measured_rates(
            machine.calibration, work.context_tokens, layout=layout, path=machine.load.path,
            prefill=machine.prefill, waf=waf, fill=fill,
        )  # fmt: skip
    except MissingTerm:
        if not fill or layout is None:
            raise
    rates = measured_rates(
        machine.calibration, work.context_tokens, path=machine.load.path,
        prefill=machine.prefill, waf=waf, fill=True,
    )  # fmt: skip
    said = f"{rates.sources['B_ssd']}: no restore of {layout} was measured"
    return replace(rates, sources={**rates.sources, "B_ssd": said})


def _wear(corpus: Corpus, run: Run, machine: Machine, progress: Progress) -> list[WearOfRun]:
    if machine.profile is None or run.ssd is None or not run.point.ssd_bytes:
        return []
    point, given = run.point, machine.how
    duration_s = given.duration_s * point.replays if given.duration_s is not None else None
    how = replace(given, tier_bytes=point.ssd_bytes, duration_s=duration_s)
    model = load_model(point.model) if point.chunk_bytes is None else None
    played = repeated(corpus, point.replays)
    return [
        wear_of(
            run.ssd, played, run.sizes, layout, machine.profile, how, model=model,
            progress=progress,
        )
        for layout in machine.layouts
    ]  # fmt: skip


def _prices(machine: Machine) -> Prices | None:
    profile = machine.profile
    if machine.gpu_usd_per_hour is None or profile is None:
        return None
    if profile.price_usd is None or profile.tbw_bytes is None:
        return None
    return Prices(machine.gpu_usd_per_hour, profile.price_usd / profile.tbw_bytes)


def _unmet(corpus: Corpus, run: Run) -> list[str]:
    """What the policy would do, and the trace does not let it do."""
    policy = find_policy(run.point.policy, run.point.parameters)
    why = []
    if policy.needs_tags and not corpus.tag.any():
        why.append(
            f"{corpus.name} does not say which requests are a subagent's: {policy.label} takes all"
            " for others"
        )
    if tunings_of(policy) and run.tuned is None:
        why.append(f"{policy.label} was not tuned: the trace ends before its window does")
    return why


def _absent(machine: Machine) -> list[str]:
    why = []
    profile = machine.profile
    if profile is None:
        why.append("no drive was given (--profile): no WAF and no lifetime")
    elif not machine.layouts:
        why.append("no layout was given (--layout): no WAF and no lifetime")
    if machine.gpu_usd_per_hour is None:
        why.append("no price of a GPU was given (--gpu-usd-per-hour): no cost")
    elif profile is None or profile.price_usd is None or profile.tbw_bytes is None:
        why.append("the drive has no price_usd or no TBW: no cost")
    return why
