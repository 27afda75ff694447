"""How loops are compiled: once a machine, and again when any file that they use was edited.

Numba's own cache looks only at the file of the outermost function, so a change in a helper of
another file would leave stale machine code behind. Here the cache folder is named after the
content of every file that a group of kernels is made of.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite import binding as llvm
from numba import njit
from numba.core import config

from harness.core.caches import cache_home
from harness.core.ownership import keep_caches_apart

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
_PACKAGE = Path(__file__).resolve().parents[1]

_MOST_INLINED = 1500
"""LLVM's measure of the functions that it copies into their callers, 225 unless said.

Loops here call many functions of some lines each, in which a call takes longer than its body.
"""
llvm.set_option("", f"--inline-threshold={_MOST_INLINED}")


def kernels(
    *sources: str, inner: bool = False, inlined: bool = False, allocates: bool = False
) -> Callable[[FunctionT], FunctionT]:
    """A decorator that compiles to machine code, without Python's lock, kept between processes.

    ``sources`` are the files and folders, relative to the package, that its kernels are made of.
    ``inner`` kernels can be called by kernels alone, and compile faster; ``inlined`` ones are
    inner and copied into their callers: passing a tuple of many arrays costs a hundred words,
    more than the body of a small function. Kernels work on the arrays that they are given and
    make none, unless ``allocates``: without numba's reference counting they compile in half the
    time. Where no cache can be written, all are compiled anew in every process.
    """
    folder = _cache_folder(sources)
    options: dict[str, Any] = {"nogil": True, "_nrt": allocates}
    if inlined:
        options["forceinline"] = True
    if inner or inlined:
        options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

    def kernel(function: FunctionT) -> FunctionT:
        if folder is None:
            return cast(FunctionT, njit(**options)(function))
        settings: Any = config  # numba reads the folder from here when it decorates
        before = settings.CACHE_DIR
        settings.CACHE_DIR = str(folder)
        try:
            return cast(FunctionT, njit(cache=True, **options)(function))
        finally:
            settings.CACHE_DIR = before

    return kernel


def _cache_folder(sources: tuple[str, ...]) -> Path | None:
    keep_caches_apart()
    digest = hashlib.sha256(f"{numba.__version__} {_MOST_INLINED}".encode())
    for source in sources:
        path = _PACKAGE / source
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    folder = cache_home() / f"{Path(sources[0]).stem}-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
