"""Media counters from log pages, each a pure function of the log's bytes.

``None`` means: these bytes do not hold that source's counters. The drive's model must be asked
before FEMU's layouts are applied: on other drives the same bytes mean temperatures.
"""

from __future__ import annotations

from harness.device.counters import MediaTotals
from harness.device.smart import SMART_LOG_BYTES, Controller, require, uint

VENDOR_LOG_ID = 0xC0
VENDOR_LOG_BYTES = 512
FDP_STATISTICS_LOG_ID = 0x22
FDP_STATISTICS_BYTES = 64

_OCP_GUID = bytes.fromhex("c5af1028eabff2a49c4f6f7cc914d5af")


def is_femu(controller: Controller) -> bool:
    """Whether this is one of FEMU's drives (model ``FEMU BlackBox-SSD Controller`` and such)."""
    return controller.model.startswith("FEMU")


def femu_smart(data: bytes) -> MediaTotals | None:
    """FEMU's vendor bytes 192–215 of the SMART log (commit 99ce4fb2b).

    u32 at 192: WAF x 1000, u64 at 200: host pages, u64 at 208: pages moved by garbage
    collection. None where the factor is zero, which it never is: older FEMU has no such bytes.
    In FDP mode they stay 1000/0/0, its own statistics are the source there.
    """
    require(data, SMART_LOG_BYTES, "the SMART log")
    waf_x1000, host, moved = uint(data, 192, 4), uint(data, 200, 8), uint(data, 208, 8)
    if waf_x1000 == 0:
        return None
    return MediaTotals("femu-smart", host + moved, host, None)


def femu_vendor_log(data: bytes) -> MediaTotals | None:
    """Newer FEMU's log page C0h: WAF x 1000 at 0, host, moved and programmed pages at 8, 16, 24.

    None unless the factor agrees with the pages, which tells this layout from any other C0h.
    """
    require(data, VENDOR_LOG_BYTES, "FEMU's log page C0h")
    waf_x1000 = uint(data, 0, 4)
    host, moved, programmed = (uint(data, offset, 8) for offset in (8, 16, 24))
    expected = 1000 if host == 0 else programmed * 1000 // host
    if waf_x1000 == 0 or abs(waf_x1000 - expected) > 1 or programmed < moved:
        return None
    return MediaTotals("femu-c0", programmed, host, None)


def fdp_statistics(data: bytes) -> MediaTotals:
    """FDP Statistics (0x22) of one endurance group: bytes by the host, to media, erased."""
    require(data, FDP_STATISTICS_BYTES, "the FDP statistics log")
    host, media, erased = (uint(data, offset, 16) for offset in (0, 16, 32))
    return MediaTotals("fdp", media, host, 1, erased)


def ocp_smart(data: bytes) -> MediaTotals | None:
    """OCP's SMART / Health Information Extended (C0h), recognised by its GUID.

    "Physical media units written" are bytes (OCP Datacenter NVMe SSD Specification 2.x,
    SMART-1). It has no host count of its own. None for another vendor's C0h.
    """
    require(data, VENDOR_LOG_BYTES, "the log page C0h")
    if data[496:512] != _OCP_GUID:
        return None
    return MediaTotals("ocp", uint(data, 0, 16), None, 1)
