"""Grids: every combination of what is varied."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def combinations(axes: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of one value of each axis, the last axis fastest; one, {}, of no axes."""
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))
