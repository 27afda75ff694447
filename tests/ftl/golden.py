"""Access to the counters of real FEMU that ship in ``femu/golden``."""

from __future__ import annotations

import json
from typing import Any

from harness.core.assets import asset_dir
from harness.core.config import validate
from harness.core.profiles import DeviceProfile

GOLDEN: dict[str, Any] = json.loads((asset_dir("femu") / "golden" / "counters.json").read_text())
RUNS: dict[str, dict[str, Any]] = GOLDEN["runs"]


def profile_of(geometry: str) -> DeviceProfile:
    """The drive of a golden geometry."""
    return validate(GOLDEN["geometries"][geometry], DeviceProfile, geometry)
