"""A run folder as the report reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.core.errors import UsageError
from harness.core.progress import Progress, quiet
from harness.core.runs import load_run
from harness.report.bins import TraceBins, bin_trace
from harness.report.values import dig, text
from harness.trace.parquet import open_trace
from harness.trace.schema import TraceMeta

FILES = (
    "emit",
    "capture",
    "replay-timed",
    "replay-flat-out",
    "replay",
    "wear",
    "wear-captured",
    "bench",
    "gds",
    "validate",
    "calibration",
    "simulate",
)
"""Results that a run may hold, each ``NAME.json`` as its command prints it under ``--json``."""


@dataclass(frozen=True)
class Run:
    """A finished run: its record, its results by name, its trace.

    ``problems`` names files that are there but cannot be used.
    """

    path: Path
    record: dict[str, Any]
    results: dict[str, Any]
    problems: tuple[str, ...]
    trace_path: Path | None
    progress: Progress = field(default=quiet, compare=False)

    @property
    def name(self) -> str:
        """Name of the folder, also while it is still being written."""
        return self.path.name.removesuffix(".partial")

    def get(self, name: str) -> dict[str, Any] | None:
        """The JSON object of ``NAME.json``, None where the run has none."""
        return self.results.get(name)

    def why_absent(self, name: str) -> str:
        """Why the run has no ``NAME.json``, as far as ``run.json`` says."""
        said = text(self.record, f"skipped.{name}") or text(self.record, f"not_done.{name}")
        return said or f"this run has no {name}.json"

    @cached_property
    def bins(self) -> TraceBins | None:
        """The trace, binned in one pass and kept; None without a readable trace."""
        if self.trace_path is None:
            return None
        return bin_trace(open_trace(self.trace_path), self.progress)

    @cached_property
    def trace_meta(self) -> TraceMeta | None:
        """Metadata of the trace."""
        return open_trace(self.trace_path).meta if self.trace_path else None

    @cached_property
    def device(self) -> str:
        """The device as figures name it: name, model, size as far as known."""
        meta = self.trace_meta.device if self.trace_meta else None
        found = meta.model_dump() if meta else dig(self.record, "device")
        return describe_device(found) or "device not recorded"


def describe_device(device: Any) -> str:
    """``{name, model, size_bytes}`` as ``loop0 (2.00 GiB)``; a string is taken as it is."""
    from harness.report.values import size

    if isinstance(device, str):
        return device
    parts = [text(device, "name") or text(device, "path"), text(device, "model")]
    shown = " ".join(part for part in parts if part)
    capacity = size(dig(device, "size_bytes"))
    return f"{shown} ({capacity.text})" if capacity.exact is not None and shown else shown


def open_run(path: Path, progress: Progress = quiet) -> Run:
    """Read a run folder; UsageError for another folder or an interrupted run."""
    return read_run(path, load_run(path), progress)


def read_run(path: Path, record: dict[str, Any], progress: Progress = quiet) -> Run:
    """The run in ``path`` with ``record`` as its ``run.json``, also while it is being written."""
    results: dict[str, Any] = {}
    problems: list[str] = []
    for name in FILES:
        file = path / f"{name}.json"
        if not file.exists():
            continue
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            problems.append(f"{file.name} cannot be read: {error}")
            continue
        if isinstance(data, dict):
            results[name] = data
        else:
            problems.append(f"{file.name} is not a JSON object")
    trace = _trace(path, problems)
    return Run(path, record, results, tuple(problems), trace, progress)


def _trace(path: Path, problems: list[str]) -> Path | None:
    file = path / "trace.parquet"
    if not file.exists() and not file.with_name("trace.parquet.parts").exists():
        return None
    try:
        open_trace(file)
    except UsageError as error:
        problems.append(f"trace.parquet cannot be read: {error}")
        return None
    return file
