"""Reading JSON whose optional parts may be absent, and printing what is there.

Nothing here raises on missing or oddly typed data: a report shows what a run measured and a
dash for what it did not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.core.units import format_duration, format_size
from harness.report.model import Cell

ABSENT = Cell("–")
NBSP = "\N{NO-BREAK SPACE}"


def dig(data: Any, path: str) -> Any:
    """``dig(wear, "waf.steady")``: the value at a dotted path, None where it does not lead."""
    for part in path.split("."):
        if isinstance(data, Mapping):
            data = data.get(part)
        elif isinstance(data, Sequence) and not isinstance(data, str) and part.isdigit():
            data = data[int(part)] if int(part) < len(data) else None
        else:
            return None
    return data


def number(data: Any, path: str = "") -> float | None:
    """A finite number at ``path``, an int as int, else None; booleans are not numbers."""
    value = dig(data, path) if path else data
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def text(data: Any, path: str = "") -> str | None:
    """A non-empty string at ``path``, else None."""
    value = dig(data, path) if path else data
    return value if isinstance(value, str) and value else None


def records(data: Any, path: str = "") -> list[dict[str, Any]]:
    """The objects of a list at ``path``; [] where there is no list."""
    value = dig(data, path) if path else data
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def strings(data: Any, path: str = "") -> list[str]:
    """The strings of a list (or one string) at ``path``."""
    value = dig(data, path) if path else data
    if isinstance(value, str):
        return [value] if value else []
    return [v for v in value if isinstance(v, str)] if isinstance(value, list) else []


def plain(value: float, digits: int = 3) -> str:
    """A number with ``digits`` significant figures; ints and large numbers whole."""
    if isinstance(value, int) or value == 0 or abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    if abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    value = float(f"{value:.{digits}g}")  # 9.996 becomes 10.0 before its digits are counted
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:,.{max(decimals, 0)}f}"


def cell(value: Any, key: str = "", digits: int = 3) -> Cell:
    """A number, string or truth value as a cell; a dash for None."""
    if isinstance(value, bool):
        return Cell("yes" if value else "no", key=key)
    found = number(value)
    if found is not None:
        return Cell(plain(found, digits), value, key)
    return Cell(value, key=key) if isinstance(value, str) and value else ABSENT


def size(value: Any, key: str = "") -> Cell:
    """Bytes as ``1.50 GiB``."""
    found = number(value)
    return ABSENT if found is None else Cell(_joined(format_size(found)), value, key)


def decimal_bytes(value: Any, key: str = "") -> Cell:
    """Bytes by drive-label prefixes, ``547 TB``."""
    found = number(value)
    if found is None:
        return ABSENT
    for prefix in ("B", "kB", "MB", "GB", "TB"):
        if abs(found) < 1000:
            return Cell(f"{plain(found)}{NBSP}{prefix}", value, key)
        found /= 1000
    return Cell(f"{plain(found)}{NBSP}PB", value, key)


def duration(seconds: Any, key: str = "", scale: float = 1.0) -> Cell:
    """Seconds (or ``scale`` of them) as ``4.20 min``; the exact value stays unscaled."""
    found = number(seconds)
    if found is None:
        return ABSENT
    shown = format_duration(found * scale).replace("us", "µs")
    return Cell(_joined(shown), seconds, key)


def nanoseconds(value: Any, key: str = "") -> Cell:
    """Nanoseconds in the unit a person would use."""
    return duration(value, key, 1e-9)


def days(value: Any, key: str = "") -> Cell:
    """Days as days, or years from two years on; the exact value stays in days."""
    return duration(value, key, 86400.0)


def percent(value: Any, key: str = "", digits: int = 3) -> Cell:
    """A share between 0 and 1 as percent; never rounded up to 100 %."""
    found = number(value)
    if found is None:
        return ABSENT
    shown = plain(100 * found, digits)
    if found < 1 and shown == "100":
        shown = ">99.9"
    return Cell(f"{shown}{NBSP}%", value, key)


def interval(value: Any, key: str = "") -> Cell:
    """``{median, low, high}`` as ``2.10 (2.05–2.18)``, or a bare number as itself."""
    if number(value) is not None:
        return cell(value, key)
    median, low, high = (number(value, part) for part in ("median", "low", "high"))
    if median is None:
        return ABSENT
    key = f"{key}.median" if key else ""
    if low is None or high is None:
        return Cell(plain(median), median, key)
    return Cell(f"{plain(median)}{NBSP}({plain(low)}–{plain(high)})", median, key)


def _joined(shown: str) -> str:
    return shown.replace(" ", NBSP)
