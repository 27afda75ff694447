"""Root in somebody else's folders leaves nothing there that only root can use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.ownership import owner
from harness.core.runs import RunFolder

pytestmark = pytest.mark.root

SOMEBODY = (61234, 61235)
_WHERE = (
    "import os; from harness.core.ownership import keep_caches_apart; keep_caches_apart();"
    "print(os.environ.get('XDG_CACHE_HOME'))"
)


def cache_of(**environment: str) -> str:
    kept = {k: v for k, v in os.environ.items() if k != "XDG_CACHE_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", _WHERE], capture_output=True, text=True, check=True,
        env={**kept, **environment},
    )  # fmt: skip
    return done.stdout.strip()


def test_root_with_the_home_of_a_user_caches_in_its_own(tmp_path: Path) -> None:
    os.chown(tmp_path, *SOMEBODY)
    assert cache_of(HOME=str(tmp_path)) == "/root/.cache"
    assert cache_of(HOME="/root", XDG_CACHE_HOME=str(tmp_path / "cache")) == "/root/.cache"
    assert cache_of(HOME="/root") == "None"
    assert not list(tmp_path.iterdir())


def test_a_run_that_root_makes_belongs_to_whose_folder_it_is_in(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, *SOMEBODY)
    with RunFolder(home / "results", "run", "x") as run:
        (run.path / "sub").mkdir()
        (run.path / "sub/data").write_text("1")
        (run.path / "link").symlink_to("/etc/hostname")
    for path in (home / "results", run.final, *run.final.rglob("*")):
        found = path.lstat()
        assert (found.st_uid, found.st_gid) == SOMEBODY, path
    assert Path("/etc/hostname").stat().st_uid == 0
    with pytest.raises(ValueError), RunFolder(home / "results", "run", "y") as broken:
        raise ValueError
    assert owner(broken.path) == SOMEBODY


def test_root_at_home_keeps_what_it_makes(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "results", "run", "x") as run:
        pass
    assert owner(run.final) == (0, 0)
