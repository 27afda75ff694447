"""``nightly.yaml``: which hosts, which of their drives, which jobs, when, and how exact.

Nothing secret is in it: keys come from an SSH agent or from ``~/.ssh``, and a key such as
``password`` is an error like any unknown one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from harness.core.config import Strict, load_yaml
from harness.nightly.kinds import Job, Name, Word

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

    ``sudo`` puts ``sudo -n`` before the commands. ``harness`` is the path of an installed harness
    that must be the same as here; without it one is sent if none is there, into an environment
    made by ``python``.
    """

    name: Name
    address: Word = ""
    sudo: bool = False
    harness: Word | None = None
    python: Word = "python3"
    devices: tuple[Device, ...] = ()

    @property
    def destination(self) -> str:
        """Where to connect."""
        return self.address or self.name

    @field_validator("devices")
    @classmethod
    def _once(cls, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        return _unique(devices, [device.serial for device in devices])


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
    """The whole file. ``wheels`` is a folder here, relative to the file, whose wheels are sent to
    hosts that reach no package index."""

    hosts: Annotated[tuple[Host, ...], Field(min_length=1)]
    jobs: Annotated[tuple[Job, ...], Field(min_length=1)]
    wheels: Word | None = None
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
    loaded = load_yaml(path, Inventory)
    if loaded.wheels is None:
        return loaded
    return loaded.model_copy(update={"wheels": str(path.resolve().parent / loaded.wheels)})


def _unique(items: ItemsT, names: list[str]) -> ItemsT:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"given twice: {', '.join(twice)}")
    return items
