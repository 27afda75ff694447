"""The decorators of this part's compiled loops."""

from __future__ import annotations

from harness.core.jit import kernels

kernel = kernels("stores", "stores/requests", "core/ops.py", allocates=True)

inlined_kernel = kernels("stores", "stores/requests", "core/ops.py", inlined=True, allocates=True)
"""For small functions: handing a store's arrays over costs more than what they do."""

inner_kernel = kernels("stores", "stores/requests", "core/ops.py", inner=True, allocates=True)
"""For what only other kernels call: no wrapper for Python has to be compiled."""
