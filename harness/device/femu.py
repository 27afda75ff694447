"""From a device profile to FEMU's drive: properties, limits, memory, and a smaller drive alike.

FEMU keeps the emulated drive in memory and allows fewer than 2^31 sectors, so a drive of today
is emulated at a fraction of its size. What a smaller drive keeps and what it cannot is said in
words with every derivation.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal

from harness.core.errors import MachineError, UsageError
from harness.core.profiles import DeviceProfile
from harness.core.units import format_size
from harness.device.guest.drives import FemuDrive

CHECKED_COMMIT = "99ce4fb2b"
"""The FEMU commit whose behaviour was measured; later ones may add a write buffer."""

MAX_COMMAND_BYTES = 256 << 10
"""GC is decided once a command, so the guest's kernel is told to split at this size."""
_MDTS = (MAX_COMMAND_BYTES // 4096).bit_length() - 1

_GEOMETRY = (
    "nchs", "luns_per_ch", "pls_per_lun", "blks_per_pl", "pgs_per_blk", "secs_per_pg", "secsz",
)  # fmt: skip

FEMU_LATENCIES_NS = {"pg_rd_lat": 40_000, "pg_wr_lat": 200_000, "blk_er_lat": 2_000_000}
"""FEMU's own times to read, program and erase: they stand in for what a profile leaves out."""

Keep = Literal["line-size", "line-count"]
"""What a scaled drive has in common with the full one besides over-provisioning."""


@dataclass(frozen=True)
class Scaled:
    """A smaller drive and what follows from its size, one sentence each."""

    profile: DeviceProfile
    factor: Fraction
    keep: Keep
    consequences: tuple[str, ...]


def parse_scale(text: str) -> Fraction:
    """``1/64`` or ``1`` -> a fraction in (0, 1]; UsageError otherwise."""
    try:
        factor = Fraction(text.strip())
    except (ValueError, ZeroDivisionError) as error:
        raise UsageError(f"not a scale: {text!r} (examples: 1/64, 1/8, 1)") from error
    if not 0 < factor <= 1:
        raise UsageError(f"a scale lies between 0 and 1: {text!r}")
    return factor


def scale_profile(profile: DeviceProfile, factor: Fraction, keep: Keep = "line-size") -> Scaled:
    """The drive at ``factor`` of its flash, with the same over-provisioning and thresholds.

    ``line-size`` leaves out lines, ``line-count`` shrinks each line. FEMU's lines are shrunk by
    pages a block, those of the ``drive`` policy by ``line_bytes``.

    Raises
    ------
    UsageError
        The factor divides no geometry, or so little is left that the drive cannot work.
    """
    key = "pgs_per_blk" if profile.is_femu and keep == "line-count" else "blks_per_pl"
    before = getattr(profile, key)
    after = round(before * factor)
    if after < 1 or (key == "pgs_per_blk" and after != before * factor):
        raise UsageError(
            f"{key} {before} times {factor} is no whole number of at least 1",
            fix="take a scale that divides it, or keep the other (--keep line-size)",
        )
    raw_bytes = profile.raw_bytes // before * after
    share = Fraction(profile.namespace_bytes, profile.raw_bytes)
    size_mb = int(raw_bytes * share) >> 20
    if size_mb < 1:
        raise UsageError(f"{factor} of {format_size(profile.namespace_bytes)} is less than 1 MiB")
    changes: dict[str, Any] = {
        key: after,
        "devsz_mb": size_mb,
        "op_pcent": 0,
        "capacity_bytes": size_mb << 20,
        "name": f"{profile.name}@{factor}".replace("/", "-"),
    }
    if not profile.is_femu and keep == "line-count":
        changes["drive"] = {"line_bytes": raw_bytes // profile.lines}
    small = profile.changed(**changes)
    return Scaled(small, factor, keep, _consequences(profile, small, keep))


def _consequences(full: DeviceProfile, small: DeviceProfile, keep: Keep) -> tuple[str, ...]:
    words = [
        f"namespace {format_size(full.namespace_bytes)} -> {format_size(small.namespace_bytes)},"
        f" over-provisioning {full.over_provisioning:.2%} -> {small.over_provisioning:.2%}"
    ]
    if full.is_femu:
        words.append(
            f"GC thresholds of {full.gc_thres_lines}/{full.gc_thres_lines_high} of {full.lines}"
            f" lines become {small.gc_thres_lines}/{small.gc_thres_lines_high} of {small.lines}"
            f" ({full.gc_thres_lines / full.lines:.2%} -> {small.gc_thres_lines / small.lines:.2%}"
            " of the lines for background GC)"
        )
    if keep == "line-size":
        words.append(
            f"a line stays {format_size(small.line_bytes)}, but there are {small.lines} instead of"
            f" {full.lines}: spare lines {full.spare_lines} -> {small.spare_lines}, victims are"
            " chosen among fewer, and one open line weighs more"
        )
    else:
        words.append(
            f"{small.lines} lines stay, but a line is {format_size(small.line_bytes)} instead of"
            f" {format_size(full.line_bytes)}: data that fills whole lines here only filled parts"
            " of them on the full drive, so write amplification comes out lower"
        )
    words.append(
        "a store must be re-emitted at this size; a trace of the full drive is not stretched"
    )
    return tuple(words)


def femu_profile(profile: DeviceProfile) -> tuple[DeviceProfile, tuple[str, ...]]:
    """The profile as FEMU can be it, and what had to change.

    A ``drive`` policy becomes FEMU's with late thresholds, which collects last and so comes
    nearest; a namespace in odd bytes is cut to whole MiB.
    """
    notes = []
    if not profile.is_femu:
        profile = profile.with_policy("femu-late")
        notes.append(
            "FEMU has only its own GC policy: thresholds 98/99 (femu-late) stand in for the"
            " profile's policy drive"
        )
    if not profile.op_pcent and profile.namespace_bytes % (1 << 20):
        size_mb = profile.namespace_bytes >> 20
        notes.append(
            f"namespace cut from {profile.namespace_bytes} B to {size_mb} MiB, FEMU's unit"
        )
        profile = profile.changed(devsz_mb=size_mb)
    return profile, tuple(notes)


def femu_drive(
    profile: DeviceProfile,
    *,
    latencies_ns: Mapping[str, int] = MappingProxyType({}),
    known: Set[str] | None = None,
) -> FemuDrive:
    """FEMU's drive for a profile that has FEMU's policy.

    ``latencies_ns`` by FEMU's names are for timing; those not given are 0, as wear wants them
    (they change no counter). ``known`` are the properties this FEMU has; one that is needed and
    missing is a MachineError.

    Raises
    ------
    UsageError
        FEMU cannot be this drive (too many sectors, an axis too long, not its policy).
    """
    problems = profile.femu_problems()
    if problems:
        raise UsageError(
            f"FEMU cannot be {profile.name or 'this profile'}: {'; '.join(problems)}",
            fix="derive a smaller drive: --scale 1/64",
        )
    properties = {
        **_properties(profile),
        **dict.fromkeys(FEMU_LATENCIES_NS, 0),
        **latencies_ns,
    }
    missing = set(properties) - (known or set(properties)) - {"serial"}
    if missing:
        raise MachineError(
            f"this FEMU lacks the properties {', '.join(sorted(missing))}",
            fix=f"build a newer FEMU ({CHECKED_COMMIT} was checked)",
        )
    backing = profile.raw_bytes if profile.op_pcent else profile.namespace_bytes
    return FemuDrive(properties, profile.namespace_bytes, backing, profile.raw_pages)


def _properties(profile: DeviceProfile) -> dict[str, str | int]:
    size = {"op_pcent": profile.op_pcent} if profile.op_pcent else {
        "devsz_mb": profile.namespace_bytes >> 20
    }  # fmt: skip
    thresholds = (profile.gc_thres_pcent, profile.gc_thres_pcent_high)
    assert None not in thresholds  # a profile fills them in
    return {
        "femu_mode": 1,
        **{key: getattr(profile, key) for key in _GEOMETRY},
        **size,
        "gc_thres_pcent": thresholds[0] or 0,
        "gc_thres_pcent_high": thresholds[1] or 0,
        "lba_index": profile.lba_index,
        # One queue: the order of submission is the order the FTL sees.
        "queues": 1,
        "mdts": _MDTS,
    }
