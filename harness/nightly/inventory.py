"""``nightly.yaml``: which hosts, which of their drives, which jobs, when, and how exact.

Nothing secret is in it: keys come from an SSH agent or from ``~/.ssh``, and a key such as
``password`` is an error like any unknown one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from harness.core.config import Strict, load_yaml

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
"""A word that may stand in a file name."""

Word = Annotated[str, Field(pattern=r"^[^-\s][^\x00-\x1f]*$")]
"""An argument that no command can take for an option."""

Share = Annotated[float, Field(ge=0, le=1)]

ItemsT = TypeVar("ItemsT")


class Limits(Strict):
    """Beyond these a drive is not written to."""

    temperature_c: int = 75
    percentage_used: int = 90
    media_errors: int = 0


class Device(Strict):
    """A drive by its serial (of a loop device: its backing file); its path may change."""

    serial: Word
    limits: Limits = Limits()


class Host(Strict):
    """A machine. ``address`` is ``[user@]host[:port]`` and by default ``name``.

    ``sudo`` puts ``sudo -n`` before the commands; ``harness`` is the command's path there.
    """

    name: Name
    address: Word = ""
    sudo: bool = False
    harness: Word = "harness"
    devices: tuple[Device, ...] = ()

    @property
    def destination(self) -> str:
        """Where to connect."""
        return self.address or self.name

    @field_validator("devices")
    @classmethod
    def _once(cls, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        return _unique(devices, [device.serial for device in devices])


class _Job(Strict):
    name: Name
    hosts: tuple[Name, ...] = ()
    devices: tuple[Word, ...] = ()
    minutes: Annotated[float, Field(gt=0, le=24 * 60)] = 120

    @property
    def writes(self) -> bool:
        """Whether the job overwrites its devices."""
        return False

    def words(self) -> list[str]:
        """Its command, after ``harness``, without device and results."""
        raise NotImplementedError


class _Writing(_Job):
    devices: Annotated[tuple[Word, ...], Field(min_length=1)]

    @property
    def writes(self) -> bool:
        """Always."""
        return True


class BenchJob(_Writing):
    """``bench layout``: layouts read from the device, which is overwritten."""

    kind: Literal["bench"]
    grid: Word = "quick"

    def words(self) -> list[str]:
        """See ``harness bench layout --help``."""
        return ["bench", "layout", f"--grid={self.grid}"]


class GdsJob(_Writing):
    """``bench gds``: the same into GPU memory."""

    kind: Literal["gds"]
    grid: Word = "gds"

    def words(self) -> list[str]:
        """See ``harness bench gds --help``."""
        return ["bench", "gds", f"--grid={self.grid}"]


class ReplayJob(_Writing):
    """``replay``: a captured trace, which lies on the host, driven against the device."""

    kind: Literal["replay"]
    trace: Word
    mode: Literal["timed", "flat-out"] = "timed"

    def words(self) -> list[str]:
        """See ``harness replay --help``."""
        return ["replay", self.trace, f"--mode={self.mode}"]


class WearJob(_Job):
    """``wear``: a store at the size of a modelled drive; no device is touched."""

    kind: Literal["wear"]
    devices: tuple[()] = ()
    store: Word
    profile: Word = "1tb-0.3dwpd"
    requests: Word = "chat"
    seed: Annotated[int, Field(ge=0)] = 0

    def words(self) -> list[str]:
        """See ``harness wear --help``."""
        return [
            "wear", f"--store={self.store}", f"--profile={self.profile}",
            f"--requests={self.requests}", f"--seed={self.seed}",
        ]  # fmt: skip


class ValidateJob(_Job):
    """``validate``: the ladder of trust; no device is touched."""

    kind: Literal["validate"]
    devices: tuple[()] = ()
    rungs: tuple[Annotated[int, Field(ge=1, le=4)], ...] = ()

    def words(self) -> list[str]:
        """See ``harness validate --help``."""
        return ["validate", *(f"--rung={rung}" for rung in self.rungs)]


class RunJob(_Job):
    """``run``: the whole path, on a loop device of its own."""

    kind: Literal["run"]
    devices: tuple[()] = ()

    def words(self) -> list[str]:
        """See ``harness run --help``."""
        return ["run"]


Job = Annotated[
    BenchJob | GdsJob | ReplayJob | WearJob | ValidateJob | RunJob, Field(discriminator="kind")
]


class Window(Strict):
    """When jobs may run, UTC, such as 22:00 to 06:00; the same time twice is the whole day."""

    start: time
    end: time

    @field_validator("start", "end", mode="before")
    @classmethod
    def _clock(cls, value: object) -> object:
        if not isinstance(value, str) or not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", value):
            raise ValueError('expected a quoted time of day, UTC, such as "22:00"')
        return value

    def closes(self, now: datetime) -> datetime | None:
        """The end of the window that is open at ``now``; None while it is shut."""
        now = now.astimezone(UTC)
        for days in (0, 1):
            opened = datetime.combine(now.date() - timedelta(days=days), self.start, UTC)
            length = (datetime.combine(opened.date(), self.end, UTC) - opened) % timedelta(days=1)
            closing = opened + (length or timedelta(days=1))
            if opened <= now < closing:
                return closing
        return None


class Tolerances(Strict):
    """Share by which figures may move before they count as changed; some by their own."""

    default: Share = 0.05
    metrics: dict[str, Share] = Field(default_factory=dict)


class Inventory(Strict):
    """The whole file."""

    hosts: Annotated[tuple[Host, ...], Field(min_length=1)]
    jobs: Annotated[tuple[Job, ...], Field(min_length=1)]
    window: Window | None = None
    tolerances: Tolerances = Tolerances()

    @model_validator(mode="after")
    def _hang_together(self) -> Self:
        hosts = {host.name: {device.serial for device in host.devices} for host in self.hosts}
        _unique(self.hosts, [host.name for host in self.hosts])
        _unique(self.jobs, [job.name for job in self.jobs])
        for job in self.jobs:
            if strange := sorted(set(job.hosts) - set(hosts)):
                raise ValueError(f"job {job.name}: no such host: {', '.join(strange)}")
            reached = [hosts[name] for name in job.hosts or hosts]
            if lost := sorted(set(job.devices) - set().union(*reached)):
                raise ValueError(f"job {job.name}: no host of it has {', '.join(lost)}")
        return self


def load_inventory(path: Path) -> Inventory:
    """Read ``path``; UsageError names each wrong key."""
    return load_yaml(path, Inventory)


def _unique(items: ItemsT, names: list[str]) -> ItemsT:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"given twice: {', '.join(twice)}")
    return items
