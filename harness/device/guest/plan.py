"""Which drive a guest gets for a profile: FEMU's where there is FEMU, stock QEMU's elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.core.profiles import DeviceProfile, PolicyName
from harness.device.femu import (
    CHECKED_COMMIT,
    FEMU_LATENCIES_NS,
    MAX_COMMAND_BYTES,
    Keep,
    femu_drive,
    femu_profile,
    parse_scale,
    scale_profile,
)
from harness.device.guest.binary import NO_FEMU, femu_binary, properties_of
from harness.device.guest.drives import Drive, NvmeDrive

NO_WAF = (
    f"no WAF was measured ({NO_FEMU}): stock QEMU's NVMe drive stands in, which counts the host's"
    " work exactly and has no flash"
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
    binary = femu_binary()
    latencies_ns = flash_latencies_ns(profile) if timing else {}
    if timing and binary:
        notes.append(_latencies_said(profile, latencies_ns))
    known = properties_of(binary, "femu") if binary else None
    drive: Drive = femu_drive(profile, latencies_ns=latencies_ns, known=known)
    if binary is None:
        mdts = (MAX_COMMAND_BYTES // 4096).bit_length() - 1
        drive = NvmeDrive(profile.namespace_bytes, options={"mdts": str(mdts)})
        notes.append(NO_WAF)
    return GuestPlan(profile, drive, binary, tuple(notes))


def flash_latencies_ns(profile: DeviceProfile) -> dict[str, int]:
    """Time to read and program a page and to erase a block, by FEMU's names: the profile's, else
    FEMU's defaults."""
    given = {key: getattr(profile, key) for key in FEMU_LATENCIES_NS}
    return {key: FEMU_LATENCIES_NS[key] if ns is None else ns for key, ns in given.items()}


def _latencies_said(profile: DeviceProfile, latencies_ns: dict[str, int]) -> str:
    said = ", ".join(f"{key} {ns / 1000:g} us" for key, ns in latencies_ns.items())
    missing = [key for key in FEMU_LATENCIES_NS if getattr(profile, key) is None]
    default = f"; FEMU's default for what the profile lacks: {', '.join(missing)}"
    return f"flash latencies: {said}{default if missing else ''}"
