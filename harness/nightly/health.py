"""What a drive says of itself, and whether it may still be written to."""

from __future__ import annotations

import json
from dataclasses import dataclass

from harness.core.errors import MachineError
from harness.nightly.inventory import Limits


@dataclass(frozen=True)
class Health:
    """From SMART; None where it is no NVMe drive or does not say."""

    temperature_c: int | None = None
    percentage_used: int | None = None
    media_errors: int | None = None

    def beyond(self, limits: Limits) -> list[str]:
        """What is past its limit, in words; a figure that is not known is not past it."""
        pairs = {
            "temperature": (self.temperature_c, limits.temperature_c),
            "percentage used": (self.percentage_used, limits.percentage_used),
            "media errors": (self.media_errors, limits.media_errors),
        }
        return [
            f"{name} {value} is above {most}"
            for name, (value, most) in pairs.items()
            if value is not None and value > most
        ]


def parse_health(text: bytes) -> Health:
    """``nvme smart-log -o json``: kelvin, percent, a count."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise MachineError("nvme smart-log printed no JSON") from error

    def known(*names: str) -> int | None:
        return next((int(data[name]) for name in names if name in data), None)

    kelvin = known("temperature")
    return Health(
        None if kelvin is None else kelvin - 273,
        known("percent_used", "percentage_used"),
        known("media_errors"),
    )
