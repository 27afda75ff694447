"""Rung 1 without FEMU: the model against counters that real FEMU gave (``femu/golden``)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from harness.core.assets import asset_dir
from harness.core.config import validate
from harness.core.ops import Op
from harness.core.profiles import DeviceProfile
from harness.core.progress import Progress, quiet
from harness.ftl import Ftl
from harness.ftl.workloads import OpList, golden_ops
from harness.validate.rung import Rung, Verdict

_TAG, _OPS, _HOST, _GC = range(4)


@dataclass(frozen=True)
class GoldenRun:
    """One op list, the drive it ran on, and what FEMU counted: (tag, host pages, GC pages)."""

    name: str
    profile: DeviceProfile
    record: dict[str, Any]

    @property
    def expected(self) -> list[tuple[int, int, int]]:
        """FEMU's counters at every snapshot that is in the op list."""
        inside = self.record["snapshots"]
        tags = set(_tags(self.ops()))
        return [(s[_TAG], s[_HOST], s[_GC]) for s in inside if s[_TAG] in tags]

    def ops(self) -> OpList:
        """The op list, made again from its generator."""
        record = self.record
        return golden_ops(record["generator"], record["capacity_used_bytes"], record["args"])


def golden_runs() -> list[GoldenRun]:
    """Every recorded run of real FEMU, fewest commands first."""
    data = json.loads((asset_dir("femu") / "golden" / "counters.json").read_text())
    profiles = {
        name: validate(geometry, DeviceProfile, f"femu/golden {name}")
        for name, geometry in data["geometries"].items()
    }
    runs = [GoldenRun(n, profiles[r["geometry"]], r) for n, r in data["runs"].items()]
    return sorted(runs, key=lambda run: int(run.record["records"]))


def model_counters(profile: DeviceProfile, ops: OpList) -> list[tuple[int, int, int]]:
    """(tag, host pages, GC pages) of the model at every SNAP of ``ops``."""
    snapshots = Ftl(profile).apply(ops.offset, ops.length, ops.op)
    return [(snap.tag or 0, snap.host_pages, snap.gc_pages) for snap in snapshots]


def model_equals_golden(progress: Progress = quiet) -> Rung:
    """All golden runs through the model, host and GC pages at every snapshot, exactly."""
    runs = golden_runs()
    agreed, snapshots, first = 0, 0, None
    for number, run in enumerate(runs):
        progress(number, len(runs), run.name)
        expected, measured = run.expected, model_counters(run.profile, run.ops())
        snapshots += len(expected)
        if measured == expected:
            agreed += 1
        elif first is None:
            first = _first_difference(run.name, expected, measured)
    return Rung(
        1,
        "FTL model = recorded FEMU runs (host and GC pages, every snapshot)",
        {"runs": len(runs), "snapshots": snapshots},
        {"runs": agreed, "snapshots": snapshots if agreed == len(runs) else None},
        Verdict.AGREES if agreed == len(runs) else Verdict.DIFFERS,
        first or "FEMU at 99ce4fb2b, counters in femu/golden",
    )


def _first_difference(
    name: str, expected: list[tuple[int, int, int]], measured: list[tuple[int, int, int]]
) -> str:
    pairs = zip(expected, measured, strict=False)
    for left, right in pairs:
        if left != right:
            return f"{name}: (tag, host, GC) is {right}, FEMU counted {left}"
    return f"{name}: {len(measured)} snapshots, FEMU gave {len(expected)}"


def _tags(ops: OpList) -> list[int]:

    return [int(tag) for tag in ops.offset[ops.op == Op.SNAP]]
