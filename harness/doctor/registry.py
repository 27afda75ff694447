"""All checks in the order people read them, and the ways to run them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.core.errors import MachineError
from harness.core.progress import Progress, quiet
from harness.doctor.checks import block, gpu, guests, kernel, probe, space, tools
from harness.doctor.model import Check, Finding

_DEFAULT_RESULTS = Path("results")


def all_checks(results: Path = _DEFAULT_RESULTS) -> list[Check]:
    """Every declared check; ``results`` is the folder whose free space is looked at."""
    return [
        *kernel.CHECKS,
        *probe.CHECKS,
        *block.CHECKS,
        *tools.CHECKS,
        *space.checks(results),
        *gpu.CHECKS,
        *guests.CHECKS,
    ]


def run_checks(
    checks: Iterable[Check] | None = None, *, progress: Progress = quiet
) -> list[Finding]:
    """Run ``checks`` (all of them if None) one after the other."""
    chosen = list(all_checks() if checks is None else checks)
    findings = []
    for done, check in enumerate(chosen):
        progress(done, len(chosen), check.name)
        findings.append(check.run())
    return findings


def missing(names: Iterable[str], results: Path = _DEFAULT_RESULTS) -> list[Finding]:
    """Those of the named checks that are not ok; KeyError for a name that does not exist."""
    table = {check.name: check for check in all_checks(results)}
    return [found for found in (table[name].run() for name in names) if not found.ok]


def require(*names: str, results: Path = _DEFAULT_RESULTS) -> None:
    """Raise MachineError, with what to do, unless the machine has every named thing."""
    lacking = missing(names, results)
    if not lacking:
        return
    text = "; ".join(f"{f.check.name}: {f.outcome.detail} ({f.check.why})" for f in lacking)
    raise MachineError(
        f"this machine lacks {text}", fix="; ".join(dict.fromkeys(f.fix for f in lacking))
    )
