"""What a damaged result may hold, and where: no report may break on it."""

from __future__ import annotations

import copy
from typing import Any

ODD: tuple[Any, ...] = (
    None, "text", -1, 0, [], {}, [1, "x", None], {"odd": [{}]}, True, float("nan"),
)  # fmt: skip


def spots_of(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in nested objects and lists."""
    found = [path] if path else []
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            found += spots_of(value, (*path, key))
    return found


def damaged(data: Any, spot: tuple[Any, ...], value: Any) -> Any:
    """A copy of ``data`` with ``value`` at ``spot``."""
    result = copy.deepcopy(data)
    inner = result
    for key in spot[:-1]:
        inner = inner[key]
    inner[spot[-1]] = value
    return result
