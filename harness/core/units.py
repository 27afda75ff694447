"""Sizes and durations: parsing what people write, printing what people read.

Decimal (kB, MB, GB, TB) and binary (KiB, MiB, GiB, TiB) prefixes are distinct, as on drive
labels; a bare number is bytes.
"""

from __future__ import annotations

import re

from harness.core.errors import UsageError

_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgtp]i?)?(b)?\s*", re.IGNORECASE)


def parse_size(text: str | int) -> int:
    """``"8GiB"``, ``"1 TB"``, ``"4096"`` or an int -> bytes; UsageError on anything else."""
    if isinstance(text, int) and not isinstance(text, bool):
        if text < 0:
            raise UsageError(f"size must not be negative: {text}")
        return text
    match = _SIZE.fullmatch(str(text))
    if match is None:
        raise UsageError(f"not a size: {text!r} (examples: 4096, 128KiB, 8GiB, 1TB)")
    number, prefix = match.group(1), (match.group(2) or "").lower()
    factor = _BINARY.get(prefix) or _DECIMAL[prefix]
    if "." not in number:
        return int(number) * factor
    size = float(number) * factor
    if not size.is_integer():
        raise UsageError(f"size is not a whole number of bytes: {text!r}")
    return int(size)


def format_size(size_bytes: float) -> str:
    """Bytes -> binary prefix with three significant digits, ``"1.50 GiB"``."""
    value = float(size_bytes)
    for prefix in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if prefix == "B" else f"{_three(value)} {prefix}"
        value /= 1024
    return f"{_three(value)} PiB"


def _three(value: float) -> str:
    """Three significant digits, all digits of larger numbers: ``1000``, not ``1e+03``."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def format_duration(seconds: float) -> str:
    """Seconds -> the unit a person would use, ``"12.3 ms"``, ``"4.2 min"``, ``"3.1 y"``."""
    magnitude = abs(seconds)
    for limit, divisor, unit in (
        (1e-6, 1e-9, "ns"),
        (1e-3, 1e-6, "us"),
        (1.0, 1e-3, "ms"),
        (120.0, 1.0, "s"),
        (7200.0, 60.0, "min"),
        (172800.0, 3600.0, "h"),
        (2 * 365 * 86400.0, 86400.0, "d"),
    ):
        if magnitude < limit:
            return f"{_three(seconds / divisor)} {unit}"
    return f"{_three(seconds / (365 * 86400.0))} y"
