"""Compilers for the kernels of this part, and the one instruction that numba lacks."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from harness.core.jit import kernels

_SOURCES = tuple(
    f"ftl/{name}.py" for name in ("jit", "policy", "pages", "heap", "victims", "femu", "drive")
)
kernel = kernels(*_SOURCES)
inner = kernels(*_SOURCES, inner=True)
inlined = kernels(*_SOURCES, inlined=True)


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
