"""When a trace started: shifting it, and the common clock of several traces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from harness.core.errors import UsageError
from harness.trace.schema import TraceMeta, utc

Align = Literal["auto", "clock", "started", "start"]


def started_ns(meta: TraceMeta) -> int | None:
    """``meta.started`` in ns since 1970; None where it is not said. Keeps nine decimals."""
    if meta.started is None:
        return None
    match = re.fullmatch(r"([0-9T:-]{19})(?:\.(\d{1,9}))?(Z|\+00:00)", meta.started)
    if match is None:
        raise UsageError(f"the trace's start is not a UTC time: {meta.started!r}")
    seconds = int(datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp())
    return seconds * 1_000_000_000 + int((match[2] or "0").ljust(9, "0"))


def shifted_start(meta: TraceMeta, by_ns: int) -> TraceMeta:
    """``meta`` of a trace whose ts_ns 0 lies ``by_ns`` later than before."""
    start, zero = started_ns(meta), meta.clock_zero_ns
    return meta.model_copy(
        update={
            "started": None if start is None else utc(start + by_ns),
            "clock_zero_ns": None if zero is None else zero + by_ns,
        }
    )


def common_offsets(metas: Sequence[TraceMeta], align: Align) -> tuple[list[int], str]:
    """How many ns after the earliest each trace starts, and what that was taken from.

    ``clock``: the recorder's clock, for traces of one host; ``started``: wall-clock start;
    ``start``: all start together; ``auto``: the first of clock and started that all have, clock
    only where all name the same host. UsageError where the metadata does not say.
    """
    zeros = [meta.clock_zero_ns for meta in metas]
    starts = [started_ns(meta) for meta in metas]
    same_host = len({meta.host for meta in metas}) == 1 and metas[0].host is not None
    if align == "start":
        return [0] * len(metas), "all start together"
    if align == "clock" or (align == "auto" and same_host and None not in zeros):
        known = [zero for zero in zeros if zero is not None]
        what = "recorder's clock"
    else:
        known = [start for start in starts if start is not None]
        what = "wall clock"
    if len(known) < len(metas):
        raise UsageError(
            f"{len(metas) - len(known)} of the traces do not say when they started ({what})",
            fix="--align start lets all start together",
        )
    return [value - min(known) for value in known], what
