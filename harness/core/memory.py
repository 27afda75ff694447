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


def _cgroup_room(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    for folder, limit_name, used_name in (
        (root, "memory.max", "memory.current"),
        (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            limit = Path(folder, limit_name).read_text().strip()
            used = int(Path(folder, used_name).read_text())
        except (OSError, ValueError):
            continue
        # Version 1 says "no limit" by a number near 2^63.
        if limit != "max" and int(limit) < 1 << 60:
            return max(0, int(limit) - used + _page_cache(Path(folder, "memory.stat")))
    return None


def _page_cache(statistics: Path) -> int:
    """Bytes of files that the kernel gives up before it refuses memory; they count as used."""
    try:
        lines = statistics.read_text().splitlines()
    except OSError:
        return 0
    found = {name: int(value) for name, value in (line.split(" ", 1) for line in lines)}
    return found.get("total_inactive_file", found.get("inactive_file", 0))
