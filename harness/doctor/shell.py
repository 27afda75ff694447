"""Small questions put to the machine by checks: versions, files, packages."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

_TIMEOUT_S = 20.0


def ask(*words: str, timeout_s: float = _TIMEOUT_S) -> tuple[int, str]:
    """Exit code and joined output of a command; 127 if it is not there, 124 if it hangs."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except FileNotFoundError:
        return 127, f"{words[0]}: not found"
    except subprocess.TimeoutExpired:
        return 124, f"{words[0]} did not answer within {timeout_s:g} s"
    return done.returncode, done.stdout.strip()


def find_tool(name: str) -> str | None:
    """Path of a program, also where root's tools live when PATH lacks those folders."""
    extra = ("/usr/local/sbin", "/usr/sbin", "/sbin")
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(extra))


def version_of(text: str) -> tuple[int, ...]:
    """The first dotted number in ``text``, ``"fio-3.33-dirty"`` -> ``(3, 33)``; () if none."""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def last_line(text: str) -> str:
    """The last non-empty line: what a failing tool has to say."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def read_text(path: str) -> str | None:
    """Content of a small file under /proc or /sys, or None if it cannot be read."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return None


def install(*packages: str) -> str:
    """How to install Debian packages here: an apt command, or the names on another system."""
    names = " ".join(packages)
    if not is_debian():
        return f"install with your package manager (Debian's names): {names}"
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get install {names}"


def is_debian() -> bool:
    """Whether this system is Debian or made from it."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return False
    return "debian" in f"{release.get('ID', '')} {release.get('ID_LIKE', '')}".split()
