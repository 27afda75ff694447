"""Memory that is left, also in a limited cgroup whose page cache counts as used."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.memory import _cgroup_room, available_bytes

GIB = 1 << 30


def test_memory_is_what_the_kernel_can_give() -> None:
    total = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal")
    )
    assert 0 < available_bytes() <= total


@pytest.mark.parametrize(
    ("folder", "limit", "used", "cached"),
    [
        (".", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ],
)
def test_page_cache_of_a_cgroup_is_not_lost(
    tmp_path: Path, folder: str, limit: str, used: str, cached: str
) -> None:
    """8 GiB allowed, 7 used, 3 of them files not in use: 4 are left."""
    place = tmp_path / folder
    place.mkdir(exist_ok=True)
    (place / limit).write_text(f"{8 * GIB}\n")
    (place / used).write_text(f"{7 * GIB}\n")
    assert _cgroup_room(tmp_path) == GIB
    (place / "memory.stat").write_text(f"anon {4 * GIB}\n{cached} {3 * GIB}\n")
    assert _cgroup_room(tmp_path) == 4 * GIB
    (place / limit).write_text("max\n" if limit == "memory.max" else f"{(1 << 63) - 4096}\n")
    assert _cgroup_room(tmp_path) is None
