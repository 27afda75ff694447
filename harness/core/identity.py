"""Which code this is, by its content: a version stays the same while people work on it."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from harness import __version__
from harness.core.assets import asset_dir

ASSETS = ("ebpf", "femu", "workloads")
_PACKAGE = Path(__file__).resolve().parents[1]


def package_files() -> list[tuple[str, Path]]:
    """Every file of the package by its name in a wheel, assets included, sorted by name."""
    found = [
        (f"harness/{path.relative_to(_PACKAGE).as_posix()}", path)
        for path in _files(_PACKAGE)
        if path.relative_to(_PACKAGE).parts[0] != "_assets"
    ]
    for name in ASSETS:
        folder = asset_dir(name)
        found += [
            (f"harness/_assets/{name}/{path.relative_to(folder).as_posix()}", path)
            for path in _files(folder)
        ]
    return sorted(found)


def _files(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.rglob("*")
        if path.is_file()
        and path.suffix != ".pyc"
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


@lru_cache(maxsize=1)
def code() -> str:
    """Twelve hexadecimal digits: the same in a checkout and in a wheel made of it."""
    digest = hashlib.sha256()
    for name, path in package_files():
        digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:12]


def identity() -> str:
    """Version and code, ``0.1.0 (code 4f1c…)``."""
    return f"{__version__} (code {code()})"
