"""The shape of a check: what is declared about it, and what looking at the machine gave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """What a probe saw. ``warning`` marks something that works with a caveat in ``detail``.

    ``fix`` replaces the declared one where the probe knows better what is wrong.
    """

    ok: bool
    detail: str
    warning: bool = False
    fix: str | None = None


@dataclass(frozen=True)
class Check:
    """One thing the machine may have or lack.

    ``why`` says what it is good for, ``fix`` how to get it, ``needed_by`` which commands use it.
    ``required`` means that ``harness run`` cannot do without it. ``probe`` looks; it may raise
    OSError, which counts as missing.
    """

    name: str
    why: str
    fix: str
    needed_by: tuple[str, ...]
    probe: Callable[[], Outcome]
    required: bool = False

    def run(self) -> Finding:
        """Look at the machine once."""
        try:
            outcome = self.probe()
        except OSError as error:
            outcome = Outcome(False, f"could not look: {error}")
        return Finding(self, outcome)


@dataclass(frozen=True)
class Finding:
    """A check and what it saw."""

    check: Check
    outcome: Outcome

    @property
    def ok(self) -> bool:
        """Usable, perhaps with a warning."""
        return self.outcome.ok

    @property
    def blocking(self) -> bool:
        """Missing although ``harness run`` needs it."""
        return self.check.required and not self.outcome.ok

    @property
    def fix(self) -> str:
        """The command or action that cures it."""
        return self.outcome.fix or self.check.fix

    def as_json(self) -> dict[str, Any]:
        """The entry of ``checks`` in ``harness doctor --json``."""
        return {
            "name": self.check.name,
            "ok": self.outcome.ok,
            "warning": self.outcome.warning,
            "required": self.check.required,
            "detail": self.outcome.detail,
            "why": self.check.why,
            "fix": self.fix,
            "needed_by": list(self.check.needed_by),
        }
