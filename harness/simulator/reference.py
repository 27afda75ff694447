"""Handing a tuple of many arrays to compiled functions as one pointer.

Numba passes a named tuple by value: with forty arrays, each small function would copy three hundred
words, and compiling those copies takes a minute. Here the tuple is stored once, in memory that
nothing else writes while kernels run, and functions get a ``Reference``, whose attributes are read
from there. In uncompiled code the tuple itself stands in for it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, register_model

WORDS = 2048
"""64-bit words that a stored tuple may have; forty arrays have about three hundred."""

_TUPLES = (types.NamedTuple, types.NamedUniTuple)


class Reference(types.Type):
    """A pointer to a stored named tuple."""

    def __init__(self, target: Any) -> None:
        self.target = target
        # Names become part of symbols: the tuple's own name has thousands of letters.
        digest = hashlib.sha256(str(target).encode()).hexdigest()
        super().__init__(name=f"Reference_{digest[:16]}")


@register_model(Reference)
class _Model(models.OpaqueModel):
    """An untyped pointer."""


@infer_getattr
class _Attributes(AttributeTemplate):
    key = Reference

    def generic_resolve(self, reference: Any, name: str) -> Any:  # type: ignore[override]
        """The type of a field; a reference again for a tuple in the tuple."""
        if name not in reference.target.fields:
            return None
        field = reference.target.types[reference.target.fields.index(name)]
        return Reference(field) if isinstance(field, _TUPLES) else field


@lower_getattr_generic(Reference)
def _load(context: Any, builder: Any, reference: Any, value: Any, name: str) -> Any:
    target = reference.target
    index = target.fields.index(name)
    whole = builder.bitcast(value, context.get_value_type(target).as_pointer())
    zero, place = (ir.Constant(ir.IntType(32), number) for number in (0, index))
    pointer = builder.gep(whole, [zero, place])
    if isinstance(target.types[index], _TUPLES):
        return builder.bitcast(pointer, cgutils.voidptr_t)
    loaded = builder.load(pointer)
    # Nothing writes there while a kernel runs, so a loop need not look again after each store.
    loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    return loaded


def _keep(typing: Any, whole: Any, memory: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = context.get_value_type(signature.args[0])
        if context.get_abi_sizeof(kind) > 8 * WORDS:
            raise TypeError("the tuple of arrays is too large to be stored")
        data = context.make_array(signature.args[1])(context, builder, values[1]).data
        builder.store(values[0], builder.bitcast(data, kind.as_pointer()))
        return context.get_dummy_value()

    return types.void(whole, memory), generate


def _refer(typing: Any, whole: Any, memory: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[1])(context, builder, values[1]).data
        return builder.bitcast(data, cgutils.voidptr_t)

    return Reference(whole)(whole, memory), generate


keep: Any = intrinsic(_keep)
"""``keep(whole, memory)`` stores a tuple in ``memory``, int64[WORDS]; in a kernel of its own."""

refer: Any = intrinsic(_refer)
"""``refer(whole, memory)`` is the reference to the tuple, of the type of ``whole``, kept there."""


def memory_for_tuple() -> np.ndarray:
    """What ``keep`` fills, int64[WORDS]."""
    return np.zeros(WORDS, np.int64)
