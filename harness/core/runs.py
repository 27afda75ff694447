"""Run folders: ``results/<UTC time>-<command>-<name>/``, whole or visibly ``.partial``."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.core.errors import HarnessError, UsageError
from harness.core.files import write_json
from harness.core.host import host_facts
from harness.core.ownership import give, owner

SCHEMA_VERSION = 1


class RunFolder:
    """A run being written. Use as a context manager.

    Inside the block ``path`` is the ``.partial`` folder; leaving it cleanly writes ``run.json``
    and renames the folder to ``final``. An exception leaves the folder ``.partial``, with a
    ``run.json`` that names the error, so that it can never be taken for a result. What root
    makes belongs to whom the folder of results, or the one above it, belongs.
    """

    def __init__(
        self, results: Path, command: str, name: str, config: Mapping[str, Any] | None = None
    ) -> None:
        self.started = datetime.now(UTC)
        stem = f"{self.started:%Y%m%dT%H%M%S.%fZ}-{command}-{_slug(name)}"
        self.final = results / stem
        self.path = results / f"{stem}.partial"
        self._clock = time.monotonic()
        self._owner = owner(results)
        self.exit_code = 0
        self.record: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "command": command,
            "name": name,
            "command_line": sys.argv,
            "started": self.started.isoformat(),
            "config": dict(config or {}),
            "host": host_facts(),
        }

    def __enter__(self) -> RunFolder:
        try:
            self.path.mkdir(parents=True)
            if os.geteuid() == 0 and owner(self.path.parent) != self._owner:
                os.chown(self.path.parent, *self._owner)
        except OSError as error:
            raise UsageError(
                f"cannot make a run folder in {self.path.parent}: {error.strerror}",
                fix="give another folder with --results DIR",
            ) from error
        self._write("running")
        return self

    def add(self, **facts: Any) -> None:
        """Put facts into ``run.json``; the file is rewritten, so a crash keeps them."""
        self.record.update(facts)
        self._write("running")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._write("done")
            self.path.rename(self.final)
            self.path = self.final
            return
        self.exit_code = 130 if isinstance(error, KeyboardInterrupt) else 1
        if isinstance(error, HarnessError):
            self.exit_code = error.exit_code
        self.record["error"] = f"{type(error).__name__}: {error}"
        try:
            self._write("interrupted" if self.exit_code == 130 else "failed")
        except OSError as second:
            print(f"note: {self.path}/run.json not written: {second}", file=sys.stderr)

    def _write(self, state: str) -> None:
        self.record["state"] = state
        self.record["exit_code"] = None if state == "running" else self.exit_code
        self.record["duration_s"] = time.monotonic() - self._clock
        write_json(self.path / "run.json", self.record)
        if state != "running":
            give(self.path, self._owner)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"


def load_run(path: Path) -> dict[str, Any]:
    """``run.json`` of a finished run; UsageError for a partial one or another folder."""
    if path.name.endswith(".partial"):
        raise UsageError(f"{path} is an interrupted run, not a result")
    try:
        record: dict[str, Any] = json.loads((path / "run.json").read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not a run folder (no readable run.json)") from error
    return record


def newest_run(results: Path, command: str | None = None) -> Path | None:
    """The newest finished run in ``results``, of ``command`` if given; None if there is none."""
    if not results.is_dir():
        return None
    runs = sorted(
        p
        for p in results.iterdir()
        if (p / "run.json").is_file() and not p.name.endswith(".partial")
    )
    if command is not None:
        runs = [p for p in runs if p.name.partition("-")[2].startswith(f"{command}-")]
    return runs[-1] if runs else None
