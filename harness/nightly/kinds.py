"""The kinds of jobs, and the commands that each is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from harness.core.config import Strict

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
"""A word that may stand in a file name."""

Word = Annotated[str, Field(pattern=r"^[^-\s][^\x00-\x1f]*$")]
"""An argument that no command can take for an option."""

Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True)
class Call:
    """How commands are called on a host: the harness, its results, a device by path and serial."""

    harness: str
    results: str
    path: str = ""
    serial: str = ""

    def command(self, *words: str) -> list[str]:
        """A command that leaves a run folder and overwrites the device, if there is one."""
        found = [self.harness, *words, f"--results={self.results}", "--json"]
        return found + self.device if self.path else found

    @property
    def device(self) -> list[str]:
        """The device named twice."""
        return [f"--device={self.path}", f"--destroy={self.serial}"]


CAPTURED = "<captured trace>"
"""Stands for the trace that an earlier step of the same job captured."""


class _Job(Strict, ABC):
    name: Name
    hosts: tuple[Name, ...] = ()
    devices: tuple[Word, ...] = ()
    minutes: Annotated[float, Field(gt=0, le=24 * 60)] = 120

    @property
    def writes(self) -> bool:
        """Whether the job overwrites its devices."""
        return False

    @abstractmethod
    def steps(self, call: Call) -> list[list[str]]:
        """Its commands, one after another."""


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

    def steps(self, call: Call) -> list[list[str]]:
        """See ``harness bench layout --help``."""
        return [call.command("bench", "layout", f"--grid={self.grid}")]


class GdsJob(_Writing):
    """``bench gds``: the same into GPU memory; without a GPU that is reported as not measured."""

    kind: Literal["gds"]
    grid: Word = "gds"

    def steps(self, call: Call) -> list[list[str]]:
        """See ``harness bench gds --help``."""
        return [call.command("bench", "gds", f"--grid={self.grid}")]


class _Replaying(_Writing):
    mode: Literal["timed", "flat-out"] = "timed"
    speed: Positive | None = None

    @model_validator(mode="after")
    def _speed_needs_times(self) -> Self:
        if self.speed is not None and self.mode != "timed":
            raise ValueError("speed means nothing flat out, where there are no times to keep")
        return self

    def replay(self, call: Call, trace: str) -> list[str]:
        """See ``harness replay --help``."""
        speed = [] if self.speed is None else [f"--speed={self.speed}"]
        return call.command("replay", trace, f"--mode={self.mode}", *speed)


class ReplayJob(_Replaying):
    """``replay``: a captured trace, which lies on the host, driven against the device."""

    kind: Literal["replay"]
    trace: Word

    def steps(self, call: Call) -> list[list[str]]:
        """See ``harness replay --help``."""
        return [self.replay(call, self.trace)]


class CaptureReplayJob(_Replaying):
    """A modelled store on the device under the probe, then its trace against the same device."""

    kind: Literal["capture-replay"]
    store: Word = "lmcache-raw-block"
    requests: Word = "chat"
    model: Word = "llama-3.1-8b-tp8"
    seed: Annotated[int, Field(ge=0)] = 0
    seconds: Positive = 30.0

    def steps(self, call: Call) -> list[list[str]]:
        """See ``harness capture --help`` and ``harness emit --help``."""
        store = [
            call.harness, "emit", f"--store={self.store}", f"--requests={self.requests}",
            f"--model={self.model}", f"--seed={self.seed}", f"--seconds={self.seconds}",
        ]  # fmt: skip
        capture = [
            call.harness, "capture", f"--device={call.path}", f"--results={call.results}", "--json",
        ]  # fmt: skip
        return [[*capture, "--", *store, *call.device], self.replay(call, CAPTURED)]


class WearJob(_Job):
    """``wear``: a store at the size of a modelled drive; no device is touched."""

    kind: Literal["wear"]
    devices: tuple[()] = ()
    store: Word
    profile: Word = "1tb-0.3dwpd"
    requests: Word = "chat"
    model: Word = "llama-3.1-8b"
    seed: Annotated[int, Field(ge=0)] = 0
    policies: tuple[Word, ...] = ()
    utilisation: Annotated[float, Field(gt=0, le=1)] = 1.0
    budget_s: Annotated[float, Field(ge=1)] | None = None

    def steps(self, call: Call) -> list[list[str]]:
        """See ``harness wear --help``."""
        words = [
            f"--store={self.store}", f"--profile={self.profile}", f"--requests={self.requests}",
            f"--model={self.model}", f"--seed={self.seed}", f"--utilisation={self.utilisation}",
            *(f"--policy={policy}" for policy in self.policies),
        ]  # fmt: skip
        limit = [] if self.budget_s is None else [f"--budget={self.budget_s}"]
        return [call.command("wear", *words, *limit)]


class ValidateJob(_Job):
    """``validate``: the ladder of trust; no device is touched."""

    kind: Literal["validate"]
    devices: tuple[()] = ()
    rungs: tuple[Annotated[int, Field(ge=1, le=4)], ...] = ()
    profile: Word = "1tb-0.3dwpd"
    budget_s: Positive = 60.0

    def steps(self, call: Call) -> list[list[str]]:
        """See ``harness validate --help``."""
        rungs = [f"--rung={rung}" for rung in self.rungs]
        words = [*rungs, f"--profile={self.profile}", f"--budget={self.budget_s}"]
        return [call.command("validate", *words)]


class RunJob(_Job):
    """``run``: the whole path, on a loop device of its own."""

    kind: Literal["run"]
    devices: tuple[()] = ()

    def steps(self, call: Call) -> list[list[str]]:
        """See ``harness run --help``."""
        return [call.command("run")]


Job = Annotated[
    BenchJob | GdsJob | ReplayJob | CaptureReplayJob | WearJob | ValidateJob | RunJob,
    Field(discriminator="kind"),
]
