"""A drive as small as the loop device, for the trace that was captured on it."""

from __future__ import annotations

from harness.core.profiles import DeviceProfile

_PAGES_PER_BLOCK = 64
"""With 8 channels of 8 LUNs a line of 16 MiB: about a hundred lines on a drive of 1.5 GiB, and
still a few of the store's chunks in each."""


def shrunk(profile: DeviceProfile, namespace_bytes: int) -> DeviceProfile:
    """``profile`` with a namespace of ``namespace_bytes``, the same over-provisioning and DWPD.

    Lines shrink with it, which lowers write amplification against the full drive; that is why
    this stands beside the full drive's figure and never for it.
    """
    small = _PAGES_PER_BLOCK * profile.nchs * profile.luns_per_ch * profile.page_bytes
    line_bytes = min(small, profile.line_bytes)
    raw_bytes = namespace_bytes * profile.raw_bytes / profile.namespace_bytes
    return profile.changed(
        name=f"{profile.name}, shrunk to the loop device",
        description=f"{profile.description}, at {namespace_bytes} B",
        capacity_bytes=namespace_bytes,
        devsz_mb=-(-namespace_bytes >> 20),
        op_pcent=0,
        blks_per_pl=-int(-raw_bytes // small),
        pgs_per_blk=_PAGES_PER_BLOCK,
        drive={"line_bytes": line_bytes},
    )
