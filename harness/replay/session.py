"""One replay by our own engine: plan, issue, collect, watch, and stop when it must."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from harness.core.errors import Interrupted, UsageError
from harness.core.ops import OP_LETTERS, Op
from harness.core.progress import Progress
from harness.core.units import format_duration, format_size
from harness.device.guard import Target
from harness.device.info import is_present
from harness.replay.collect import Collector
from harness.replay.options import ReplayOptions
from harness.replay.plan import Limits, Planner, largest_commands, limits_of
from harness.replay.rig import Rig, Sizing, size_up
from harness.replay.scan import ScanResult, scan
from harness.replay.survey import Survey
from harness.replay.window import ABANDON, DRAIN, WINDOW_ROWS, Control, Meter, make_window
from harness.trace.parquet import Trace

_LEAD_NS = 50_000_000
_LOOK_S = 0.01
_WATCH_S = 0.25
_STOPPED_S = 1.0
"""If we did not get to look for so long, we were stopped."""
_REFILL_ROWS = WINDOW_ROWS // 8


@dataclass(frozen=True)
class Ending:
    """How the engines ended: the problem if any, and commands whose completion never came."""

    problem: str | None = None
    interrupted: bool = False
    in_flight: int = 0


class Session:
    """A replay in progress. ``run`` it once; then everything it found is in its attributes."""

    def __init__(
        self,
        trace: Trace,
        target: Target,
        survey: Survey,
        options: ReplayOptions,
        progress: Progress,
    ) -> None:
        self._target = target
        self.options = options
        self._progress = progress
        self._window = make_window()
        limits = limits_of(target.info, huge_pages=True)
        self.sizing: Sizing = size_up(options, target.info, *largest_commands(survey, limits))
        self.rig = Rig(target, options, self.sizing, self._window, survey.unit_bytes)
        if not self.rig.huge:
            limits = limits_of(target.info, huge_pages=False)
        self.limits: Limits = limits
        stream = _stream_column(trace, survey) if options.mode == "closed-loop" else None
        self.planner = Planner(trace, survey, options, limits, self._window, stream)
        self.collector = Collector(self._window, self.sizing.depth)
        self.ending = Ending()
        self.scan: ScanResult | None = None

    def run(self) -> None:
        """Replay; a problem or an interruption is in ``ending``, not raised."""
        try:
            self._fill()
            self.rig.warm_up()
            self._start()
            try:
                self._watch()
            except (KeyboardInterrupt, Interrupted):
                self._interrupt()
            self._finish()
        finally:
            self.rig.stop(ABANDON)
            self.rig.join(2.0)
            self.rig.close()

    def read_back(self) -> None:
        """After a verified replay that ran to its end: check all that it wrote."""
        if self.options.verify and self.ending.problem is None:
            self.scan = scan(self.rig.lanes[0], self._target, self._progress)

    def _start(self) -> None:
        lead = _LEAD_NS if self.options.mode != "flat-out" else 0
        self.rig.control[Control.START_NS] = time.monotonic_ns() + lead
        self.rig.start()

    def _now_ns(self) -> int:
        return time.monotonic_ns() - int(self.rig.control[Control.START_NS])

    def _fill(self) -> int:
        """Plan as much as there is room for; how many commands."""
        planned = 0
        while not self.planner.finished:
            room = self._window.size - (self.planner.commands - self.collector.retired)
            added = self.planner.fill(room)
            planned += added
            self.rig.control[Control.PRODUCED] = self.planner.commands
            if added == 0:
                break
        if self.planner.finished:
            self.rig.control[Control.FINISHED] = 1
        return planned

    def _watch(self) -> None:
        """Keep the window full and emptied until the engines end or something is wrong."""
        watched = looked = time.monotonic()
        while self.rig.running():
            if time.monotonic() - looked > _STOPPED_S:
                watched = time.monotonic()  # let the engines see first what came meanwhile
            looked = time.monotonic()
            self.collector.collect(self.planner.commands)
            room = self._window.size - (self.planner.commands - self.collector.retired)
            if not self.planner.finished and room >= _REFILL_ROWS:
                self._fill()
            if time.monotonic() - watched >= _WATCH_S:
                watched = time.monotonic()
                self._report()
                problem = self._problem()
                if problem is not None:
                    self.ending = Ending(problem)
                    return
            time.sleep(_LOOK_S)

    def _problem(self) -> str | None:
        waited = self.collector.oldest_wait_ns(self.planner.commands, self._now_ns()) / 1e9
        if waited > self.options.stall_limit_s:
            self.rig.stop(ABANDON)
            return f"the device stalled: a request was not done after {format_duration(waited)}"
        if self.rig.meter(Meter.ERRORS) and not is_present(self._target.name):
            self.rig.stop(DRAIN)
            self.rig.join(self.options.stall_limit_s)
            return f"the device {self._target.name} is gone"
        return None

    def _interrupt(self) -> None:
        """Stop issuing, wait for what is in flight; a second signal gives that up as well."""
        self.ending = Ending("interrupted", interrupted=True)
        self.rig.stop(DRAIN)
        deadline = time.monotonic() + self.options.stall_limit_s
        try:
            while self.rig.running() and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
        except (KeyboardInterrupt, Interrupted):
            pass
        self.rig.stop(ABANDON)

    def _finish(self) -> None:
        """Collect what is left, and make sure that the engines are through."""
        self.rig.join(2.0)
        if self.rig.failures:
            raise self.rig.failures[0]
        problem = self.ending.problem
        refused = min(int(meter[Meter.ENTER_ERROR]) for meter in self.rig.meters)
        if refused and problem is None:
            problem = f"the kernel refused the ring (errno {-refused})"
        left = self.collector.collect_rest(self.planner.commands)
        if left and problem is None:
            problem = "the engines ended with requests in flight"
        self.ending = Ending(problem, self.ending.interrupted, left)

    def _report(self) -> None:
        done = self.rig.meter(Meter.COMPLETED)
        moved = format_size(self.rig.meter(Meter.BYTES))
        note = moved
        if self.options.mode != "flat-out":
            lag = max(int(meter[Meter.LAST_LAG_NS]) for meter in self.rig.meters)
            note = f"{moved}, {format_duration(max(lag, 0) / 1e9)} late"
        total = self.planner.total_requests
        if total is not None and self.planner.requests:
            total = total * self.planner.commands // self.planner.requests
        self._progress(done, total, note)


def _stream_column(trace: Trace, survey: Survey) -> str:
    """The column by which a closed loop tells streams apart."""
    if survey.with_latency == 0:
        raise UsageError(
            f"{trace.path} has no latencies, and a closed loop waits for recorded completions",
            fix="replay it timed, or flat out",
        )
    return "session" if "session" in trace.columns else "pid"


def by_letter(counts: np.ndarray) -> dict[str, int]:
    """Counts by ``Op`` code as a dictionary of the letters that occur."""
    return {OP_LETTERS[op]: int(counts[op]) for op in range(Op.SNAP) if counts[op]}
