"""The order of the steps, and the run folder around them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from harness.core.progress import Progress
from harness.core.runs import RunFolder
from harness.doctor.registry import all_checks, require
from harness.report.page import write_page
from harness.report.run import read_run
from harness.run import steps, warm
from harness.run.plan import RunPlan
from harness.run.steps import Job, Step

STEPS = (
    Step("store under the probe", steps.capture_store),
    Step("replay, timed", steps.replay_timed),
    Step("replay, flat out", steps.replay_flat_out),
    Step("wear of the drive", steps.wear_drive),
    Step("wear of the trace", steps.wear_captured),
    Step("layouts read back", steps.bench),
    Step("calibration", steps.calibrate),
)

Bar = Callable[[str], AbstractContextManager[Progress]]
"""Makes a progress bar for the step of that title."""


@dataclass(frozen=True)
class StepDone:
    """A finished step, as it is announced."""

    title: str
    said: str
    duration_s: float


@dataclass(frozen=True)
class Outcome:
    """Where the run is, and which measurements failed (none: exit 0)."""

    folder: Path
    failures: tuple[str, ...]
    steps: tuple[StepDone, ...]


def run_path(
    plan: RunPlan, name: str, results: Path, bar: Bar, announce: Callable[[StepDone], None]
) -> Outcome:
    """Do every step of ``plan`` into a new run folder in ``results``, and write its report.

    Raises
    ------
    MachineError
        The machine lacks something that a step needs; nothing was written then.
    HarnessError
        A step could not be done; the folder stays ``.partial`` with what was done before.
    """
    require(*(check.name for check in all_checks(results) if check.required), results=results)
    with bar("compiling loops (first run only)"):
        warm.compile_loops()
    done: list[StepDone] = []
    with RunFolder(results, "run", name, plan.model_dump(mode="json")) as run:
        with ExitStack() as devices:
            job = Job(plan, run.path, devices)
            for step in STEPS:
                began = time.monotonic()
                with bar(step.title) as job.progress:
                    said = step.does(job)
                done.append(StepDone(step.title, said, time.monotonic() - began))
                announce(done[-1])
        run.exit_code = int(bool(job.failures))
        run.add(failures=job.failures)
        write_page(read_run(run.path, run.record))
    return Outcome(run.final, tuple(job.failures), tuple(done))
