"""Which drive a guest gets for a profile: FEMU's where there is FEMU, stock QEMU's elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.core.profiles import DeviceProfile, PolicyName
from harness.device.femu import (
    CHECKED_COMMIT,
    MAX_COMMAND_BYTES,
    Keep,
    femu_drive,
    femu_profile,
    parse_scale,
    scale_profile,
)
from harness.device.guest.binary import FEMU_VARIABLE, femu_binary, properties_of
from harness.device.guest.drives import Drive, NvmeDrive

TIMING_NS = (40_000, 200_000, 2_000_000)
"""FEMU's own read, program and erase times; profiles name none."""

NO_WAF = (
    f"no WAF was measured: FEMU is not installed ({FEMU_VARIABLE} is not set), stock QEMU's NVMe"
    " drive stands in, which counts the host's work exactly and has no flash"
)


@dataclass(frozen=True)
class GuestPlan:
    """A drive to start, and everything about it that is not what the profile says."""

    profile: DeviceProfile
    drive: Drive
    binary: str | None
    notes: tuple[str, ...]

    @property
    def emulator(self) -> str:
        """``FEMU``, or ``stock QEMU`` where that stands in."""
        return "FEMU" if self.binary else "stock QEMU"

    def to_json(self) -> dict[str, Any]:
        """Plain data for results."""
        return {
            "emulator": self.emulator,
            "femu_checked": CHECKED_COMMIT,
            "profile": self.profile.model_dump(mode="json"),
            "properties": dict(getattr(self.drive, "properties", {})),
            "notes": list(self.notes),
        }


def plan_guest(
    profile: DeviceProfile,
    *,
    scale: str = "1",
    keep: Keep = "line-size",
    policy: PolicyName | None = None,
    timing: bool = False,
) -> GuestPlan:
    """The guest for a profile at a scale.

    ``timing`` gives FEMU its flash latencies; without it they are 0, which changes no counter
    and wears many times faster.

    Raises
    ------
    UsageError
        The profile at this scale is no drive that FEMU could be.
    """
    factor = parse_scale(scale)
    notes: list[str] = []
    if policy is not None:
        profile = profile.with_policy(policy)
    profile, changed = femu_profile(profile)
    notes += changed
    if factor != 1:
        scaled = scale_profile(profile, factor, keep)
        profile = scaled.profile
        notes += scaled.consequences
    latencies = TIMING_NS if timing else (0, 0, 0)
    binary = femu_binary()
    if timing and binary:
        notes.append("flash latencies are FEMU's defaults, 40/200/2000 us: the profile names none")
    known = properties_of(binary, "femu") if binary else None
    drive: Drive = femu_drive(
        profile, read_ns=latencies[0], write_ns=latencies[1], erase_ns=latencies[2], known=known
    )
    if binary is None:
        mdts = (MAX_COMMAND_BYTES // 4096).bit_length() - 1
        drive = NvmeDrive(profile.namespace_bytes, options={"mdts": str(mdts)})
        notes.append(NO_WAF)
    return GuestPlan(profile, drive, binary, tuple(notes))
