"""Every combination of what is varied."""

from __future__ import annotations

from harness.core.grids import combinations


def test_the_last_axis_is_fastest_and_no_axes_are_one_point() -> None:
    assert list(combinations({"a": [1, 2], "b": "xy"})) == [
        {"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"},
    ]  # fmt: skip
    assert list(combinations({})) == [{}]
    assert list(combinations({"a": [], "b": [1]})) == []
