"""What a run of the whole path does; ``workloads/run/*.yaml`` is where people change it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.core.assets import find_yaml
from harness.core.config import Size, Strict, load_yaml

Seconds = Annotated[float, Field(gt=0)]


class RunPlan(Strict):
    """Names are those of ``workloads/`` and ``femu/devices/``; paths to YAML files work too."""

    seed: Annotated[int, Field(ge=0)]
    store: str
    requests: str
    model: str
    device_bytes: Annotated[Size, Field(gt=0)]
    """Size of the loop device that the store runs on; the layouts take one of their own later."""
    emit_seconds: Seconds
    drive: str
    wear_budget_s: Seconds
    """Time for the store re-emitted at the drive's size; "not steady" is said if it is short."""
    wear_captured_budget_s: Seconds
    bench_grid: str


def load_plan(name_or_path: str) -> RunPlan:
    """A plan by bare name in ``workloads/run/`` or by path; UsageError names file and key."""
    return load_yaml(find_yaml("workloads/run", name_or_path), RunPlan)
