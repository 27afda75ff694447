"""What compiled loops need of the system: the clock, two system calls, ordered loads and stores.

Functions of libc are called by symbol, so that compiled code can be cached on disk; shared words
are reached by address with acquire and release ordering, so that neither compiler nor processor
moves an access across them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import signature
from numba.extending import intrinsic
from numpy.typing import NDArray

from harness.replay.jit import kernel

_LONG = types.int64
_clock_gettime: Any = types.ExternalFunction("clock_gettime", signature(types.int32, _LONG, _LONG))
_syscall: Any = types.ExternalFunction("syscall", signature(*[_LONG] * 8))
_errno_location: Any = types.ExternalFunction("__errno_location", signature(_LONG))

_intrinsic: Any = intrinsic  # what it makes is called without its first argument

CLOCK_MONOTONIC = 1
BILLION = 1_000_000_000


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


@_intrinsic
def load_u32(context: Any, address: Any) -> Any:
    """The uint32 at ``address``, with acquire ordering."""

    def generate(cg: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0], 32), "acquire", 4)

    return types.uint32(types.int64), generate


@_intrinsic
def store_u32(context: Any, address: Any, value: Any) -> Any:
    """Put the uint32 ``value`` at ``address``, with release ordering."""

    def generate(cg: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _pointer(builder, args[0], 32), "release", 4)
        return cg.get_dummy_value()

    return types.void(types.int64, types.uint32), generate


@_intrinsic
def load_i64(context: Any, address: Any) -> Any:
    """The int64 at ``address``, with acquire ordering."""

    def generate(cg: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0], 64), "acquire", 8)

    return types.int64(types.int64), generate


@_intrinsic
def store_i64(context: Any, address: Any, value: Any) -> Any:
    """Put the int64 ``value`` at ``address``, with release ordering."""

    def generate(cg: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _pointer(builder, args[0], 64), "release", 8)
        return cg.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@_intrinsic
def pause(context: Any) -> Any:
    """Tell the processor that this is a spinning wait."""

    def generate(cg: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(
            cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), []
        )
        return cg.get_dummy_value()

    return types.void(), generate


@kernel
def now_ns(scratch: NDArray[np.int64]) -> int:
    """CLOCK_MONOTONIC in nanoseconds. ``scratch``: two int64 of the calling thread."""
    _clock_gettime(CLOCK_MONOTONIC, scratch.ctypes.data)
    return int(scratch[0] * BILLION + scratch[1])


@kernel
def system_call(number: int, a: int, b: int, c: int, d: int, e: int, f: int) -> int:
    """Result of a system call, or minus errno."""
    result = _syscall(number, a, b, c, d, e, f)
    if result != -1:
        return int(result)
    # Signed before it is negated: minus an unsigned number would be a float here.
    return int(-np.int64(load_u32(_errno_location())))
