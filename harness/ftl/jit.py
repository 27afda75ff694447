"""How kernels are compiled: once a machine, whatever file was edited since.

Numba's own cache looks only at the file of the outermost function, so a change in a helper
would leave stale machine code behind. Here the cache folder is named after the contents of
this whole package.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils, config
from numba.extending import intrinsic

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def _cache_folder() -> Path | None:
    """A folder of this user for compiled kernels; None where none can be written."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base) / "kvflash-harness" / f"ftl-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


_FOLDER = _cache_folder()


def kernel(function: FunctionT) -> FunctionT:
    """Compile ``function`` to machine code, without the GIL, kept between processes.

    Reference counting is off: kernels get views of arrays that their caller holds and allocate
    nothing, and counting each view would take most of the time.
    """
    return _compile(function, forceinline=False)


def inlined(function: FunctionT) -> FunctionT:
    """A ``kernel`` that is copied into its callers.

    A state is passed as some hundred words (every array with its shape and strides), which
    costs more than the body of a small function.
    """
    return _compile(function, forceinline=True)


def _compile(function: FunctionT, forceinline: bool) -> FunctionT:
    settings: Any = config  # numba reads the cache folder from here when it decorates
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(_FOLDER or before)
    try:
        compile_: Any = njit  # _nrt, reference counting, is not in its published signature
        wrap = compile_(
            nogil=True, _nrt=False, error_model="numpy",
            cache=_FOLDER is not None, forceinline=forceinline,
        )  # fmt: skip
        return cast(FunctionT, wrap(function))
    finally:
        settings.CACHE_DIR = before


def _prefetch(typing: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        byte_pointer, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(data, [values[1]]), byte_pointer)
        hint = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte_pointer, int32, int32, int32]),
            "llvm.prefetch.p0i8",
        )
        builder.call(hint, [address, int32(1), int32(3), int32(1)])
        return context.get_dummy_value()

    return types.void(array, index), generate


prefetch: Any = intrinsic(_prefetch)
"""``prefetch(array, index)`` asks for that cache line without waiting for it.

The mapping tables are far larger than any cache: random single-page writes are bound by the
latency of one load each unless several are under way.
"""
