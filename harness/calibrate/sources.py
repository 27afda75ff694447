"""Run folders as the source of a calibration: which files, from which host and device."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.calibrate.counters import REPLAY_FILES
from harness.core.errors import UsageError
from harness.core.runs import load_run

BENCH_FILES = ("bench.json", "gds.json")
WEAR_FILES = ("wear.json", "wear-captured.json")
READ = (*BENCH_FILES, *WEAR_FILES, *REPLAY_FILES, "capture.json", "validate.json")
"""What is taken from a run folder, where it is there."""


@dataclass(frozen=True)
class Source:
    """One run: its ``run.json`` and the results beside it, parsed, with their hashes."""

    path: Path
    record: dict[str, Any]
    results: dict[str, Any]
    hashes: dict[str, str]

    @property
    def name(self) -> str:
        """The folder's name, as it will be when the run is complete."""
        return self.path.name.removesuffix(".partial")

    @property
    def started(self) -> datetime:
        """Start of the run."""
        return datetime.fromisoformat(self.record["started"])


def read_source(path: Path, *, unfinished: bool = False) -> Source:
    """A run folder; UsageError for what is none, or a result file that is cut off.

    ``unfinished`` accepts the folder of a run that is still going on, for the run itself.
    """
    record = _json(path / "run.json") if unfinished else load_run(path)
    results, hashes = {}, {}
    for name in READ:
        file = path / name
        if file.is_file():
            results[name] = _json(file)
            hashes[name] = hashlib.sha256(file.read_bytes()).hexdigest()
    if not set(results) & {*BENCH_FILES, *WEAR_FILES, *REPLAY_FILES}:
        wanted = ", ".join((*BENCH_FILES, *WEAR_FILES, *REPLAY_FILES))
        raise UsageError(f"{path} holds nothing to calibrate from (none of {wanted})")
    return Source(path, record, results, hashes)


def one_host(sources: Sequence[Source]) -> dict[str, Any]:
    """The facts of the one host that all runs share; UsageError if they do not."""
    found = {source.record["host"]["host"]: source for source in sources}
    if len(found) > 1:
        raise UsageError(
            f"the runs come from different hosts ({', '.join(sorted(found))}): "
            "a calibration describes one"
        )
    newest: dict[str, Any] = max(sources, key=lambda source: source.started).record["host"]
    return newest


def one_device(sources: Sequence[Source]) -> dict[str, Any] | None:
    """The facts of the one device that was benchmarked, or None; UsageError for two.

    Loop devices are made anew for every run; those of one host count as one stand-in.
    """
    devices: dict[str, tuple[dict[str, Any], str]] = {}
    for source in sources:
        for name in BENCH_FILES:
            device = source.results.get(name, {}).get("device")
            if device:
                devices.setdefault(_identity(device), (device, source.name))
    if len(devices) > 1:
        listed = "; ".join(f"{run}: {what}" for what, (_, run) in sorted(devices.items()))
        raise UsageError(f"the runs measured different devices ({listed})")
    return next(iter(devices.values()))[0] if devices else None


def _identity(device: dict[str, Any]) -> str:
    if device_kind(device) == "loop":
        return "loop device"
    words = (device.get("model"), device.get("serial") or device.get("wwid"))
    named = " ".join(str(word) for word in words if word)
    return f"{named or device['name']}, {device['size_bytes']} bytes"


def device_kind(device: dict[str, Any]) -> str:
    """nvme, loop, scsi, virtio … by the kernel's name of it."""
    name = str(device["name"])
    for prefix, kind in (("nvme", "nvme"), ("loop", "loop"), ("sd", "scsi"), ("vd", "virtio")):
        if name.startswith(prefix):
            return kind
    return name.rstrip("0123456789")


def parse_time(text: str) -> datetime:
    """An ISO time; UTC where it does not say."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is cut off or not JSON: {error}") from error
    if not isinstance(data, dict):
        raise UsageError(f"{path}: expected an object")
    return data
