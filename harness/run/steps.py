"""The steps of the whole path. Each leaves its files in the run folder and says one line.

A step whose measurement failed (LOSSY, WRONG) still lets the next ones run: what they find is
worth having, and the run says in the end what went wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.bench.grid import load_grid
from harness.bench.journal import NAME as JOURNAL
from harness.bench.layout import bench_on_loop
from harness.calibrate.export import export
from harness.calibrate.files import write as write_calibration
from harness.capture.options import TraceOptions
from harness.capture.session import Capture
from harness.core.errors import MeasurementError
from harness.core.files import write_json
from harness.core.profiles import DeviceProfile, load_profile
from harness.core.progress import Progress, quiet
from harness.core.units import format_duration, format_size
from harness.device.guard import Target, open_guarded
from harness.device.loop import LoopDevice
from harness.endurance.inputs import Input, TraceInput
from harness.endurance.result import DAY_S, to_json
from harness.endurance.store_input import StoreInput
from harness.endurance.wear import Options, wear
from harness.replay.run import replay
from harness.run.drives import shrunk
from harness.run.plan import RunPlan
from harness.stores.emit import emit
from harness.stores.registry import make_store
from harness.stores.requests.load import open_requests

TRACE = "trace.parquet"


@dataclass
class Job:
    """What the steps of one run share. ``devices`` owns the loop device while it is needed."""

    plan: RunPlan
    folder: Path
    devices: ExitStack
    progress: Progress = quiet
    target: Target | None = None
    failures: list[str] = field(default_factory=list)

    @property
    def trace(self) -> Path:
        """The captured block trace."""
        return self.folder / TRACE

    @property
    def device(self) -> Target:
        """The store's loop device, made when first asked for, sparse and nameless."""
        if self.target is None:
            loop = self.devices.enter_context(LoopDevice(self.plan.device_bytes, self.folder))
            self.target = self.devices.enter_context(open_guarded(loop.path, own=True))
        return self.target

    def release_device(self) -> None:
        """Give the loop device and its disk space back."""
        self.devices.close()
        self.target = None

    def save(self, name: str, data: dict[str, Any]) -> None:
        """``NAME.json`` in the run folder: what the step's own command prints with --json."""
        write_json(self.folder / f"{name}.json", data)


@dataclass(frozen=True)
class Step:
    """One step; ``does`` returns the line that people read when it is done."""

    title: str
    does: Callable[[Job], str]


def capture_store(job: Job) -> str:
    """Run the store on the loop device under the probe: trace, emission, verdict."""
    plan, target = job.plan, job.device
    store = make_store(plan.store, target.size_bytes, plan.model)
    requests = open_requests(plan.requests, seed=plan.seed)
    capture = Capture(
        TraceOptions((target.path,)), job.trace, command=f"{plan.store}, seed {plan.seed}"
    )
    with capture:
        emitted = emit(
            store,
            requests,
            target,
            seed=plan.seed,
            seconds=plan.emit_seconds,
            objects=job.folder / "objects.parquet",
            progress=job.progress,
        )
    traced = capture.result
    if traced is None:
        raise MeasurementError("the capture ended without a result")
    job.save("emit", emitted.as_json())
    job.save("capture", traced.to_dict())
    if not emitted.verified:
        job.failures.append(f"store: {emitted.issued.wrong_sectors} sectors read back wrong")
    if traced.verdict == "LOSSY":
        job.failures.append(f"capture: {traced.summary}")
    return (
        f"{traced.summary}, {traced.requests:,} block requests; "
        f"{format_size(emitted.issued.verified_bytes)} read back, "
        f"{'all as written' if emitted.verified else 'NOT as written'}"
    )


def _replay(job: Job, mode: str) -> str:
    found = replay(job.trace, job.device, mode=mode, progress=job.progress)
    job.save(f"replay-{mode}", found.to_dict())
    if found.verdict == "WRONG":
        job.failures.append(f"replay {mode}: {'; '.join(found.fidelity['reasons'])}")
    said = f"{found.verdict}, {format_size(found.bytes)} in {found.requests:,} requests"
    lag_ns = found.fidelity["lag_ns"]["p99"]
    return said if lag_ns is None else f"{said}, lag p99 {format_duration(lag_ns / 1e9)}"


def replay_timed(job: Job) -> str:
    """The trace against the device that it came from, at the recorded times."""
    return _replay(job, "timed")


def replay_flat_out(job: Job) -> str:
    """The same in the recorded order, as fast as the device goes; then the device is let go."""
    said = _replay(job, "flat-out")
    job.release_device()
    return said


def wear_drive(job: Job) -> str:
    """The same store re-emitted at the drive's capacity, straight into the FTL model."""
    plan = job.plan
    profile = load_profile(plan.drive)
    source = StoreInput(
        plan.store, plan.requests, plan.model, profile.namespace_bytes, seed=plan.seed
    )
    return _wear(job, "wear", source, profile, plan.wear_budget_s)


def wear_captured(job: Job) -> str:
    """The captured trace itself, never stretched, on a model the size of the loop device."""
    plan = job.plan
    profile = shrunk(load_profile(plan.drive), plan.device_bytes)
    return _wear(job, "wear-captured", TraceInput(job.trace), profile, plan.wear_captured_budget_s)


def _wear(job: Job, name: str, source: Input, profile: DeviceProfile, budget_s: float) -> str:
    found = to_json(wear(source, profile, Options(budget_s=budget_s), job.progress))
    job.save(name, found)
    waf, days = found["waf"], found["lifetimes"]["paper_days"]
    said = (
        f"WAF {waf['steady']:.2f}, steady"
        if waf["steady"] is not None
        else f"WAF {waf['cumulative']:.2f}, not steady"
    )
    lives = "" if days is None else f", lives {format_duration(days * DAY_S)}"
    return f"{said}, policy {found['policy']}{lives}"


def bench(job: Job) -> str:
    """A session read back contiguous and scattered, on a filled loop device of its own."""
    found = bench_on_loop(
        load_grid(job.plan.bench_grid),
        job.folder,
        progress=job.progress,
        journal=job.folder / JOURNAL,
    )
    job.save("bench", found.model_dump(mode="json"))
    worst = max(found.comparisons, key=lambda pair: pair.slowdown.median, default=None)
    if worst is None:
        return f"{len(found.cells)} cells"
    return f"{len(found.cells)} cells; scattered up to {worst.slowdown.median:.2f}x slower"


def calibrate(job: Job) -> str:
    """The calibration file of all that this run measured."""
    file = export([job.folder], unfinished=True)
    write_calibration(job.folder / "calibration.json", file)
    return f"{len(file.bandwidth)} bandwidth and {len(file.waf)} WAF samples"
