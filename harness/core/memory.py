"""How much memory this host can still give."""

from __future__ import annotations

from pathlib import Path


def available_bytes() -> int:
    """Memory new processes can have: the kernel's estimate, or less in a limited cgroup."""
    meminfo = dict(
        line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line
    )
    free = int(meminfo["MemAvailable"].split()[0]) * 1024
    limit = _cgroup_room()
    return free if limit is None else min(free, limit)


def _cgroup_room() -> int | None:
    for folder, limit_name, used_name in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            limit = Path(folder, limit_name).read_text().strip()
            used = int(Path(folder, used_name).read_text())
        except (OSError, ValueError):
            continue
        # Version 1 says "no limit" by a number near 2^63.
        if limit != "max" and int(limit) < 1 << 60:
            return max(0, int(limit) - used)
    return None
