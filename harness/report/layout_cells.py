"""What the cells of a layout benchmark are called and how they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.core.units import format_size
from harness.report.values import cell, number, records, text

CONTIGUOUS = "session-contiguous"
COUNTS = ("context_tokens", "turns", "sessions", "queue_depth", "threads", "age", "chunk_tokens")
DIMENSIONS = {
    "layout": "layout",
    "pattern": "pattern",
    "direction": "direction",
    "model": "model",
    "context_tokens": "context",
    "turns": "turns",
    "sessions": "sessions",
    "age": "age",
    "chunk_tokens": "chunk",
    "access": "access",
    "queue_depth": "depth",
    "threads": "threads",
    "engine": "engine",
    "transport": "transport",
    "background_writes": "background writes",
}
"""Parameters of a cell in the order people read them, and their words."""

Cells = Sequence[dict[str, Any]]

LEAST_SIZES = 3
"""Fewer sizes of requests are no curve."""


def measured(bench: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Cells with a bandwidth."""
    return [c for c in records(bench, "cells") if gbps(c) is not None]


def gbps(found: dict[str, Any]) -> float | None:
    """Median bandwidth of a cell, GB/s."""
    return number(found, "gbps.median") or number(found, "gbps")


def errors(found: dict[str, Any]) -> tuple[float, float]:
    """How far the interval of a cell's bandwidth reaches below and above its median, GB/s."""
    median = gbps(found) or 0.0
    low, high = number(found, "gbps.low"), number(found, "gbps.high")
    return (
        max(0.0, median - low) if low is not None else 0.0,
        max(0.0, high - median) if high is not None else 0.0,
    )


def slowdowns(bench: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The benchmark's own comparisons: time over the contiguous layout's, with its interval."""
    return [c for c in records(bench, "comparisons") if number(c, "slowdown.median")]


def worst(bench: dict[str, Any] | None) -> dict[str, Any] | None:
    """The comparison with the largest slowdown; None if nothing was compared."""
    return max(slowdowns(bench), key=lambda c: number(c, "slowdown.median") or 0, default=None)


def varying(cells: Cells, but: Sequence[str] = ()) -> list[str]:
    """Dimensions in which ``cells`` differ."""
    return [
        key for key in DIMENSIONS
        if key not in but and len({str(c.get(key)) for c in cells}) > 1
    ]  # fmt: skip


def fixed(cells: Cells) -> str:
    """Dimensions in which they do not, in words."""
    same = [key for key in DIMENSIONS if key not in varying(cells)]
    return ", ".join(word(c, key) for c in cells[:1] for key in same if c.get(key) is not None)


def label(found: dict[str, Any], among: Cells) -> str:
    """A name that tells a cell from the others of its kind, placed by a layout or plain."""
    kind = [c for c in among if bool(text(c, "layout")) == bool(text(found, "layout"))]
    keys = varying(kind, but=("layout", "pattern"))
    first = text(found, "layout") or text(found, "pattern") or "cell"
    request = number(found, "request_bytes")
    if not text(found, "layout") and request and len({c.get("request_bytes") for c in kind}) > 1:
        first += f" {format_size(request)}"
    return ", ".join([first, *(word(found, key) for key in keys if found.get(key) is not None)])


def word(found: dict[str, Any], key: str) -> str:
    """One parameter of a cell, ``64K tokens`` or ``depth 32``."""
    value, context = found.get(key), number(found, "context_tokens")
    if key == "context_tokens" and context is not None:
        return tokens(context)
    if key == "background_writes":
        return "beside writes" if value else "quiet"
    shown = cell(value).text
    return f"{DIMENSIONS[key]} {shown}" if key in COUNTS else shown


def tokens(context: float) -> str:
    """A context length, ``64K tokens``."""
    return f"{context / 1024:.0f}K tokens" if context >= 1024 else f"{context:.0f} tokens"
