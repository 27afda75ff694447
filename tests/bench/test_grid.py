"""What a grid may say, and what the shipped ones do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.bench.grid import groups, load_grid
from harness.bench.layout import loop_bytes
from harness.core.assets import asset_dir
from harness.core.errors import UsageError
from tests.bench.test_layout import LAYOUT


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settle": 0}, "settle"),
        ({"speed": 3}, "unknown key"),
        ({"reference_bytes": "-1"}, "reference_bytes"),
        ({"layouts": [{**LAYOUT, "context_tokens": []}]}, r"layouts\.0\.context_tokens"),
        ({"layouts": [{**LAYOUT, "access": ["sideways"]}]}, r"layouts\.0\.access"),
        ({"layouts": [{**LAYOUT, "read_bytes": 1000}]}, r"layouts\.0\.read_bytes"),
        ({"layouts": [{**LAYOUT, "stores": ["kvbm", "kvbm"]}]}, "the same value twice"),
    ],
)
def test_mistakes_in_a_grid_are_named(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(yaml.safe_dump({"name": "mine", "layouts": [LAYOUT], **change}))
    with pytest.raises(UsageError, match=words):
        load_grid(str(path))


def test_the_shipped_grids_load_and_unfold() -> None:
    for path in sorted((asset_dir("workloads") / "bench").glob("*.yaml")):
        wanted = load_grid(path.stem)
        assert wanted.repeats >= 5
        assert all(group.reads for group in groups(wanted))
    quick = load_grid("quick")
    assert quick.budget_s is not None and quick.budget_s <= 25
    assert loop_bytes(quick) < 1.5 * 2**30
