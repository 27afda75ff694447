"""Which points no other beats on both misses and writes; a policy is never one lucky point."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pyarrow as pa

GROUP = (
    "trace", "lanes", "seed", "model", "checkpoint", "dram_bytes", "ssd_bytes", "on_ssd_hit",
    "replays", "warmup",
)  # fmt: skip
"""Points that agree in these are comparable."""

_SHOWN = (*GROUP, "structure", "policy", "label", "parameters", "miss", "written_bytes")


def frontier(records: pa.Table) -> list[dict[str, Any]]:
    """Every point that could be played, with ``on_frontier``: by group, then policy, then miss.

    A point is on the frontier of its group if no other misses less and writes no more, or writes
    less and misses no more.
    """
    played = [row for row in records.to_pylist() if row["error"] is None]
    found: list[dict[str, Any]] = []
    for _, group in groupby(sorted(played, key=_group), key=_group):
        rows = sorted(group, key=lambda row: (row["miss"], row["written_bytes"]))
        best = _best(rows)
        marked = [
            {**{name: row[name] for name in _SHOWN}, "on_frontier": row["key"] in best}
            for row in rows
        ]
        found += sorted(marked, key=lambda row: (row["label"], row["miss"]))
    return found


def _group(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in GROUP)


def _best(rows: list[dict[str, Any]]) -> set[str]:
    """Keys of the frontier of rows in order of miss, then writes."""
    keys: set[str] = set()
    least, last = float("inf"), None
    for row in rows:
        here = (row["miss"], row["written_bytes"])
        if row["written_bytes"] < least or here == last:
            keys.add(row["key"])
            least, last = row["written_bytes"], here
    return keys
