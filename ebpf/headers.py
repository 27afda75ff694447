"""Kernel headers for bcc's compiler. Any version will do: the probe takes no layout from them."""

from __future__ import annotations

import glob
import os
import platform
import re

_ARCH = {"x86_64": "x86", "aarch64": "arm64", "s390x": "s390", "ppc64le": "powerpc"}


class HeadersError(Exception):
    """No kernel headers on this machine."""


def find_headers(cache: str) -> str | None:
    """A folder for BCC_KERNEL_SOURCE, or None where bcc finds the running kernel's own.

    Where no headers match the running kernel, those of another kernel are put together in
    ``cache``: Debian splits them in two packages that bcc cannot use apart.
    """
    given = os.environ.get("BCC_KERNEL_SOURCE")
    if given:
        return given
    running = f"/lib/modules/{platform.release()}/build/include"
    if os.path.isdir(running) or os.path.exists("/sys/kernel/kheaders.tar.xz"):
        return None
    for whole in sorted(glob.glob("/usr/src/kernels/*"), key=_version, reverse=True):
        if os.path.isdir(f"{whole}/include/generated"):
            return whole
    for flavour in sorted(glob.glob("/usr/src/linux-headers-*"), key=_version, reverse=True):
        if os.path.isdir(f"{flavour}/include/generated"):
            return _debian_tree(flavour, cache)
    raise HeadersError("no kernel headers found (any version would do)")


def _version(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", os.path.basename(path))]


def _debian_tree(flavour: str, cache: str) -> str:
    """One tree over Debian's -common and -FLAVOUR folders (Ubuntu's whole one stays itself)."""
    if os.path.isdir(f"{flavour}/include/linux"):
        return flavour
    common = re.sub(r"-[a-z0-9]+$", "-common", flavour)
    if not os.path.isdir(f"{common}/include/linux"):
        raise HeadersError(f"{flavour} is there, but not {common}")
    arch = _ARCH.get(platform.machine(), platform.machine())
    tree = os.path.join(cache, os.path.basename(flavour))
    for folder in ("include", f"arch/{arch}", f"arch/{arch}/include"):
        os.makedirs(f"{tree}/{folder}", exist_ok=True)
        for source in (common, flavour):  # they hold different entries of the same folders
            _link_entries(f"{source}/{folder}", f"{tree}/{folder}")
    return tree


def _link_entries(source: str, target: str) -> None:
    for name in os.listdir(source):
        if not os.path.lexists(f"{target}/{name}") and name != "include":
            try:
                os.symlink(f"{source}/{name}", f"{target}/{name}")
            except FileExistsError:
                continue  # another capture is making the same tree
