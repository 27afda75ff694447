"""What root leaves in other people's folders: nothing of its own."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path

from harness.core.caches import cache_home


def keep_caches_apart() -> None:
    """As root in somebody else's home (``sudo`` may keep HOME), use root's own cache folder.

    Later runs of theirs could neither read nor replace what root had cached there.
    """
    if os.geteuid() != 0:
        return
    if owner(cache_home().parent)[0] != 0:
        os.environ["XDG_CACHE_HOME"] = os.path.join(pwd.getpwuid(0).pw_dir, ".cache")


def owner(path: Path) -> tuple[int, int]:
    """User and group of ``path``, or of the nearest folder above it that exists."""
    for place in (path.absolute(), *path.absolute().parents):
        with suppress(OSError):
            found = place.stat()
            return found.st_uid, found.st_gid
    return os.geteuid(), os.getegid()


def give(folder: Path, to: tuple[int, int]) -> None:
    """As root, give ``folder`` and all that is in it to the user and group ``to``."""
    if os.geteuid() != 0 or to[0] == 0:
        return
    for path in (folder, *folder.rglob("*")):
        with suppress(OSError):
            os.chown(path, *to, follow_symlinks=False)
