"""Much that lacks something for few reasons, said in few lines."""

from __future__ import annotations

from collections.abc import Iterable


def by_reason(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """(what, reason) pairs with each reason once, in order; of many only the first is named."""
    found: dict[str, list[str]] = {}
    for what, reason in pairs:
        found.setdefault(reason, []).append(what)
    return [
        (names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else ""), reason)
        for reason, names in found.items()
    ]
