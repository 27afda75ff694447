"""Samples as they come, one JSON line each, so that an interrupted benchmark can go on."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from harness.bench.cells import Sample
from harness.core.errors import UsageError

NAME = "samples.jsonl"


class Journal:
    """The samples of a run by cell and round; appended to a file if there is one.

    ``key`` identifies grid and device: samples of another key cannot be continued.
    """

    def __init__(self, key: dict[str, Any], path: Path | None = None) -> None:
        self._samples: dict[str, dict[tuple[int, int], Sample]] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self._load: dict[str, dict[int, dict[str, Any]]] = {}
        self._file: TextIO | None = None
        if path is None:
            return
        if path.exists():
            self._read(path, key)
        self._file = path.open("a", encoding="utf-8")
        if self._file.tell() == 0:
            self._line({"key": key})

    def add(self, cell: str, group: int, number: int, sample: Sample) -> None:
        """Record a sample; it is on disk when this returns."""
        self._samples.setdefault(cell, {})[group, number] = sample
        self._line({"cell": cell, "group": group, "round": number, **asdict(sample)})

    def describe(self, cell: str, facts: dict[str, Any]) -> None:
        """Record a cell's parameters and counts."""
        if self.facts.get(cell) != facts:
            self.facts[cell] = facts
            self._line({"cell": cell, "facts": facts})

    def has(self, cell: str, group: int, number: int) -> bool:
        """Whether that sample was already taken."""
        return (group, number) in self._samples.get(cell, {})

    def of(self, cell: str) -> dict[tuple[int, int], Sample]:
        """All samples of a cell, by (group, round), in that order."""
        return dict(sorted(self._samples.get(cell, {}).items()))

    def add_load(self, point: str, number: int, record: dict[str, Any]) -> None:
        """Record one repeat of a point of a load sweep."""
        self._load.setdefault(point, {})[number] = record
        self._line({"load": point, "round": number, "record": record})

    def has_load(self, point: str, number: int) -> bool:
        """Whether that repeat was already run."""
        return number in self._load.get(point, {})

    def load_of(self, point: str) -> list[dict[str, Any]]:
        """The repeats of a point in order."""
        return [record for _, record in sorted(self._load.get(point, {}).items())]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _line(self, record: dict[str, Any]) -> None:
        if self._file is None:
            return
        self._file.write(json.dumps(record, allow_nan=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, path: Path, key: dict[str, Any]) -> None:
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if len(whole) < len(text):  # the line that was being written when the run ended
            os.truncate(path, len(whole.encode()))
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                record = json.loads(line)
                if "key" in record:
                    self._check_key(path, record["key"], key)
                    continue
                if "facts" in record:
                    self.facts[record["cell"]] = record["facts"]
                    continue
                if "load" in record:
                    point = self._load.setdefault(record["load"], {})
                    point[record["round"]] = record["record"]
                    continue
                cell, group, repeat = (record.pop(name) for name in ("cell", "group", "round"))
                self._samples.setdefault(cell, {})[group, repeat] = Sample(**record)
            except (ValueError, KeyError, TypeError) as error:
                raise UsageError(f"{path}:{number}: not a sample: {error}") from error

    @staticmethod
    def _check_key(path: Path, found: Any, expected: dict[str, Any]) -> None:
        if found != json.loads(json.dumps(expected)):
            raise UsageError(
                f"{path} belongs to another grid or device: it cannot be continued",
                fix="give the grid, device and options of that run (its run.json has them)",
            )
