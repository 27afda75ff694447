"""The decorators of this part's compiled loops."""

from __future__ import annotations

from harness.core.jit import kernels

_SOURCES = ("simulator/wearing", "stores", "core/ops.py")

kernel = kernels(*_SOURCES, allocates=True)

inner_kernel = kernels(*_SOURCES, inner=True, allocates=True)
"""For what only other kernels call: no wrapper for Python has to be compiled."""
