from __future__ import annotations

import pytest

from harness.core.profiles import DeviceProfile, load_profile, profile_names
from harness.run.drives import shrunk


@pytest.mark.parametrize("name", profile_names())
def test_a_shrunk_drive_keeps_its_over_provisioning(name: str) -> None:
    full = load_profile(name)
    small = shrunk(full, 1536 << 20)
    assert small.namespace_bytes == 1536 << 20
    line_share = small.line_bytes / small.namespace_bytes
    assert small.over_provisioning == pytest.approx(full.over_provisioning, abs=2 * line_share)
    assert small.dwpd == full.dwpd
    assert small.policy == full.policy


def test_a_profile_in_mib_shrinks_too() -> None:
    full = DeviceProfile(name="femu", devsz_mb=12288, policy="femu-late")
    assert shrunk(full, 512 << 20).namespace_bytes == 512 << 20
