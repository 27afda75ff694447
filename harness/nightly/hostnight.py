"""The night of one host: its tasks in turn, from finding the drive to recording the results."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import paramiko

from harness.core.errors import HarnessError, Interrupted, MachineError, MeasurementError
from harness.nightly.environment import FOLDER, Sender, harness_on
from harness.nightly.history import History
from harness.nightly.inventory import Host, Inventory
from harness.nightly.jobs import LOCKED, TIMED_OUT, Job
from harness.nightly.nights import night_of
from harness.nightly.plan import Task
from harness.nightly.remote import Remote

Say = Callable[[str, str], None]
"""Told a host and what happens there, line by line."""

PATIENCE_S = 600.0
_PULLS = 3
_PULL_PAUSE_S = 2.0
_HEALTH_S = 60.0


@dataclass
class Outcome:
    """How a task ended: ``done``, ``failed`` or ``skipped``, and why; ``runs`` came back.

    ``health`` is SMART ``before`` and ``after``; ``not_measured`` is what a run itself says that it
    lacks, such as a GPU.
    """

    task: str
    host: str
    job: str
    device: str | None
    state: str = "failed"
    why: str = ""
    exit_code: int | None = None
    duration_s: float = 0.0
    runs: list[str] = field(default_factory=list)
    health: dict[str, Any] = field(default_factory=dict)
    not_measured: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Places:
    """Where a night leaves things: run folders, history, and its own folder for logs."""

    results: Path
    history: Path
    night: Path


class HostNight:
    """Does the tasks of ``host``; ``stop`` may be called from another thread."""

    def __init__(
        self,
        inventory: Inventory,
        host: Host,
        places: Places,
        started: datetime,
        say: Say,
        sender: Sender,
        patience_s: float,
    ) -> None:
        self.host = host
        self._window = inventory.window
        self._places = places
        self._stamp = f"{started:%Y%m%dT%H%M%S.%fZ}"
        self._say = lambda text: say(host.name, text)
        self._sender = sender
        self._patience_s = patience_s
        self._remote: Remote | None = None
        self._harness = ""
        self._job: Job | None = None
        self._stopped = False

    def stop(self) -> None:
        """End what runs on the host; later tasks are skipped."""
        self._stopped = True
        if self._remote is not None:
            if self._job is not None:
                with suppress(HarnessError):  # out of reach: its limit of time ends it
                    self._job.end(self._remote)
            self._remote.close()

    def run(self, tasks: list[Task]) -> list[Outcome]:
        """Do ``tasks`` one after another; nothing of them is raised."""
        outcomes = []
        for task in tasks:
            begin = time.monotonic()
            serial = task.device.serial if task.device else None
            outcome = Outcome(task.name, self.host.name, task.job.name, serial)
            try:
                self._one(task, outcome)
            except (HarnessError, OSError, EOFError, paramiko.SSHException) as error:
                outcome.state, outcome.why = "failed", outcome.why or str(error)
            outcome.duration_s = time.monotonic() - begin
            self._say(f"{outcome.task}: {outcome.state} {outcome.why}".rstrip())
            outcomes.append(outcome)
        if self._remote is not None:
            self._remote.close()
        return outcomes

    def _one(self, task: Task, outcome: Outcome) -> None:
        minutes = self._minutes(task)
        if minutes is None or self._stopped:
            outcome.state = "skipped"
            outcome.why = "interrupted" if self._stopped else "its window is shut"
            return
        self._say(f"{task.name}: begins")
        remote = self._connected()
        path = remote.find_device(task.device.serial) if task.device else None
        if task.device and path:
            before = remote.health(path)
            outcome.health["before"] = asdict(before)
            if beyond := before.beyond(task.device.limits):
                raise MeasurementError(f"not written to: {'; '.join(beyond)}")
        job = Job(
            f"{remote.home}/{FOLDER}/job-{self._stamp}-{task.name}", 60 * minutes, self._patience_s
        )
        steps = task.steps(self._harness, job.results, path)
        logs = self._places.night / "logs"
        logs.mkdir(exist_ok=True)
        with (logs / f"{task.name}.log").open("wb") as log:
            self._work(job, task, steps, path, outcome, log)
        if outcome.exit_code in TIMED_OUT and minutes < task.job.minutes:
            outcome.why = "its window ended: it was stopped"
        if outcome.exit_code == LOCKED:
            self._connected().remove(job.folder)
            return
        self._collect(job, task, outcome)
        if path:
            outcome.health["after"] = asdict(self._connected().health(path))

    def _work(
        self, job: Job, task: Task, steps: list[list[str]], path: str | None, outcome: Outcome,
        log: IO[bytes],
    ) -> None:  # fmt: skip
        """Run the job to its end. Whatever goes wrong meanwhile, it does not go on unwatched."""
        lines = _Lines(self._say)
        self._job = job
        try:
            job.start(self._connected(), steps, task.lock)
            watch = _Watch(task, path)
            outcome.exit_code = job.follow(self._connected, log, lines.take, watch.look)
            outcome.state, outcome.why = _verdict(outcome.exit_code, job.last_words())
        except HarnessError as error:
            outcome.why = str(error)
            with suppress(HarnessError):
                job.end(self._remote or self._connected())
        finally:
            self._job = None

    def _minutes(self, task: Task) -> float | None:
        """Time that the task may take, None while its window is shut."""
        if self._window is None:
            return task.job.minutes
        now = datetime.now(UTC)
        closing = self._window.closes(now)
        if closing is None:
            return None
        return min(task.job.minutes, (closing - now).total_seconds() / 60)

    def _connected(self) -> Remote:
        """The connection, made anew where it broke."""
        if self._stopped:
            raise Interrupted("interrupted")
        if self._remote is not None:
            try:
                self._remote.run(["true"], sudo=False)
                return self._remote
            except MachineError:
                self._remote.close()
                self._remote = None
                if self._stopped:
                    raise Interrupted("interrupted") from None
                self._say("the connection broke; connecting again")
        remote = Remote(self.host.destination, sudo=self.host.sudo)
        try:
            if self.host.sudo:
                remote.must(["true"], "sudo is refused")
            self._harness = self._harness or harness_on(remote, self.host, self._sender, self._say)
        except BaseException:
            remote.close()
            raise
        self._remote = remote
        return remote

    def _collect(self, job: Job, task: Task, outcome: Outcome) -> None:
        """Fetch the run folders, going on where a broken connection left off; record them."""
        results = self._places.results.resolve()
        incoming = results / f".incoming-{self._stamp}-{task.name}"
        for attempt in range(_PULLS):
            try:
                self._connected().fetch(job.results, incoming)
                break
            except MachineError:
                if attempt == _PULLS - 1:
                    raise
                time.sleep(_PULL_PAUSE_S)
        for found in sorted(incoming.iterdir()) if incoming.is_dir() else []:
            if found.is_dir():
                self._keep(found, results / found.name, task, outcome)
        self._connected().remove(job.folder)
        if incoming.is_dir():
            shutil.rmtree(incoming)

    def _keep(self, found: Path, target: Path, task: Task, outcome: Outcome) -> None:
        if target.exists():
            raise MachineError(f"{target} is already here; the other one is in {found.parent}")
        found.rename(target)
        outcome.runs.append(target.name)
        if target.name.endswith(".partial"):
            return
        record = json.loads((target / "run.json").read_text())
        outcome.not_measured |= record.get("not_measured") or {}
        night = night_of(target, host=self.host.name, job=task.job.name, device=outcome.device)
        History(self._places.history).append(night)


class _Lines:
    """Pieces of output as whole lines."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._rest = b""

    def take(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if text := line.decode("utf-8", "replace").rstrip():
                self._say(text)


class _Watch:
    """Looks at the drive once a minute while a job writes to it."""

    def __init__(self, task: Task, path: str | None) -> None:
        self._limits = task.device.limits if task.device else None
        self._path = path
        self._next = time.monotonic() + _HEALTH_S

    def look(self, remote: Remote) -> None:
        """MeasurementError when the drive is past its limits."""
        if self._limits is None or self._path is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _HEALTH_S
        if beyond := remote.health(self._path).beyond(self._limits):
            raise MeasurementError(f"ended: {'; '.join(beyond)}")


def _verdict(code: int, said: str) -> tuple[str, str]:
    if code == 0:
        return "done", ""
    if code == LOCKED:
        return "failed", "another run holds its lock"
    if code in TIMED_OUT:
        return "failed", "past its time: it was ended"
    return "failed", f"exit code {code}: {said}"
