"""Two NVMe structures as bytes: the SMART / Health log (0x02) and Identify Controller.

Layouts: NVM Express Base Specification 2.0, "SMART / Health Information" and "Identify
Controller data structure". All integers are little-endian.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.core.errors import MeasurementError

SMART_LOG_ID = 0x02
SMART_LOG_BYTES = 512
IDENTIFY_BYTES = 4096
DATA_UNIT_BYTES = 512_000
"""A data unit is one thousand 512-byte blocks, rounded up by the drive."""

_FDP_SUPPORTED = 1 << 19


@dataclass(frozen=True)
class SmartLog:
    """What the drive says of its own health and of what the host asked of it."""

    critical_warning: int
    available_spare_pct: int
    percentage_used: int
    data_units_read: int
    data_units_written: int
    host_read_commands: int
    host_write_commands: int
    power_on_hours: int
    media_errors: int


@dataclass(frozen=True)
class Controller:
    """Who the drive says it is. ``fdp``: it can do flexible data placement."""

    vendor_id: int
    serial: str
    model: str
    firmware: str
    fdp: bool


def uint(data: bytes, offset: int, length: int) -> int:
    """The unsigned little-endian integer at ``data[offset:offset + length]``."""
    return int.from_bytes(data[offset : offset + length], "little")


def require(data: bytes, size_bytes: int, what: str) -> None:
    """MeasurementError unless ``data`` is at least as long as the log it should be."""
    if len(data) < size_bytes:
        raise MeasurementError(f"{what} has {len(data)} bytes, expected {size_bytes}")


def parse_smart(data: bytes) -> SmartLog:
    """Log page 0x02, at least 512 bytes; MeasurementError if it is shorter."""
    require(data, SMART_LOG_BYTES, "the SMART log")
    return SmartLog(
        critical_warning=data[0],
        available_spare_pct=data[3],
        percentage_used=data[5],
        data_units_read=uint(data, 32, 16),
        data_units_written=uint(data, 48, 16),
        host_read_commands=uint(data, 64, 16),
        host_write_commands=uint(data, 80, 16),
        power_on_hours=uint(data, 128, 16),
        media_errors=uint(data, 160, 16),
    )


def parse_controller(data: bytes) -> Controller:
    """Identify Controller, at least 512 of its 4096 bytes; MeasurementError if shorter."""
    require(data, 512, "Identify Controller")
    return Controller(
        vendor_id=uint(data, 0, 2),
        serial=_text(data[4:24]),
        model=_text(data[24:64]),
        firmware=_text(data[64:72]),
        fdp=bool(uint(data, 96, 4) & _FDP_SUPPORTED),
    )


def data_units(size_bytes: int) -> int:
    """Units a drive reports for ``size_bytes`` in total (rounded up)."""
    return -(-size_bytes // DATA_UNIT_BYTES)


def _text(raw: bytes) -> str:
    return raw.decode("ascii", errors="replace").strip("\0 ")
