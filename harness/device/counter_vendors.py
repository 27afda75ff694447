"""Media counters from vendors' own logs, as nvme-cli's plugins print them in JSON.

Key names were read in nvme-cli's plugin sources. A vendor is in the table only where the unit
of its counter is known; most current enterprise drives answer the OCP log instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from harness.device.counters import MediaTotals

_INTEL_UNIT_BYTES = 32 << 20
"""Intel and Solidigm count host and NAND writes in units of 32 MiB."""


@dataclass(frozen=True)
class VendorLog:
    """How to ask one vendor: words after ``nvme`` (the device comes last), and the reader."""

    name: str
    argv: tuple[str, ...]
    parse: Callable[[Any], MediaTotals | None]


def intel_smart(data: Any) -> MediaTotals | None:
    """``{"Device stats": {"nand_bytes_written": {"raw": N}, "host_bytes_written": …}}``."""
    stats = data.get("Device stats") if isinstance(data, dict) else None
    if not isinstance(stats, dict):
        return None
    media, host = (_raw(stats.get(f"{side}_bytes_written")) for side in ("nand", "host"))
    if media is None:
        return None
    return MediaTotals("vendor-intel", media, host, _INTEL_UNIT_BYTES)


def micron_nand_stats(data: Any) -> MediaTotals | None:
    """``vs-nand-stats``: bytes as hexadecimal text, under one of two names by drive family."""
    return _bytes_named(
        data, "vendor-micron", ("Physical Media Units Written", "NAND Writes (Bytes Written)")
    )


def seagate_smart(data: Any) -> MediaTotals | None:
    """``vs-smart-add-log``: a list of ``{"attribute_name", "attribute_value"}``, value in hex."""
    for record in _dicts(data):
        if record.get("attribute_name") == "Physical Media Units Written":
            return _bytes_named(record, "vendor-seagate", ("attribute_value",))
    return None


VENDOR_LOGS = {
    0x8086: VendorLog("Intel", ("intel", "smart-log-add", "--json"), intel_smart),
    0x025E: VendorLog("Solidigm", ("solidigm", "smart-log-add", "-o", "json"), intel_smart),
    0x1344: VendorLog("Micron", ("micron", "vs-nand-stats", "-f", "json"), micron_nand_stats),
    0x1BB1: VendorLog("Seagate", ("seagate", "vs-smart-add-log", "-o", "json"), seagate_smart),
}
"""By PCI vendor id of the controller."""


def parse_vendor(vendor_id: int, text: bytes) -> MediaTotals | None:
    """The vendor's counters from the plugin's output; None if it is no JSON or lacks them."""
    log = VENDOR_LOGS.get(vendor_id)
    if log is None:
        return None
    try:
        return log.parse(json.loads(text))
    except ValueError:
        return None


def _bytes_named(data: Any, source: str, names: tuple[str, ...]) -> MediaTotals | None:
    for record in _dicts(data):
        for name in names:
            value = _number(record.get(name))
            if value is not None:
                return MediaTotals(source, value, None, 1)
    return None


def _dicts(data: Any) -> Iterator[dict[str, Any]]:
    """Every object anywhere inside ``data``."""
    if isinstance(data, dict):
        yield data
        data = list(data.values())
    if isinstance(data, list):
        for item in data:
            yield from _dicts(item)


def _raw(entry: Any) -> int | None:
    return _number(entry.get("raw")) if isinstance(entry, dict) else None


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        try:
            return int(value.replace(",", ""), 0)
        except ValueError:
            return None
    return None
