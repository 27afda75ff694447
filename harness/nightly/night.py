"""A night: hosts at once, the jobs of each in turn, every failure that of its own task."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import paramiko

from harness import __version__
from harness.core.errors import HarnessError, MachineError
from harness.nightly.history import History
from harness.nightly.inventory import Host, Inventory
from harness.nightly.nights import night_of
from harness.nightly.plan import Task, plan
from harness.nightly.remote import LOCKED, TIMED_OUT, Remote, last_line

Say = Callable[[str], None]
"""Told of each task as it begins and ends."""

_PULLS = 3
_PULL_PAUSE_S = 2.0


@dataclass
class Outcome:
    """How a task ended: ``done``, ``failed`` or ``skipped``, and why; ``runs`` came back."""

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


@dataclass(frozen=True)
class Places:
    """Where a night leaves things: run folders, history, and its own folder for logs."""

    results: Path
    history: Path
    night: Path


def run_night(inventory: Inventory, places: Places, say: Say) -> list[Outcome]:
    """Do all tasks; their outcomes in the order of the plan. Ctrl-C ends remote jobs too."""
    started = datetime.now(UTC)
    work = [_HostNight(inventory, host, places, started, say) for host in inventory.hosts]
    tasks = plan(inventory)
    pool = ThreadPoolExecutor(max_workers=len(work))
    try:
        futures = [pool.submit(one.run, tasks[one.host.name]) for one in work]
        return [outcome for future in futures for outcome in future.result()]
    finally:
        for one in work:
            one.stop()
        pool.shutdown(cancel_futures=True)


class _HostNight:
    def __init__(
        self, inventory: Inventory, host: Host, places: Places, started: datetime, say: Say
    ) -> None:
        self.host = host
        self._window = inventory.window
        self._places = places
        self._stamp = f"{started:%Y%m%dT%H%M%S.%fZ}"
        self._say = say
        self._remote: Remote | None = None
        self._stopped = False

    def stop(self) -> None:
        """End what runs on the host; later tasks are skipped."""
        self._stopped = True
        if self._remote is not None:
            self._remote.close()

    def run(self, tasks: list[Task]) -> list[Outcome]:
        outcomes = []
        for task in tasks:
            begin = time.monotonic()
            outcome = Outcome(
                task.name, self.host.name, task.job.name,
                task.device.serial if task.device else None,
            )  # fmt: skip
            try:
                self._one(task, outcome)
            except (HarnessError, OSError, EOFError, paramiko.SSHException) as error:
                outcome.state, outcome.why = "failed", str(error)
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
                outcome.why = f"not written to: {'; '.join(beyond)}"
                return
        folder = f".cache/kvflash-nightly/{self._stamp}-{task.name}"
        logs = self._places.night / "logs"
        logs.mkdir(exist_ok=True)
        try:
            with (logs / f"{task.name}.log").open("wb") as log:
                ended = remote.job(task.command(folder, path), task.lock, minutes, log)
            outcome.exit_code = ended.code
            outcome.state, outcome.why = _verdict(ended.code, last_line(ended.stderr))
        except MachineError as error:
            outcome.why = str(error)
        if outcome.exit_code != LOCKED:
            self._collect(folder, outcome)
        if path:
            after = self._connected().health(path)
            outcome.health["after"] = asdict(after)

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
            raise MachineError("interrupted")
        if self._remote is not None:
            try:
                self._remote.run(["true"])
                return self._remote
            except MachineError:
                self._remote.close()
                self._remote = None
        remote = Remote(self.host.destination, sudo=self.host.sudo)
        try:
            version = remote.version(self.host.harness)
            if version != __version__:
                raise MachineError(
                    f"the harness there is {version}, not {__version__}: install the same one"
                )
        except BaseException:
            remote.close()
            raise
        self._remote = remote
        return remote

    def _collect(self, folder: str, outcome: Outcome) -> None:
        """Fetch the run folders, going on where a broken connection left off; record them."""
        results = self._places.results.resolve()
        incoming = results / f".incoming-{self._stamp}-{outcome.task}"
        for attempt in range(_PULLS):
            try:
                self._connected().fetch(folder, incoming)
                break
            except HarnessError:
                if attempt == _PULLS - 1 or self._stopped:
                    raise
                time.sleep(_PULL_PAUSE_S)
        for found in sorted(incoming.iterdir()) if incoming.is_dir() else []:
            if not found.is_dir():
                continue
            target = results / found.name
            if target.exists():
                raise MachineError(f"{target} is already here; the other one is in {incoming}")
            found.rename(target)
            outcome.runs.append(found.name)
            if not found.name.endswith(".partial"):
                History(self._places.history).append(night_of(target))
        self._connected().remove(folder)
        if incoming.is_dir():
            shutil.rmtree(incoming)


def _verdict(code: int, said: str) -> tuple[str, str]:
    if code == 0:
        return "done", ""
    if code == LOCKED:
        return "failed", "another run holds its lock"
    if code in TIMED_OUT:
        return "failed", "past its time: it was ended"
    return "failed", f"exit code {code}: {said}"
