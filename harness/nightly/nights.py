"""One run as the history keeps it: what was measured, on which device, with which software."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.core.errors import UsageError
from harness.report import Run, build, open_run
from harness.report.model import Level, Section
from harness.report.values import dig, number, text

SOFTWARE = ("kernel", "firmware", "fio", "harness")
"""What may change between two nights and explain a changed figure."""


@dataclass(frozen=True)
class Metric:
    """A figure of one night. ``better`` is 1 where more is better, -1 where less is, else 0."""

    name: str
    value: float
    unit: str
    better: int


@dataclass(frozen=True)
class Night:
    """A recorded run. ``software`` has the keys ``SOFTWARE``, "" where it was not recorded.

    ``good`` is false where the run judged itself bad (LOSSY, WRONG, an exit code that is not 0):
    such a night is kept and shown, and no later night is compared with it.
    """

    run: str
    host: str
    started: datetime
    job: str
    device: str
    good: bool
    software: dict[str, str]
    metrics: tuple[Metric, ...]


def night_of(
    path: Path, *, host: str | None = None, job: str | None = None, device: str | None = None
) -> Night:
    """The finished run in folder ``path``; UsageError for any other folder.

    An inventory's names for ``host``, ``job`` and ``device`` go before the run's own: two jobs may
    differ in nothing that a run's name tells.
    """
    run = open_run(path)
    command = run.record.get("command", "")
    sections = build(run)
    verdicts = [v for section in sections for v in section.verdicts]
    bad = any(v.level is Level.BAD for v in verdicts) or run.record.get("exit_code") != 0
    return Night(
        run=run.name,
        host=host or text(run.record, "host.host") or "unknown",
        started=_started(run),
        job=f"{job}: {command}" if job else f"{command} {run.record.get('name', '')}".strip(),
        device=device or _device(run),
        good=not bad,
        software=_software(run),
        metrics=tuple(_metrics(sections)),
    )


def _started(run: Run) -> datetime:
    try:
        return datetime.fromisoformat(str(run.record["started"])).astimezone(UTC)
    except (KeyError, ValueError) as error:
        raise UsageError(f"{run.path}/run.json: started: expected an ISO time") from error


def _metrics(sections: list[Section]) -> Iterator[Metric]:
    seen: set[str] = set()
    for key in (key for section in sections for key in section.keys):
        value = number(key.cell.exact)
        if value is None or key.label in seen:
            continue
        seen.add(key.label)
        yield Metric(key.label, float(value), key.unit, key.better.value)


def _devices(run: Run) -> Iterator[Any]:
    yield run.record.get("device")
    for result in run.results.values():
        yield result.get("device")
    if run.trace_meta is not None and run.trace_meta.device is not None:
        yield run.trace_meta.device.model_dump()


def _device(run: Run) -> str:
    """Serial, else model, else the bare size: names such as loop3 differ from night to night."""
    found = list(_devices(run))
    for key in ("serial", "model"):
        for device in found:
            if known := text(device, key):
                return known.strip()
    sizes = (number(dig(device, "size_bytes")) for device in found)
    size_bytes = next((size for size in sizes if size), None)
    return f"unnamed, {size_bytes:.0f} bytes" if size_bytes else "unknown"


def _software(run: Run) -> dict[str, str]:
    def first(key: str, places: list[Any]) -> str:
        return next((known for place in places if (known := text(place, key))), "")

    return {
        "kernel": text(run.record, "host.kernel") or "",
        "firmware": first("firmware", list(_devices(run))),
        "fio": first("fio_version", [run.record, *run.results.values()]),
        "harness": text(run.record, "host.harness_commit") or _version(run),
    }


def _version(run: Run) -> str:
    known = text(run.record, "host.harness_version") or ""
    code = text(run.record, "host.harness_code")
    return f"{known} (code {code})" if code else known
