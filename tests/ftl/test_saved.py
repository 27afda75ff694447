from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import UsageError
from harness.ftl import Ftl
from harness.ftl.saved import load, save
from harness.ftl.workloads import b_rand, join
from tests.ftl.golden import profile_of


def worked(policy: str, by_class: bool = False) -> Ftl:
    profile = profile_of("A").with_policy(policy)  # type: ignore[arg-type]
    ftl = Ftl(profile, by_class)
    ftl.apply(*join(b_rand(profile.namespace_bytes, mult=0.5, seed=9)))
    return ftl


@pytest.mark.parametrize("policy", ["femu", "drive"])
@pytest.mark.parametrize("by_class", [False, True])
def test_a_saved_drive_goes_on_as_if_never_stopped(
    policy: str, by_class: bool, tmp_path: Path
) -> None:
    ftl = worked(policy, by_class)
    save(ftl, tmp_path / "state", {"filled": 2})
    again, facts = load(tmp_path / "state", ftl.profile)
    assert facts == {"filled": 2}
    more = join(b_rand(ftl.profile.namespace_bytes, mult=0.3, seed=10))
    assert again.apply(*more) == ftl.apply(*more)
    assert again.counters() == ftl.counters()
    assert again.state.pages.l2p.tolist() == ftl.state.pages.l2p.tolist()
    assert again.pages_by_class.tolist() == ftl.pages_by_class.tolist()


def test_price_and_rating_may_change_but_not_the_drive(tmp_path: Path) -> None:
    ftl = worked("femu")
    save(ftl, tmp_path / "state", {})
    load(tmp_path / "state", ftl.profile.changed(price_usd=99, name="other"))
    with pytest.raises(UsageError, match="gc_thres_pcent 75, the profile says 98"):
        load(tmp_path / "state", ftl.profile.with_policy("femu-late"))
    with pytest.raises(UsageError, match="holds a namespace of 402653184 B"):
        load(tmp_path / "state", ftl.profile.changed(devsz_mb=383))


def test_damage_is_found(tmp_path: Path) -> None:
    ftl = worked("drive")
    path = tmp_path / "state"
    save(ftl, path, {})
    whole = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    for _ in range(20):
        at = int(rng.integers(len(whole) // 2, len(whole)))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(UsageError, match="damaged"):
            load(path, ftl.profile)
    path.write_bytes(whole[:-1000])
    with pytest.raises(UsageError, match=r"truncated|damaged"):
        load(path, ftl.profile)
    path.write_bytes(b"offset,length,op\n")
    with pytest.raises(UsageError, match="not a saved drive"):
        load(path, ftl.profile)
    with pytest.raises(UsageError, match="cannot read"):
        load(tmp_path / "nowhere", ftl.profile)
