"""Finding the YAML files of ``workloads/`` by name, with the nearest names on a miss."""

from __future__ import annotations

import difflib
from pathlib import Path

from harness.core.assets import asset_dir, find_yaml
from harness.core.errors import UsageError


def workload_names(kind: str) -> list[str]:
    """Names that exist in ``workloads/<kind>``, sorted."""
    return sorted(path.stem for path in (asset_dir("workloads") / kind).glob("*.yaml"))


def workload_yaml(kind: str, name: str, others: tuple[str, ...] = ()) -> Path:
    """The YAML file of ``name`` in ``workloads/<kind>``, or the file itself if it is a path.

    ``others`` are names that the caller knows besides, for the error of an unknown one.
    """
    if name.endswith((".yaml", ".yml")) or name in workload_names(kind):
        return find_yaml(f"workloads/{kind}", name)
    if "/" in name or Path(name).suffix in (".jsonl", ".json", ".csv", ".gz", ".zst", ".bin"):
        raise UsageError(f"no such file: {name}")
    known = [*others, *workload_names(kind)]
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}?" if near else ""
    raise UsageError(
        f"unknown name {name!r} in workloads/{kind}{'; ' + hint if hint else ''}",
        fix=f"known: {', '.join(known)}",
    )
