"""What ``trace info`` shows: a trace's metadata and its extent."""

from __future__ import annotations

from typing import Any

from harness.core.units import format_duration, format_size
from harness.trace.merging import times
from harness.trace.parquet import Trace
from harness.trace.schema import SCHEMA
from harness.trace.source import Source


def summarise(source: Source) -> dict[str, Any]:
    """Rows, duration, columns and metadata of ``source``; reads its times to the end."""
    rows, last_ns = 0, 0
    for batch in source.batches(["ts_ns"]):
        if batch.num_rows:
            rows += batch.num_rows
            last_ns = int(times(batch)[-1])
    return {
        "path": str(source.path),
        "rows": rows,
        "duration_s": last_ns / 1e9 if source.meta.has_clock else None,
        "file_bytes": source.size_bytes if isinstance(source, Trace) else _size(source),
        "columns": source.columns,
        "meta": source.meta.model_dump(mode="json"),
    }


def _size(source: Source) -> int:
    return source.path.stat().st_size


def rows_of(data: dict[str, Any]) -> list[tuple[str, str]]:
    """The summary as (label, text) lines; what is not known says so."""
    meta = data["meta"]
    duration = data["duration_s"]
    lines = [
        ("trace", data["path"]),
        ("format", meta["source"]),
        ("requests", f"{data['rows']:,}"),
        ("duration", "no clock" if duration is None else format_duration(duration)),
        ("file", format_size(data["file_bytes"])),
        ("verdict", meta["verdict"] or "none"),
        ("events seen", _count(meta["events_seen"])),
        ("events lost", _count(meta["events_lost"])),
        ("completions lost", _count(meta["completions_lost"])),
        ("device", _device(meta["device"])),
    ]
    for label in ("host", "kernel", "command", "started"):
        lines.append((label, meta[label] or "not said"))
    extra = [name for name in data["columns"] if name not in SCHEMA.names]
    lines.append(("optional columns", ", ".join(extra) or "none"))
    lines += [("note", note) for note in meta["notes"]]
    lines += [("transform", step) for step in meta["history"]]
    return lines


def _count(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"


def _device(device: dict[str, Any] | None) -> str:
    if device is None:
        return "not said"
    size = device["size_bytes"]
    parts = [device["name"], device["model"], None if size is None else format_size(size)]
    if device["logical_block"] is not None:
        parts.append(f"{device['logical_block']}-byte blocks")
    if device["max_sectors_kb"] is not None:
        parts.append(f"max {device['max_sectors_kb']} KiB a request")
    return ", ".join(part for part in parts if part) or "not said"
